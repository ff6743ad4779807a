use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::peer::executable::WantedExecutable;
use crate::peer::reader::PeerKernel;
use crate::peer::support::KernelSupport;

#[tokio::test(start_paused = true)]
async fn a_program_that_a_process_executes_later_is_noticed_at_once_or_at_the_next_look() {
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let wanted = vec![WantedExecutable { path: shell, digest: false }];
    let kernel = Arc::new(PeerKernel::new(KernelSupport::probe()));
    let reader = Arc::new(PeerReader::new(kernel, wanted));
    let mut child = Command::new("/bin/sh").args(["-c", "read line; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let process = PinnedProcess::from_pid(child.id(), reader.support()).unwrap();
    let reading = reader.read(&process, reader.executable_of(&process)).unwrap();
    let (facts, _) = reader.facts(&PeerFacts::unknown(FactSource::Procfs), Some(&process), &reading);
    let identity = PeerIdentity::new(&reader, facts, Some((Arc::new(process), reading)));
    let wait = |millis| tokio::time::advance(Duration::from_millis(millis));
    assert_eq!(identity.compare(ExecutableAge::Current), PeerChange::Same);

    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    let executable = format!("/proc/{}/exe", child.id());
    while !std::fs::read_link(&executable).unwrap().ends_with("cat") {
        std::thread::yield_now();
    }
    wait(99).await;
    assert_eq!(identity.compare(ExecutableAge::Recent), PeerChange::Same, "the last look is recent");
    let is_changed = |age| matches!(identity.compare(age), PeerChange::Changed(now) if now.executable.is_none());
    assert!(is_changed(ExecutableAge::Current));
    assert!(is_changed(ExecutableAge::Recent), "the look of another request counts");
    wait(100).await;
    assert!(is_changed(ExecutableAge::Recent), "it is looked at again");
    drop(stdin);
    child.wait().unwrap();
    assert_eq!(identity.compare(ExecutableAge::Recent), PeerChange::Ended);
}
