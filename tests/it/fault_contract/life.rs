//! Signals, reloads, descriptors, callers, and the child process.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::case::{Case, Setup, case, now, token};
use super::record::Invariant;
use crate::harness::binary::{eventually, run, wait_until_token_saved};
use crate::harness::chaos::Fault;

fn long() -> Setup<'static> {
    Setup { role: Role::default(), ..Setup::default() }
}

fn served(case: &Case) -> String {
    let (status, body) = case.ask("/agent/v1/token").unwrap();
    token(status, &body).unwrap_or_else(|| panic!("{status}: {body}"))
}

/// A caller on a separate connection, whose response is not read yet.
fn caller(socket: &Path, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
    write!(stream, "GET {path} HTTP/1.1\r\n{head}").unwrap();
    stream
}

fn response(mut stream: UnixStream) -> (u16, String) {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body.to_owned())
}

#[test]
fn f33_a_killed_agent_serves_its_token_again_without_a_login() {
    case("F33", |case| {
        case.ready(&long());
        let first = served(case);
        wait_until_token_saved(&case.path("web.state"));
        case.inject(|case| {
            case.expect(|expected| (expected.up, expected.serves) = (false, false));
            case.agent().signal(Signal::KILL);
            case.agent = None;
        });
        let begun = now();
        case.start();
        eventually(Duration::from_secs(30), || match case.ask("/agent/v1/token")? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}: {}", case.output())),
        });
        let took = begun.elapsed();
        case.took(Invariant::Recovery, "served_again_s", took, Duration::from_secs(2));
        case.clear(|_| ());
        case.until_ready();
        case.expect(|expected| expected.serves = true);
        assert_eq!(case.recovers(Duration::from_secs(2)), first);
        assert_eq!(case.count(Operation::Login), 1);
    });
}

#[test]
fn f34_an_invalid_configuration_is_refused_with_its_position_and_the_old_one_stays_in_use() {
    case("F34", |case| {
        case.ready(&long());
        let first = served(case);
        let config = case.path("keyward.toml");
        let good = std::fs::read_to_string(&config).unwrap();
        let failed = "keyward_config_reloads_total{outcome=\"failed\"}";
        let before = case.metric(failed);
        case.inject(|case| {
            case.put("keyward.toml", &good.replace("mode = \"0640\"", "mood = \"0640\""));
            case.agent().signal(Signal::HUP);
        });
        case.shows("noticed_s", Duration::from_secs(2), |case| {
            let found = case.metric(failed);
            if found == before + 1 { Ok(()) } else { Err(format!("{found}: {}", case.output())) }
        });
        let line = good.lines().position(|line| line.starts_with("mode")).unwrap() + 1;
        case.logs(&format!("keyward.toml:{line}:1: "));
        let (code, _, error) = run(&["check", "--config", &config.display().to_string()], &[]);
        assert_eq!(code, 3, "{error}");
        case.clear(|case| {
            case.put("keyward.toml", &good);
            case.agent().signal(Signal::HUP);
        });
        case.logs("config.reload.ok");
        assert_eq!(case.recovers(Duration::from_secs(2)), first);
        assert_eq!(case.count(Operation::Login), 1);
    });
}

