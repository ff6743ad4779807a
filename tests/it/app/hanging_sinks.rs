//! Sinks on a file system that does not answer: a write waits for it without end.
//!
//! Permission events of a folder play it: the kernel has everybody who opens a file in it wait for an answer (`fanotify(7)`).

use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::Operation;

use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::not_run::not_run;
use crate::harness::python_script::PythonScript;
use crate::harness::world::{RESOURCE, World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_secs(30);

/// A folder whose files nobody can open. Its files open again when it is dropped.
struct HangingFolder(PythonScript);

impl HangingFolder {
    /// Returns `None` if the kernel grants no permission events.
    fn new(path: &Path) -> Option<Self> {
        // FAN_CLASS_CONTENT | FAN_CLOEXEC; FAN_MARK_ADD; FAN_OPEN_PERM | FAN_EVENT_ON_CHILD; AT_FDCWD.
        let hold = "import ctypes, os, sys\n\
                    libc = ctypes.CDLL(None)\n\
                    group = libc.fanotify_init(4 | 1, os.O_RDONLY)\n\
                    events = ctypes.c_uint64(0x10000 | 0x8000000)\n\
                    marked = libc.fanotify_mark(group, 1, events, -100, os.fsencode(sys.argv[1]))\n\
                    if group < 0 or marked != 0: sys.exit('refused')\n\
                    print('held', flush=True)\n\
                    os.read(group, 4096)\n\
                    print('somebody waits', flush=True)\n\
                    sys.stdin.read()\n";
        let mut script = PythonScript::start(hold, path);
        (script.line() == "held").then_some(Self(script))
    }

    fn wait_until_somebody_waits(&mut self) {
        assert_eq!(self.0.line(), "somebody waits");
    }
}

#[test]
fn a_removed_sink_whose_write_hangs_holds_up_no_other_sink_and_no_session() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            let folder = text.lines().find_map(|line| line.strip_prefix("path = \"")).unwrap();
            let hung = Path::new(folder.trim_end_matches('"')).with_file_name("hung");
            std::fs::create_dir(hung).unwrap();
            let text = text.replacen("[agent]\n", "[agent]\nsandbox = \"off\"\n", 1);
            text.replacen("[sink.token]\n", "[sink.token]\nsession = \"web\"\n", 1)
                + "[session.other]\nmount = \"azure\"\n[session.other.cloud]\nrole = \"web\"\n"
                + &format!("resource = \"{RESOURCE}\"\n")
                + "[sink.hung]\nsession = \"other\"\npath = \"FOLDER/hung/token\"\nmode = \"0640\"\n"
        });
        let (token, logins) = (agent.sink("token"), || world.secrets.faults().counts().get(Operation::Login));
        assert_eq!(logins(), 2);
        let Some(mut hanging) = HangingFolder::new(&agent.path("hung")) else {
            return not_run("permission events of fanotify need root");
        };
        agent.edit(|text| {
            let (rest, sink) = text.split_once("[sink.hung]").unwrap();
            format!("{rest}[sink.hung]{}", sink.replace("0640", "0600"))
        });
        agent.reload("ok");
        hanging.wait_until_somebody_waits();

        // Both sessions change, the sink is removed, and there is another one.
        agent.edit(|text| {
            let rest = text.split("[sink.hung]").next().unwrap();
            let text = rest.replace("kind = \"vault\"\n", "kind = \"vault\"\nresponse_timeout = \"11s\"\n");
            text + "[sink.more]\nsession = \"web\"\npath = \"FOLDER/more\"\n"
        });
        agent.reload("ok");
        eventually(LIMIT, || match (agent.sink("token"), agent.sink("more")) {
            (new, more) if new != token && new == more => Ok(()),
            _ => Err(agent.binary.output()),
        });
        agent.logs("event=\"sink.release_delayed\" sink=\"hung\" session=\"other\"");
        eventually(LIMIT, || if logins() == 4 { Ok(()) } else { Err(agent.binary.output()) });
    });
}
