//! Requests of local callers, and files of certificates.

use std::net::SocketAddr;

use http::Request;
use keyward::agent::api_proxy::fuzz::read_request;
use keyward::agent::systemd_credentials::fuzz::ask;
use keyward::gateway::proxy::fuzz::is_forwarded;
use keyward::http::guard::{self, AccessMode};
use keyward::http::tls;

/// Key of a listener.
const KEY: &str = "0123456789abcdef";

/// Reads bytes as the head of a request, and asks the guards of a listener for everyone, of one with a key, and of one for probes.
pub(crate) fn guard(bytes: &[u8]) {
    let Some(request) = request(bytes) else { return };
    let headers = request.headers();
    let address = SocketAddr::from(([127, 0, 0, 1], 8200));
    let by_anyone = guard::fuzz::check(AccessMode::AnyLocalUser, address, &request);
    let by_key = guard::fuzz::check(AccessMode::Key(KEY.into()), address, &request);
    let by_probe = guard::fuzz::check_probe(address, &request);
    for rejection in [&by_anyone, &by_key, &by_probe].into_iter().filter_map(|outcome| outcome.as_ref().err()) {
        let (status, words) = rejection;
        assert!((400..500).contains(status) || *status == 505, "{status}");
        super::assert_one_line(words);
    }
    if by_key.is_ok() {
        assert!(by_anyone.is_ok(), "a key lets in more than a listener without one");
        let values = headers.values().map(http::HeaderValue::as_bytes);
        assert!(values.into_iter().any(|value| value.ends_with(KEY.as_bytes())), "no key is let in");
    }
    let names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    if by_probe.is_ok() {
        let of_browsers =
            |name: &str| ["origin", "referer", "cookie"].contains(&name) || name.starts_with("sec-fetch-");
        assert!(!names.iter().copied().any(of_browsers), "a browser is let in");
    }
    if by_anyone.is_err() {
        return;
    }
    for name in names {
        let of_browsers = ["origin", "referer", "cookie", "forwarded", "via"].contains(&name)
            || ["sec-fetch-", "x-forwarded-", "proxy-"].iter().any(|start| name.starts_with(start));
        assert!(!of_browsers, "{name} is let in");
    }
    let count = |name: &str| headers.get_all(name).iter().count();
    assert_eq!((count("host"), count("x-vault-request")), (1, 1), "a header that decides is repeated");
    assert!(count("content-length") + count("transfer-encoding") <= 1, "two framings are let in");
    let host = headers["host"].to_str().expect("a readable host").to_ascii_lowercase();
    let name = host.strip_suffix(":8200").unwrap_or(&host);
    assert!(["127.0.0.1", "localhost", "[::1]"].contains(&name), "the host {host} is let in");
}

fn request(bytes: &[u8]) -> Option<Request<()>> {
    let mut headers = [httparse::EMPTY_HEADER; 96];
    let mut head = httparse::Request::new(&mut headers);
    head.parse(bytes).ok()?;
    let mut request = Request::builder().method(head.method?).uri(head.path?);
    for header in &*head.headers {
        request = request.header(header.name, header.value);
    }
    request.body(()).ok()
}

/// Reads bytes as method, path and query of a request, separated by spaces.
pub(crate) fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
    let Ok(target) = target.parse::<http::uri::PathAndQuery>() else { return };
    let (path, query) = (target.path(), target.query());
    let served = is_forwarded(path);
    assert!(!served || path.starts_with("/api/"), "the gateway forwards {path}");
    assert!(!served || !climbs(path), "the gateway forwards {path}");
    let Ok(method) = http::Method::from_bytes(method.as_bytes()) else { return };
    let Some(read) = read_request(&method, path, query) else { return };
    assert!(!climbs(path), "the API proxy forwards {path}");
    // As a client of the WHATWG's rules reads it, which resolves dot segments.
    let url = url::Url::parse(&format!("http://server{target}")).expect("a path that is no URL");
    let sent = url.path().strip_prefix("/v1/").expect("a path that leads elsewhere");
    let sent = percent_encoding::percent_decode_str(sent).decode_utf8().expect("a path that is not UTF-8");
    assert_eq!(read.path, sent.strip_suffix('/').unwrap_or(&sent), "another path for the rules than for the server");
    let is_true = |value: &str| matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    let asks = url.query_pairs().any(|(name, value)| (name == "list" || name == "scan") && is_true(&value));
    let lists = matches!(method.as_str(), "LIST" | "SCAN") || (method == http::Method::GET && asks);
    assert_eq!(read.is_list, lists, "another operation for the rules than for the server");
    assert!(!read.is_login || read.path.contains("login"), "{} is a login", read.path);
    // The spelling does not matter: parameters that are encoded again are read the same.
    let plain = percent_encoding::utf8_percent_encode(&read.path, percent_encoding::NON_ALPHANUMERIC).to_string();
    let again = read_request(&method, &format!("/v1/{}", plain.replace("%2F", "/")), query);
    assert_eq!(again.as_ref(), Some(&read), "another spelling is another request");
}

/// Returns true if a segment of the path is `.` or `..` in any encoding.
fn climbs(path: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
    let decoded = percent_encoding::percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
    decoded.split(['/', '\\']).any(|segment| segment == "." || segment == "..")
}

/// Reads the first byte as user and group of a peer (four bits each), and the rest as its socket's name.
pub(crate) fn credential_name(bytes: &[u8]) {
    let Some((ids, name)) = bytes.split_first() else { return };
    let ids = (u32::from(ids >> 4), u32::from(ids & 15));
    for (unit, id) in [("foobar.service", "credx"), ("worker@*.service", "tls.key")] {
        let Some((found, credential)) = ask(ids, name, unit, id) else { continue };
        assert_eq!(ids, (0, 0), "somebody else than root is served");
        assert_eq!(credential, id, "another credential than the one that is granted");
        let (prefix, suffix) = unit.split_once('*').unwrap_or((unit, ""));
        assert!(found.starts_with(prefix) && found.ends_with(suffix), "another unit than the one that is granted");
        // As systemd writes it, and no byte more.
        let tail = format!("/unit/{found}/{credential}");
        let random = name.strip_suffix(tail.as_bytes()).expect("a name that is none of systemd's");
        assert!(!random.is_empty() && random.iter().all(u8::is_ascii_alphanumeric), "a name that is none of systemd's");
        assert!(found.len() > prefix.len() + suffix.len() || unit == found, "a template without an instance");
    }
}

/// Reads bytes as certificates, as public keys, and as a certificate with its key.
pub(crate) fn certificates(bytes: &[u8]) {
    match tls::fuzz::count_certificates(bytes) {
        Ok(found) => {
            let begun = bytes.windows(27).filter(|part| part == b"-----BEGIN CERTIFICATE-----").count();
            assert_eq!(found, begun, "a block is left out");
        }
        Err(words) => super::assert_one_line(&words),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_ne!(keyward::acl::service::issuer_keys::fuzz::count_pem_keys(text), Some(0));
    }
    if let Err(words) = keyward::agent::identity::fuzz::certificate_and_key(bytes, "secret") {
        super::assert_one_line(words);
    }
}
