use std::collections::BTreeSet;

use super::*;
use crate::guard::GuardOptions;

const OWN: u32 = 500;
const KEY: &str = "the-key-of-this-listener";

fn guard(admit: AccessMode, address: Option<&str>) -> Guard {
    let address = address.map(|address| address.parse().unwrap());
    let allowed_hosts = BTreeSet::from(["Agent.Internal".to_owned()]);
    Guard { own_uid: OWN, ..Guard::new(GuardOptions { allowed_hosts, admit }, address, None) }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

const fn unix(uid: u32, in_group: bool) -> Peer {
    Peer::Unix { uid, gid: 100, pid: 7, in_group }
}

fn tcp(address: &str) -> Peer {
    Peer::Tcp { address: address.parse().unwrap(), local: ([127, 0, 0, 1], 8200).into(), owner: None }
}

fn outcome(guard: &Guard, peer: Peer, request: &Request<()>) -> Result<(), (u16, &'static str)> {
    guard.decide(&peer, request).map(drop).map_err(|refusal| (refusal.status.as_u16(), refusal.reason))
}

#[test]
fn the_host_is_one_of_the_listeners_names() {
    let check = |address: Option<&str>, host: &[&str], expected| {
        let mut headers: Vec<_> = host.iter().map(|host| ("host", *host)).collect();
        headers.push(("x-vault-request", "true"));
        let found =
            outcome(&guard(AccessMode::AnyLocalUser, address), tcp("127.0.0.1:9"), &request("GET", "/", &headers));
        assert_eq!(found, expected, "{host:?} at {address:?}");
    };
    let good = Ok(());
    let elsewhere = Err((421, "host"));
    let bad = Err((400, "host"));
    let at = Some("127.0.0.1:8200");
    for host in [
        "127.0.0.1:8200",
        "127.0.0.1",
        "localhost",
        "LOCALHOST:8200",
        "[::1]:8200",
        "agent.internal",
        "agent.internal:8200",
    ] {
        check(at, &[host], good);
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.",
        "localhost:8201",
        "localhost:",
        "localhost:8200:8200",
        "localhost:+8200",
        "user@localhost",
        "0.0.0.0:8200",
        "127.0.0.2:8200",
        "[::1",
        "::1",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "",
        "localhost evil",
    ] {
        check(at, &[host], elsewhere);
    }
    check(at, &[], bad);
    check(at, &["localhost", "localhost"], bad);
    check(at, &["localhost", "evil.example"], bad);
    check(Some("127.0.0.2:80"), &["127.0.0.2"], good);
    check(Some("[::1]:8200"), &["[::1]:8200"], good);
    check(None, &["localhost:1234"], good);
    check(None, &["127.0.0.1"], elsewhere);
}

#[test]
fn an_absolute_target_names_the_same_host() {
    let check = |target: &str, host: &str, expected| {
        let request = request("GET", target, &[("host", host), ("x-vault-request", "true")]);
        let found = outcome(&guard(AccessMode::AnyLocalUser, Some("127.0.0.1:8200")), tcp("127.0.0.1:9"), &request);
        assert_eq!(found, expected, "{target}");
    };
    check("http://localhost:8200/agent/v1/token", "localhost:8200", Ok(()));
    check("http://evil.example/agent/v1/token", "localhost:8200", Err((421, "host")));
    check("http://localhost/agent/v1/token", "localhost:8200", Err((421, "host")));
    check("http://user@localhost:8200/agent/v1/token", "localhost:8200", Err((421, "host")));
}

#[test]
fn headers_of_browsers_and_proxies_are_rejected_even_if_empty() {
    let names = |status: u16, reason: &'static str, names: &[&'static str]| {
        for name in names {
            for value in ["x", ""] {
                let headers = [("host", "localhost"), ("x-vault-request", "true"), (*name, value)];
                let found =
                    outcome(&guard(AccessMode::AnyLocalUser, None), unix(OWN, false), &request("GET", "/", &headers));
                assert_eq!(found, Err((status, reason)), "{name}: {value:?}");
            }
        }
    };
    names(
        403,
        "browser",
        &[
            "origin",
            "referer",
            "cookie",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-dest",
            "access-control-request-method",
            "access-control-request-private-network",
        ],
    );
    names(
        400,
        "forwarded",
        &[
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-real-ip",
            "x-client-ip",
            "cf-connecting-ip",
            "true-client-ip",
            "x-envoy-external-address",
            "proxy-connection",
            "proxy-authorization",
        ],
    );
    names(400, "upgrade", &["upgrade"]);
}

