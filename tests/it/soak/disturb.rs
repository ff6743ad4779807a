//! Begins and ends faults.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::fault::Disturbance;
use super::outputs::child;
use super::plan::{Plan, VAULT_SESSIONS, session};
use super::setup::config;
use super::stage::{JWT, Stage};
use crate::harness::binary::ask;
use crate::harness::chaos::Fault;

/// Begins a fault; returns once it is there.
pub(super) fn begin(stage: &mut Stage, fault: Disturbance, plan: &Plan) {
    match fault {
        Disturbance::Network(fault) => stage.vault_network.set(stage.runtime.handle(), fault),
        Disturbance::Outage => stage.vault_network.set(stage.runtime.handle(), Fault::Refuse),
        Disturbance::Platform(fault) => stage.platform_network.set(stage.runtime.handle(), fault),
        Disturbance::VaultFails => answer(stage, &VAULT, Some(&CannedResponse::error(503, "out of order"))),
        Disturbance::Garbage => {
            let page = CannedResponse::new(200, "<html>sign in</html>");
            answer(stage, &[Operation::Login, Operation::Renew], Some(&page));
        }
        Disturbance::Skew => stage.truth.secrets.faults().skew(3600),
        Disturbance::Revoked => revoke(stage),
        Disturbance::PlatformFails => {
            // Half of those that come meanwhile.
            let count = usize::try_from(plan.fault().as_secs()).unwrap() * 5;
            stage.platform.faults().fail_next(count, 503, None);
        }
        Disturbance::PlatformRotates => rotate(stage),
        Disturbance::FullDisk => {
            let error = std::fs::write(stage.path("disk/filler"), vec![0; 16 << 20]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        }
        Disturbance::Descriptors => limit_descriptors(stage, true),
        Disturbance::Stopped => stage.agent().signal(Signal::STOP),
        Disturbance::Killed => stage.agent = None,
        Disturbance::Reloads => reload_often(stage),
        Disturbance::BrokenConfig => {
            stage.put("keyward.toml", "[server.vault]\nkind = ");
            stage.agent().signal(Signal::HUP);
        }
        Disturbance::StalledLog => {
            stage.log.stall(true);
            // Each makes lines.
            for _ in 0..10 {
                stage.agent().signal(Signal::HUP);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Disturbance::ChildKilled => {
            let id = child(stage.folder()).and_then(Pid::from_raw).unwrap();
            // It may have ended by itself a moment ago.
            let _ = kill_process(id, Signal::KILL);
        }
        Disturbance::EmptyProof => stage.put("disk/jwt", ""),
    }
}

/// Ends it.
pub(super) fn end(stage: &mut Stage, fault: Disturbance) {
    match fault {
        Disturbance::Network(_) | Disturbance::Outage => stage.vault_network.set(stage.runtime.handle(), Fault::None),
        Disturbance::Platform(_) => stage.platform_network.set(stage.runtime.handle(), Fault::None),
        Disturbance::VaultFails => answer(stage, &VAULT, None),
        Disturbance::Garbage => answer(stage, &[Operation::Login, Operation::Renew], None),
        Disturbance::Skew => stage.truth.secrets.faults().skew(0),
        Disturbance::FullDisk => std::fs::remove_file(stage.path("disk/filler")).unwrap(),
        Disturbance::Descriptors => limit_descriptors(stage, false),
        Disturbance::Stopped => stage.agent().signal(Signal::CONT),
        Disturbance::Killed => stage.run(),
        Disturbance::Reloads | Disturbance::BrokenConfig => {
            stage.put("keyward.toml", &config(stage.folder()));
            stage.agent().signal(Signal::HUP);
        }
        Disturbance::StalledLog => stage.log.stall(false),
        Disturbance::EmptyProof => stage.put("disk/jwt", JWT),
        Disturbance::Revoked | Disturbance::ChildKilled | Disturbance::PlatformFails | Disturbance::PlatformRotates => {
        }
    }
}

/// Operations that fail when Vault does.
const VAULT: [Operation; 5] =
    [Operation::Login, Operation::Renew, Operation::Lookup, Operation::Secret, Operation::RenewLease];

fn answer(stage: &Stage, operations: &[Operation], response: Option<&CannedResponse>) {
    for operation in operations {
        stage.truth.secrets.faults().respond_always(*operation, response.cloned());
    }
}

/// Revokes all tokens, and has the agent look at its own.
fn revoke(stage: &Stage) {
    stage.truth.revoke();
    for number in 0..VAULT_SESSIONS {
        let path = format!("/agent/v1/check?session={}", session(number));
        let (status, body) = ask(&stage.path("api.sock"), "POST", &path).unwrap();
        // 503: a caller was quicker, and the token is gone already.
        assert!(matches!(status, 200 | 429 | 503), "{status}: {body}");
    }
    stage.truth.revoked();
}

/// Puts a new platform token into its file, and then revokes the old one.
fn rotate(stage: &mut Stage) {
    let next = stage.platform.faults().mint("next");
    stage.put("platform.next", next.token.expose_secret());
    std::fs::rename(stage.path("platform.next"), stage.path("platform.token")).unwrap();
    assert!(stage.platform.faults().revoke(&stage.platform_token));
    stage.platform_token = next.id;
}

/// Sets the soft limit below the descriptors that are open, or back to the hard one.
fn limit_descriptors(stage: &Stage, few: bool) {
    let process = Pid::from_raw(stage.agent().id().cast_signed());
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let current = if few { Some(64) } else { limit.maximum };
    prlimit(process, Resource::Nofile, Rlimit { current, maximum: limit.maximum }).unwrap();
}

/// Ten reloads at once, and then one with another sink.
fn reload_often(stage: &Stage) {
    for _ in 0..10 {
        stage.agent().signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(20));
    }
    let more = "[sink.more]\nsession = \"s00\"\npath = \"FOLDER/disk/more\"\n";
    let more = more.replace("FOLDER", &stage.folder().display().to_string());
    stage.put("keyward.toml", &format!("{}{more}", config(stage.folder())));
    stage.agent().signal(Signal::HUP);
}
