//! A random mix of all faults, from a seed that is printed.

use std::process::Command;
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Role};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::case::{Case, JWT, Setup, case, now};
use super::mixed::Mixed;
use super::names::HERE;
use super::record::{is_full_run, not_run};
use crate::harness::binary::{ask, eventually};
use crate::harness::certificates::{Authority, Presented};
use crate::harness::chaos::Fault;
use crate::harness::dns::{Dns, DnsAnswer};
use crate::harness::rng::TestRng;

/// Length of the mix.
const LENGTH: Duration = Duration::from_mins(1);

/// Most revocations of a mix: the agent looks a token up three times for callers, and then once a minute.
const REVOCATIONS: usize = 3;

/// Limit of the recovery, and after a SIGKILL: a start takes no more logins for callers than the session's own bucket has left, which
/// gets one in two minutes.
const RECOVERY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(130));

fn variable(name: &str) -> Option<String> {
    std::env::vars_os().find(|(key, _)| key == name).and_then(|(_, value)| value.into_string().ok())
}

/// The program and its surroundings.
struct Mix<'a> {
    case: &'a mut Case,
    dns: Dns,
    config: String,
    revocations: usize,
}

impl Mix<'_> {
    fn begin(&mut self, fault: &Mixed) {
        let faults = self.case.secrets().faults().clone();
        let disk = self.case.path("disk");
        match fault {
            Mixed::Network(fault) => self.case.set(*fault),
            Mixed::Dns(response) => {
                self.dns.answer(response.clone());
                // The next call needs a new connection.
                self.case.set(Fault::Refuse);
                self.case.set(Fault::None);
            }
            Mixed::Garbage => faults.garbage(true),
            Mixed::Status(status) => {
                for operation in OPERATIONS {
                    faults.respond_always(operation, Some(CannedResponse::error(*status, "out of order")));
                }
            }
            Mixed::Revoked if self.revocations == REVOCATIONS => {}
            Mixed::Revoked => {
                self.revocations += 1;
                faults.revoke_all();
                let _ = ask(&self.case.path("api.sock"), "POST", "/agent/v1/check");
            }
            Mixed::FullDisk => drop(std::fs::write(disk.join("filler"), vec![0; 1 << 20])),
            Mixed::ReadOnlyDisk => {
                mount(&["--bind", &disk.display().to_string(), &disk.display().to_string()]);
                mount(&["-o", "remount,bind,ro", &disk.display().to_string()]);
            }
            Mixed::Descriptors => {
                self.case.expect(|expected| (expected.up, expected.serves) = (false, false));
                limit_descriptors(self.case, self.case.descriptors() as u64);
            }
            Mixed::Stopped => {
                self.case.expect(|expected| (expected.up, expected.serves) = (false, false));
                self.case.agent().signal(Signal::STOP);
            }
            Mixed::Killed => {
                self.case.expect(|expected| (expected.up, expected.serves) = (false, false));
                self.case.agent = None;
            }
            Mixed::Reloads => {
                for _ in 0..5 {
                    self.case.agent().signal(Signal::HUP);
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Mixed::BrokenConfig => {
                self.case.put("keyward.toml", "[session");
                self.case.agent().signal(Signal::HUP);
            }
            Mixed::EmptyProof => self.case.put("jwt", ""),
        }
    }

    /// Ends it.
    fn end(&mut self, fault: &Mixed) {
        let faults = self.case.secrets().faults().clone();
        let disk = self.case.path("disk");
        match fault {
            Mixed::Network(_) => self.case.set(Fault::None),
            Mixed::Dns(_) => self.dns.answer(DnsAnswer::Addresses(vec![HERE])),
            Mixed::Garbage => faults.garbage(false),
            Mixed::Status(_) => OPERATIONS.into_iter().for_each(|operation| faults.respond_always(operation, None)),
            Mixed::FullDisk => std::fs::remove_file(disk.join("filler")).unwrap(),
            Mixed::ReadOnlyDisk => {
                let status = Command::new("umount").arg("--lazy").arg(&disk).status().unwrap();
                assert!(status.success(), "umount {}", disk.display());
            }
            Mixed::Descriptors => limit_descriptors(self.case, 20_000),
            Mixed::Stopped => self.case.agent().signal(Signal::CONT),
            Mixed::Killed => {
                self.case.start();
                // Nobody else waits for a token, and a start does not shorten the backoff.
                eventually(RECOVERY.1, || match self.case.ask("/agent/v1/token?wait=10s")? {
                    (200, _) => Ok(()),
                    other => Err(format!("{other:?}: {}", self.case.output())),
                });
                self.case.until_ready();
            }
            Mixed::BrokenConfig => {
                self.case.put("keyward.toml", &self.config);
                self.case.agent().signal(Signal::HUP);
            }
            Mixed::EmptyProof => self.case.put("jwt", JWT),
            Mixed::Revoked | Mixed::Reloads => {}
        }
        if matches!(fault, Mixed::Descriptors | Mixed::Stopped | Mixed::Killed) {
            // A call that was under way is answered, or its connection is gone.
            std::thread::sleep(Duration::from_millis(500));
            self.case.expect(|expected| (expected.up, expected.serves) = (true, true));
        }
    }
}

/// Operations that fail when the server does.
const OPERATIONS: [Operation; 3] = [Operation::Login, Operation::Renew, Operation::Lookup];

fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

fn limit_descriptors(case: &Case, max: u64) {
    let limit = Rlimit { current: Some(max), maximum: Some(20_000) };
    prlimit(Pid::from_raw(case.agent().id().cast_signed()), Resource::Nofile, limit).unwrap();
}

/// Starts the program with a server that has a name and a certificate, and a sink on a small disk.
fn start(case: &mut Case) -> Mix<'_> {
    let (authority, disk) = (Authority::new(), case.path("disk"));
    let presented = Presented::new(authority.issue("vault.test", 2090));
    case.put("ca.pem", &authority.pem);
    std::fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "mode=0700,size=64k", "tmpfs", &disk.display().to_string()]);
    case.prepare(&Setup {
        role: Role { max_ttl: Some(Duration::from_secs(25)), ..Setup::default().role },
        tls: Some(presented.server()),
        address: "https://vault.test:8200".to_owned(),
        server: "ca_file = \"FOLDER/ca.pem\"\nresponse_timeout = \"2s\"\nlogin_timeout = \"2s\"",
        sink_folder: "FOLDER/disk",
        ..Setup::default()
    });
    let dns = Dns::start(&case.path(""), DnsAnswer::Addresses(vec![HERE]));
    case.start();
    case.until_ready();
    let config = std::fs::read_to_string(case.path("keyward.toml")).unwrap();
    (case.calls, case.lines, case.cpu) = (200, 250, 20);
    Mix { case, dns, config, revocations: 0 }
}

