//! Tokens that the server revokes, and calls through the API proxy.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};

use super::case::{Case, Setup, case, now, token};
use super::record::Invariant;
use crate::harness::binary::{ask, eventually};
use crate::harness::chaos::Fault;

const PROXY: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n";

fn long() -> Role {
    Role::default()
}

fn served(case: &Case) -> String {
    let (status, body) = case.ask("/agent/v1/token").unwrap();
    token(status, &body).unwrap_or_else(|| panic!("{status}: {body}"))
}

#[test]
fn f11_a_revoked_token_is_replaced_by_the_first_call_that_meets_it_and_the_call_succeeds() {
    case("F11", |case| {
        case.ready(&Setup { role: long(), sections: PROXY, ..Setup::default() });
        let first = served(case);
        let call = |case: &Case| ask(&case.path("proxy.sock"), "GET", "/v1/secret/data/example").unwrap();
        assert_eq!(call(case).0, 200);
        case.inject(|case| case.secrets().faults().revoke_all());
        let begun = now();
        let (status, body) = call(case);
        assert_eq!(status, 200, "{body}");
        let took = begun.elapsed();
        case.took(Invariant::Recovery, "call_s", took, Duration::from_secs(2));
        case.clear(|_| ());
        assert_ne!(case.recovers(Duration::from_secs(2)), first);
        assert_eq!(case.count(Operation::Login), 2);
    });
}

#[test]
fn f12_a_token_that_is_revoked_in_silence_is_noticed_by_the_next_check() {
    case("F12", |case| {
        case.ready(&Setup { role: long(), session: "check_interval = \"10s\"", ..Setup::default() });
        let first = served(case);
        // The first check comes 5 to 15 s after the login; the agent cannot know before.
        case.expect(|expected| expected.after_end = Duration::from_secs(16));
        case.inject(|case| case.secrets().faults().revoke_all());
        let begun = now();
        eventually(Duration::from_mins(1), || match case.ask("/agent/v1/token")? {
            (200, body) if token(200, &body).is_some_and(|token| token == first) => Err(case.output()),
            _ => Ok(()),
        });
        let took = begun.elapsed();
        case.took(Invariant::Observable, "noticed_s", took, Duration::from_secs(16));
        case.clear(|_| ());
        case.recovers(Duration::from_secs(5));
        assert_eq!(case.count(Operation::Login), 2);
    });
}

/// One call whose response is read to the end of the connection: its head, the length that it promises, and its body.
fn raw_call(case: &Case) -> (String, usize, usize) {
    let mut stream = UnixStream::connect(case.path("proxy.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let head = "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
    write!(stream, "GET /v1/secret/data/example HTTP/1.1\r\n{head}").unwrap();
    let mut bytes = Vec::new();
    // A response that is broken off ends in an error or early.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    (head.to_owned(), length.unwrap_or(usize::MAX), body.len())
}

#[test]
fn f18_a_response_that_breaks_off_is_never_complete_for_the_caller() {
    case("F18", |case| {
        case.ready(&Setup { role: long(), sections: PROXY, ..Setup::default() });
        let (head, length, body) = raw_call(case);
        assert!(head.starts_with("HTTP/1.1 200") && length == body, "{head}");
        let whole = head.len() + 4 + length;
        case.inject(|_| ());
        let mut broken = 0;
        // The server's head differs from the proxy's by some bytes: the last positions are within the body.
        for fault in [Fault::Finish(0), Fault::Finish(20), Fault::Finish(whole / 2), Fault::Finish(whole - 150)]
            .into_iter()
            .chain([Fault::Reset(0), Fault::Reset(whole / 2), Fault::Reset(whole - 150)])
        {
            case.set(fault);
            let (head, length, body) = raw_call(case);
            let complete = head.starts_with("HTTP/1.1 200") && length == body;
            case.record.check(Invariant::NeverServeDead, complete.then(|| format!("{fault:?}: complete: {head}")));
            broken += 1;
        }
        case.record.observe("responses_broken_off", broken);
        case.clear(|case| case.set(Fault::None));
        let (head, length, body) = raw_call(case);
        assert!(head.starts_with("HTTP/1.1 200") && length == body, "{head}");
        case.recovers(Duration::from_secs(1));
    });
}