#[test]
fn the_request_header_is_there_once_and_true() {
    let check = |values: &[&str], expected| {
        let mut headers: Vec<_> = values.iter().map(|value| ("x-vault-request", *value)).collect();
        headers.push(("host", "localhost"));
        let found = outcome(&guard(AccessMode::AnyLocalUser, None), unix(OWN, false), &request("GET", "/", &headers));
        assert_eq!(found, expected, "{values:?}");
    };
    check(&["true"], Ok(()));
    check(&[], Err((412, "request_header")));
    check(&["TRUE"], Err((412, "request_header")));
    check(&["true, true"], Err((412, "request_header")));
    check(&["true", "true"], Err((400, "request_header")));
}

#[test]
fn callers_are_admitted_by_user_group_or_key() {
    let headers = [("host", "localhost"), ("x-vault-request", "true")];
    let by_peer = |admit, peer, expected| {
        let found = outcome(&guard(admit, None), peer, &request("GET", "/", &headers));
        assert_eq!(found, expected, "{peer:?}");
    };
    by_peer(AccessMode::SocketPeers, unix(OWN, false), Ok(()));
    by_peer(AccessMode::SocketPeers, unix(0, false), Ok(()));
    by_peer(AccessMode::SocketPeers, unix(1000, true), Ok(()));
    by_peer(AccessMode::SocketPeers, unix(1000, false), Err((403, "peer")));
    by_peer(AccessMode::SocketPeers, tcp("127.0.0.1:9"), Err((403, "peer")));
    by_peer(AccessMode::AnyLocalUser, unix(1000, false), Ok(()));
    by_peer(AccessMode::AnyLocalUser, tcp("[::1]:9"), Ok(()));
    by_peer(AccessMode::AnyLocalUser, tcp("192.0.2.1:9"), Err((403, "peer")));

    let by_key = |key: &[(&'static str, &str)], expected| {
        let guard = guard(AccessMode::Key(KEY.into()), Some("127.0.0.1:8200"));
        let headers = [&headers[..], key].concat();
        assert_eq!(outcome(&guard, tcp("127.0.0.1:9"), &request("GET", "/", &headers)), expected, "{key:?}");
    };
    by_key(&[("x-vault-token", KEY)], Ok(()));
    by_key(&[("authorization", &format!("Bearer {KEY}"))], Ok(()));
    by_key(&[("authorization", &format!("bearer {KEY}"))], Ok(()));
    by_key(&[], Err((401, "key")));
    by_key(&[("authorization", &format!("Basic {KEY}"))], Err((401, "key")));
    by_key(&[("x-vault-token", "the-key-of-this-listeneR")], Err((403, "key")));
    by_key(&[("x-vault-token", "")], Err((403, "key")));
    by_key(&[("x-vault-token", &KEY[1..])], Err((403, "key")));
    by_key(&[("x-vault-token", KEY), ("x-vault-token", KEY)], Err((400, "key")));
    by_key(&[("x-vault-token", KEY), ("authorization", &format!("Bearer {KEY}"))], Err((400, "key")));
    let from_afar = guard(AccessMode::Key(KEY.into()), Some("127.0.0.1:8200"));
    let request = request("GET", "/", &[&headers[..], &[("x-vault-token", KEY)]].concat());
    assert_eq!(outcome(&from_afar, tcp("192.0.2.1:9"), &request), Err((403, "peer")));
}

#[test]
fn sizes_and_framing_have_limits() {
    let check = |guard: &Guard, target: &str, more: &[(&str, &str)], expected| {
        let headers = [&[("host", "localhost"), ("x-vault-request", "true")], more].concat();
        assert_eq!(outcome(guard, unix(OWN, false), &request("POST", target, &headers)), expected, "{more:?}");
    };
    let plain = guard(AccessMode::SocketPeers, None);
    check(&plain, &format!("/{}", "a".repeat(4095)), &[], Ok(()));
    check(&plain, &format!("/{}", "a".repeat(4096)), &[], Err((414, "uri")));
    check(&plain, &format!("/?{}", "a".repeat(4095)), &[], Err((414, "uri")));
    check(&plain, "/", &[("x", "y"); 62], Ok(()));
    check(&plain, "/", &[("x", "y"); 63], Err((431, "headers")));
    check(&plain, "/", &[("content-length", "65536")], Ok(()));
    check(&plain, "/", &[("content-length", "65537")], Err((413, "body")));
    check(&plain, "/", &[("content-length", "1x")], Err((400, "framing")));
    check(&plain, "/", &[("transfer-encoding", "chunked")], Err((400, "framing")));
    let streaming = guard(AccessMode::SocketPeers, None).with_bodies(1 << 20);
    check(&streaming, "/", &[("content-length", "1048576")], Ok(()));
    check(&streaming, "/", &[("content-length", "1048577")], Err((413, "body")));
    check(&streaming, "/", &[("transfer-encoding", "chunked")], Ok(()));
    check(&streaming, "/", &[("transfer-encoding", "chunked"), ("content-length", "5")], Err((400, "framing")));
    check(&streaming, "/", &[("transfer-encoding", "gzip, chunked")], Err((400, "framing")));
    check(&streaming, "/", &[("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")], Err((400, "framing")));
    check(&streaming, "/", &[("transfer-encoding", "Chunked")], Ok(()));
}

#[test]
fn methods_and_versions_that_relay_are_refused() {
    let headers = [("host", "localhost"), ("x-vault-request", "true")];
    let any = guard(AccessMode::SocketPeers, None);
    for (method, target) in [("CONNECT", "localhost:80"), ("TRACE", "/")] {
        assert_eq!(outcome(&any, unix(OWN, false), &request(method, target, &headers)), Err((405, "method")));
    }
    let mut old = request("GET", "/", &headers);
    *old.version_mut() = Version::HTTP_10;
    assert_eq!(outcome(&any, unix(OWN, false), &old), Err((505, "version")));
}

#[test]
fn probes_need_no_host_and_come_from_anywhere_but_browsers() {
    let probes = Guard::for_probes(None);
    let far = tcp("192.0.2.1:9");
    let mut old = request("GET", "/livez", &[]);
    *old.version_mut() = Version::HTTP_10;
    assert_eq!(outcome(&probes, far, &old), Ok(()));
    let forwarded = [("host", "10.1.2.3:8200"), ("x-forwarded-for", "10.0.0.1")];
    assert_eq!(outcome(&probes, far, &request("GET", "/metrics", &forwarded)), Ok(()));
    for header in ["origin", "sec-fetch-site", "cookie"] {
        let from_page = request("GET", "/readyz", &[("host", "evil.example"), (header, "x")]);
        assert_eq!(outcome(&probes, far, &from_page), Err((403, "browser")));
    }
}

#[test]
fn a_refusal_repeats_nothing_that_the_caller_sent() {
    let guard = guard(AccessMode::Key(KEY.into()), Some("127.0.0.1:8200"));
    let peer = tcp("127.0.0.1:9");
    for headers in [
        &[("host", "canary")][..],
        &[("host", "localhost"), ("x-vault-request", "canary")],
        &[("host", "localhost"), ("x-vault-request", "true"), ("x-vault-token", "canary")],
        &[("host", "localhost"), ("x-vault-request", "true"), ("content-length", "canary")],
        &[("host", "localhost"), ("origin", "canary")],
    ] {
        let refusal = guard.decide(&peer, &request("GET", "/canary?canary", headers)).unwrap_err();
        let text = format!("{refusal:?}");
        assert!(!text.contains("canary") && !text.contains(KEY), "{text}");
    }
}
