//! SIGKILL at the system calls that replace a rendered file and keep a copy of the old one.

use std::time::Duration;

use super::case::Case;
use super::kills::{SIGKILL, Tracer, edit_config, is_swept, temporary};
use super::record::Invariant;
use crate::harness::binary::eventually;

/// The calls after which the files differ, as `atomic_file` makes them: link, rename and removal of the copy, then those of the write.
const CALLS: [(&str, u32); 8] = [
    ("linkat", 1),
    ("renameat", 1),
    ("unlinkat", 1),
    ("flock", 1),
    ("fchmod", 1),
    ("fsync", 1),
    ("renameat", 2),
    ("fsync", 2),
];

/// A template of a file that is read each ten seconds.
const TEMPLATE: &str = "[templates]\ninterval = \"10s\"\n[template.page]\ncontents = '{{ file \"FOLDER/words\" }}'\n\
                        read_folders = [\"FOLDER\"]\ndestination = \"FOLDER/disk/page\"\nbackup = true\ndebounce = \"0s\"\n";

/// A text that is long enough to show that half of it is missing.
fn words(number: usize) -> String {
    format!("words {number} ").repeat(200)
}

/// Error unless the page holds this text.
fn holds(case: &Case, text: &str) -> Result<(), String> {
    match std::fs::read_to_string(case.path("disk/page")) {
        Ok(found) if found == text => Ok(()),
        other => Err(format!("{other:?}: {}", case.output())),
    }
}

/// Kills at each call of the write. Returns the number of kills, and of temporary files that were left.
pub(super) fn kill_writes(case: &mut Case, config: &str) -> (usize, usize) {
    let sink = config.find("[sink.token]").unwrap()..config.find("[listener.local]").unwrap();
    let text = format!("{}{}{TEMPLATE}", &config[..sink.start], &config[sink.end..]);
    edit_config(case, |_| text);
    let mut left = 0;
    for (number, (call, nth)) in CALLS.into_iter().enumerate() {
        case.put("words", &words(number));
        case.start();
        case.until_ready();
        // The first write has no copy to keep.
        eventually(Duration::from_secs(20), || holds(case, &words(number)));
        eventually(Duration::from_secs(10), || is_swept(case, "page"));
        case.expect(|expected| (expected.up, expected.serves) = (false, false));
        let tracer = Tracer::attach(case.agent().id(), call, SIGKILL, nth);
        case.put("words", &words(number + 1));
        let status = case.agent.as_mut().unwrap().wait(Duration::from_mins(1));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{call}: {status}");
        drop(tracer);
        case.agent = None;
        let is_whole = |name: &str, older: usize| {
            let found = std::fs::read_to_string(case.path(name)).unwrap_or_default();
            (older..=number + 1).any(|number| found == words(number))
        };
        let copy = number == 0 || is_whole("disk/page.bak", 0);
        let whole = is_whole("disk/page", number) && copy;
        let text = format!("a kill at {call} {nth} leaves a page or a copy that is not whole");
        case.record.check(Invariant::AtomicSinks, (!whole).then_some(text));
        left += temporary(case, "page").iter().filter(|name| *name != ".page.bak").count();
    }
    (CALLS.len(), left)
}