#[test]
fn f35_a_storm_of_reloads_fails_no_call_and_causes_no_login() {
    case("F35", |case| {
        case.ready(&long());
        let first = served(case);
        let reloads = "keyward_config_reloads_total{outcome=\"ok\"}";
        let before = case.metric(reloads);
        case.inject(|case| {
            for _ in 0..300 {
                case.agent().signal(Signal::HUP);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        case.clear(|_| ());
        let storm = case.metric(reloads) - before;
        case.record.observe("signals", 300);
        case.record.observe("reloads", storm);
        assert!((1..=300).contains(&storm), "{storm}");
        // Each reload is a line, and reads the configuration.
        case.lines = 320;
        case.cpu = 100;
        assert_eq!(case.recovers(Duration::from_secs(2)), first);
        assert_eq!(case.count(Operation::Login), 1);
    });
}

#[test]
fn f36_a_stop_answers_callers_who_wait_and_removes_the_socket() {
    case("F36", |case| {
        case.ready(&long());
        let (status, body) = case.ask("/agent/v1/token").unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let path = format!("/agent/v1/token?wait=1m&after={}", body["generation"].as_str().unwrap_or_default());
        assert_eq!(status, 200);
        let socket = case.path("api.sock");
        case.inject(Case::figures);
        let callers: Vec<_> = (0..50).map(|_| caller(&socket, &path)).collect();
        eventually(Duration::from_secs(10), || {
            let open = case.metric("keyward_local_connections{listener=\"local\"}");
            if open >= 50 { Ok(()) } else { Err(format!("{open} connections")) }
        });
        case.expect(|expected| expected.up = false);
        case.agent().signal(Signal::TERM);
        let begun = now();
        let answered = callers.into_iter().map(response).filter(|(status, _)| *status == 200).count();
        let status = case.agent.as_mut().unwrap().wait(Duration::from_secs(30));
        let took = begun.elapsed();
        case.took(Invariant::Recovery, "stopped_s", took, Duration::from_secs(10));
        case.record.observe("callers_answered", answered);
        assert_eq!((answered, status.code()), (50, Some(0)), "{}", case.output());
        assert!(!socket.exists());
        case.agent = None;
    });
}

#[test]
fn f39_an_agent_without_descriptors_neither_spins_nor_floods_its_log() {
    case("F39", |case| {
        case.ready(&long());
        let socket = case.path("api.sock");
        let (_, body) = case.ask("/agent/v1/token").unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let path = format!("/agent/v1/token?wait=1m&after={}", body["generation"].as_str().unwrap());
        let pid = Pid::from_raw(case.agent().id().cast_signed()).unwrap();
        let limit = |files| prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(files), maximum: Some(20000) });
        case.expect(|expected| (expected.up, expected.serves) = (false, false));
        let mut open = Vec::new();
        case.inject(|_| {
            limit(64).unwrap();
            open.extend((0..120).map(|_| caller(&socket, &path)));
        });
        case.logs("listener.accept.failed");
        std::thread::sleep(Duration::from_secs(6));
        let begun = now();
        case.clear(|_| {
            drop(open);
            limit(20000).unwrap();
        });
        eventually(Duration::from_secs(30), || match case.ask("/livez")? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let took = begun.elapsed();
        case.took(Invariant::Recovery, "answers_again_s", took, Duration::from_secs(2));
        case.logs("listener.recovered");
        case.expect(|expected| (expected.up, expected.serves) = (true, true));
        case.recovers(Duration::from_secs(2));
    });
}

#[test]
fn f41_a_thousand_callers_at_the_end_of_a_token_cost_one_login() {
    case("F41", |case| {
        case.ready(&Setup::default());
        case.inject(|case| case.set(Fault::Refuse));
        eventually(Duration::from_secs(40), || match case.ask("/agent/v1/token")? {
            (503, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        // The allocator keeps the memory of a thousand connections for a while.
        (case.cpu, case.memory) = (30, 14 << 10);
        let socket = case.path("api.sock");
        let callers: Vec<_> = (0..1000).map(|_| caller(&socket, "/agent/v1/token?wait=1m")).collect();
        let logins = case.count(Operation::Login);
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(10));
        let begun = now();
        let responses: Vec<u16> = callers.into_iter().map(|caller| response(caller).0).collect();
        case.record.observe_time("all_answered_s", begun.elapsed());
        let count = |expected: u16| responses.iter().filter(|status| **status == expected).count();
        case.record.observe("answered_200", count(200));
        case.record.observe("answered_429", count(429));
        // Half of a listener's connections may wait; later callers are told to retry.
        assert_eq!(count(200) + count(429), 1000, "{responses:?}");
        assert!(count(200) >= 100, "{responses:?}");
        let made = case.count(Operation::Login) - logins;
        case.record.check(Invariant::SingleFlight, (made != 1).then(|| format!("{made} logins for all callers")));
    });
}