#[test]
fn a_random_mix_of_faults_breaks_no_promise() {
    let seed_text = variable("KEYWARD_FAULTS_SEED").map(|seed| seed.parse().expect("a number"));
    if seed_text.is_none() && !is_full_run() {
        not_run("MIX", "it takes more than a minute; tests/faults without --fast runs it");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        not_run("MIX", "its DNS server has a port of root's");
        return;
    }
    // Another one in each run.
    let seed: u64 = seed_text.unwrap_or_else(|| u64::from(std::process::id()));
    case("MIX", |case| {
        eprintln!("seed {seed}: tests/faults --seed {seed}");
        case.record.observe("seed", seed);
        let mut mix = start(case);
        let (mut rng, begun) = (TestRng(seed), now());
        let (mut mixed, mut killed) = (Vec::new(), false);
        mix.case.inject(|_| ());
        while begun.elapsed() < LENGTH {
            let fault = Mixed::choose(&mut rng);
            killed |= matches!(fault, Mixed::Killed);
            mixed.push(format!("{:.1} s: {fault:?}", begun.elapsed().as_secs_f32()));
            mix.case.record.observe("mix", mixed.clone());
            mix.begin(&fault);
            std::thread::sleep(Duration::from_millis(500) + rng.milliseconds(4500));
            mix.end(&fault);
            std::thread::sleep(rng.milliseconds(3000));
        }
        case.clear(|_| ());
        case.recovers(if killed { RECOVERY.1 } else { RECOVERY.0 });
    });
}
