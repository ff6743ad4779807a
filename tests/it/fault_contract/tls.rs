//! Certificates that change, expire, or are for another name; redirects to another host.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};

use super::case::{Case, SERVER, Setup, case};
use super::record::Invariant;
use crate::harness::binary::{ask, eventually};
use crate::harness::certificates::{Authority, Presented};
use crate::harness::chaos::Fault;

const CA: &str = "ca_file = \"FOLDER/ca.pem\"";

fn setup(presented: &Arc<Presented>) -> Setup<'static> {
    let address = format!("https://{SERVER}");
    Setup { role: Role::default(), tls: Some(presented.server()), address, server: CA, ..Setup::default() }
}

/// Has every open connection end, so that the next call begins with a handshake.
fn cut(case: &Case) {
    case.set(Fault::Refuse);
    case.set(Fault::None);
}

fn retry(case: &Case) -> (u16, String) {
    ask(&case.path("api.sock"), "POST", "/agent/v1/retry").unwrap()
}

#[test]
fn f19_another_certificate_of_the_same_ca_is_no_failure() {
    case("F19", |case| {
        let authority = Authority::new();
        let presented = Presented::new(authority.issue("127.0.0.1", 2090));
        case.put("ca.pem", &authority.pem);
        case.ready(&setup(&presented));
        case.inject(|case| {
            presented.swap(authority.issue("127.0.0.1", 2091));
            cut(case);
        });
        case.replace_token();
        case.clear(|_| ());
        case.recovers(Duration::from_secs(2));
        assert!(!case.output().contains("certificate"), "{}", case.output());
    });
}

#[test]
fn f20_a_new_ca_is_refused_until_its_file_is_there_and_then_believed_without_a_restart() {
    case("F20", |case| {
        let (old, new) = (Authority::new(), Authority::new());
        let presented = Presented::new(old.issue("127.0.0.1", 2090));
        case.put("ca.pem", &old.pem);
        case.ready(&setup(&presented));
        case.inject(|case| {
            presented.swap(new.issue("127.0.0.1", 2090));
            cut(case);
            case.secrets().faults().revoke_all();
        });
        let (status, body) = ask(&case.path("api.sock"), "POST", "/agent/v1/check").unwrap();
        assert_eq!(status, 200, "{body}");
        // The token is revoked, but the agent cannot learn it: it does not trust the server.
        case.expect(|expected| expected.after_end = Duration::from_mins(1));
        case.shows("noticed_s", Duration::from_secs(2), |case| {
            let failed = case.metric("keyward_checks_total{session=\"web\",outcome=\"failed\",reason=\"unavailable\"}");
            if failed > 0 && case.output().contains("certificate") { Ok(()) } else { Err(case.output()) }
        });
        std::thread::sleep(Duration::from_secs(3));
        case.clear(|case| case.put("ca.pem", &new.pem));
        case.shows("reloaded_s", Duration::from_secs(2), |case| {
            if case.output().contains("certificate.reloaded") { Ok(()) } else { Err(case.output()) }
        });
        let (status, body) = ask(&case.path("api.sock"), "POST", "/agent/v1/check").unwrap();
        assert_eq!(status, 200, "{body}");
        case.recovers(Duration::from_secs(10));
        assert_eq!(case.count(Operation::Login), 2);
    });
}

#[test]
fn f21_an_expired_certificate_and_one_of_another_name_are_refused_by_reason() {
    case("F21", |case| {
        let authority = Authority::new();
        let presented = Presented::new(authority.issue("127.0.0.1", 2020));
        case.put("ca.pem", &authority.pem);
        case.prepare(&setup(&presented));
        case.inject(|_| ());
        case.start();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.expect(|expected| expected.up = true);
        case.shows("noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("expired") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        presented.swap(authority.issue("other.example.com", 2090));
        let (status, body) = retry(case);
        assert_eq!(status, 503, "{body}");
        case.shows("name_noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("not valid for") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.clear(|_| presented.swap(authority.issue("127.0.0.1", 2090)));
        case.recovers(Duration::from_secs(10));
        let plain = case.network().requests();
        case.record.check(Invariant::NoSecretOutside, (!plain.is_empty()).then(|| format!("in plain text: {plain:?}")));
        case.until_ready();
    });
}

/// A server of another name: it counts its connections.
fn other_host() -> Arc<AtomicU64> {
    let listener = TcpListener::bind("127.0.0.2:9999").unwrap();
    let connections = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    connections
}

/// A server that sends everyone to the other one.
fn redirecting() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.3:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let response = "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.2:9999/v1/auth/jwt/login\r\n\
                          Content-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(response.as_bytes());
        }
    });
    address
}

#[test]
fn f25_a_redirect_is_not_followed_by_a_login_nor_by_a_renewal() {
    case("F25", |case| {
        let (other, redirecting) = (other_host(), redirecting());
        case.prepare(&Setup::default());
        let server = case.secrets().url().strip_prefix("http://").unwrap().parse().unwrap();
        case.network().set_target(redirecting);
        case.inject(|_| ());
        case.start();
        case.logs("token.login.failed");
        case.network().set_target(server);
        cut(case);
        let (status, body) = retry(case);
        assert_eq!(status, 200, "{body}");
        case.network().set_target(redirecting);
        cut(case);
        case.logs("token.renew");
        case.clear(|case| {
            case.network().set_target(server);
            cut(case);
        });
        case.recovers(Duration::from_secs(10));
        let connections = other.load(Ordering::SeqCst);
        let followed = (connections > 0).then(|| format!("{connections} connections to another host"));
        case.record.check(Invariant::NoSecretOutside, followed);
        case.until_ready();
    });
}
