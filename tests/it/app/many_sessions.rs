//! Descriptors of a process with many sessions.

use std::fmt::Write as _;
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::world::{RESOURCE, World, run_in_network_namespace};

const SESSIONS: usize = 200;

/// Number of open descriptors of a process whose link begins so.
fn descriptors(process: u32, kind: &str) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let links = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.unwrap().path()).ok());
    links.filter(|link| link.to_str().unwrap().starts_with(kind)).count()
}

#[test]
fn two_hundred_sessions_with_a_sink_each_take_two_descriptors_each() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::start(&world, &[], |text| {
            let mut text = text.replacen("[sink.token]\n", "[sink.token]\nsession = \"web\"\n", 1);
            for at in 1..SESSIONS {
                write!(
                    text,
                    "[session.s{at}]\nmount = \"azure\"\n[session.s{at}.cloud]\nrole = \"web\"\nresource = \"{RESOURCE}\"\n\
                     [sink.s{at}]\nsession = \"s{at}\"\npath = \"FOLDER/{at}\"\n"
                )
                .unwrap();
            }
            text
        });
        let process = agent.binary.id();
        eventually(Duration::from_mins(1), || {
            let written = (1..SESSIONS).filter(|at| agent.path(&at.to_string()).exists()).count() + 1;
            if written == SESSIONS { Ok(()) } else { Err(format!("{written} sinks: {}", agent.binary.output())) }
        });
        // Connections to the servers end with their calls, and the watches of files that a login reads.
        eventually(Duration::from_secs(30), || match descriptors(process, "") {
            few @ ..=432 => Ok(few),
            many => Err(format!("{many} descriptors")),
        });
        assert_eq!(descriptors(process, "anon_inode:[timerfd]"), 1);
        // The outputs, whose descriptor has a copy in the reactor, and the certificate files.
        assert_eq!(descriptors(process, "anon_inode:inotify"), 3);
    });
}
