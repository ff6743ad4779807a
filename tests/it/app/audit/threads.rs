//! Audit, rules, metrics and sandbox of an API proxy with several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::{FILE, responses, verify, with_audit};
use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, of_threads};
use crate::harness::world::{World, run_in_network_namespace};

const ALLOWED: &str = "/v1/auth/token/lookup-self";
const DENIED: &str = "/v1/sys/raw/x";

/// Waits until the agent has this number of threads for its listeners, and checks that all have the rights of the first thread.
fn check_threads(agent: &Agent, expected: usize) {
    let pid = agent.binary.id();
    eventually(Duration::from_secs(20), || {
        match of_threads(pid, "Name:").iter().filter(|name| *name == "listener").count() {
            count if count == expected => Ok(()),
            count => Err(format!("{count} threads and not {expected}: {}", agent.binary.output())),
        }
    });
    for right in ["NoNewPrivs:", "Seccomp:", "CapEff:"] {
        let rights = of_threads(pid, right);
        assert!(rights.iter().all(|value| *value == rights[0]), "{right} {rights:?}");
    }
}

#[test]
fn requests_on_all_threads_have_rules_records_and_counts_over_reloads() {
    run_in_network_namespace(|| {
        let world = World::start();
        let configure = with_audit(FILE);
        let mut agent = Agent::ready(&world, &[], |text| {
            configure(text).replace("kind = \"api_proxy\"\n", "kind = \"api_proxy\"\nthreads = 3\n")
        });
        check_threads(&agent, 2);
        let stop = Arc::new(AtomicBool::new(false));
        let call = |_| {
            let (proxy, stop) = (agent.path("proxy.sock"), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(ask(&proxy, "GET", ALLOWED).unwrap().0, 200);
                    assert_eq!(ask(&proxy, "GET", DENIED).unwrap().0, 403);
                    rounds += 1;
                }
                rounds
            })
        };
        let callers: Vec<_> = (0..4).map(call).collect();
        for (from, to) in [(3, 1), (1, 2), (2, 4)] {
            agent.edit(|text| text.replace(&format!("threads = {from}"), &format!("threads = {to}")));
            agent.reload("ok");
            check_threads(&agent, to - 1);
        }
        stop.store(true, Ordering::Relaxed);
        let rounds: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        for code in [200, 403] {
            let metric = format!("keyward_local_requests_total{{listener=\"proxy\",code=\"{code}\"}}");
            assert_eq!(agent.metric(&metric), rounds as u64, "{code}");
        }
        agent.binary.signal(Signal::TERM);
        assert!(agent.binary.wait(Duration::from_secs(20)).success());
        for (path, decision) in [(ALLOWED, "granted"), (DENIED, "refused")] {
            let records = responses(&agent, path);
            assert_eq!(records.len(), rounds, "{path}");
            assert!(records.iter().all(|record| record["decision"] == decision), "{path}");
        }
        let (code, output) = verify(&agent, &[]);
        assert!(code == 0 && output.contains("an orderly stop"), "{output}");
    });
}
