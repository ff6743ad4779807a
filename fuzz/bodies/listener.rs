//! Requests of local callers, and files of certificates.

use std::net::SocketAddr;

use http::Request;
use keyward_agent::api_proxy::fuzz::read_request;
use keyward_agent::systemd_credentials::fuzz::decide_request;
use keyward_gateway::proxy::fuzz::is_forwarded;
use keyward_http::guard::{self, AccessMode};
use keyward_http::tls;

/// Key of a listener.
const KEY: &str = "0123456789abcdef";

/// Parses bytes as the head of a request, and checks it with three guards: of a listener for any local user, with a key, and for probes.
pub(crate) fn guard(bytes: &[u8]) {
    let Some(request) = parse_request(bytes) else { return };
    let headers = request.headers();
    let address = SocketAddr::from(([127, 0, 0, 1], 8200));
    let open_check = guard::fuzz::check(AccessMode::AnyLocalUser, address, &request);
    let key_check = guard::fuzz::check(AccessMode::Key(KEY.into()), address, &request);
    let probe_check = guard::fuzz::check_probe(address, &request);
    for rejection in [&open_check, &key_check, &probe_check].into_iter().filter_map(|outcome| outcome.as_ref().err()) {
        let (status, message) = rejection;
        assert!((400..500).contains(status) || *status == 505, "{status}");
        super::assert_one_line(message);
    }
    if key_check.is_ok() {
        assert!(open_check.is_ok(), "a listener with a key admits more than one without");
        let values = headers.values().map(http::HeaderValue::as_bytes);
        assert!(
            values.into_iter().any(|value| value.ends_with(KEY.as_bytes())),
            "a request without the key is admitted"
        );
    }
    let names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    if probe_check.is_ok() {
        let is_browser_header =
            |name: &str| ["origin", "referer", "cookie"].contains(&name) || name.starts_with("sec-fetch-");
        assert!(!names.iter().copied().any(is_browser_header), "a browser is admitted");
    }
    if open_check.is_err() {
        return;
    }
    for name in names {
        let is_foreign = ["origin", "referer", "cookie", "forwarded", "via"].contains(&name)
            || ["sec-fetch-", "x-forwarded-", "proxy-"].iter().any(|start| name.starts_with(start));
        assert!(!is_foreign, "a request with {name} is admitted");
    }
    let count = |name: &str| headers.get_all(name).iter().count();
    assert_eq!((count("host"), count("x-vault-request")), (1, 1), "a header that the guard checks is repeated");
    assert!(count("content-length") + count("transfer-encoding") <= 1, "two framings are admitted");
    let host = headers["host"].to_str().expect("a readable host").to_ascii_lowercase();
    let name = host.strip_suffix(":8200").unwrap_or(&host);
    assert!(["127.0.0.1", "localhost", "[::1]"].contains(&name), "the host {host} is admitted");
}

fn parse_request(bytes: &[u8]) -> Option<Request<()>> {
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
    let by_gateway = is_forwarded(path);
    assert!(!by_gateway || path.starts_with("/api/"), "the gateway forwards {path}");
    assert!(!by_gateway || !has_dot_segment(path), "the gateway forwards {path}");
    let Ok(method) = http::Method::from_bytes(method.as_bytes()) else { return };
    let Some(read) = read_request(&method, path, query) else { return };
    assert!(!has_dot_segment(path), "the API proxy forwards {path}");
    // A client by the WHATWG URL standard resolves dot segments.
    let url = url::Url::parse(&format!("http://server{target}")).expect("a path that is no URL");
    let sent = url.path().strip_prefix("/v1/").expect("a path outside of /v1/");
    let sent = percent_encoding::percent_decode_str(sent).decode_utf8().expect("a path that is not UTF-8");
    assert_eq!(
        read.path,
        sent.strip_suffix('/').unwrap_or(&sent),
        "the path of the rules differs from that of the server"
    );
    let is_true = |value: &str| matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    let has_list_query = url.query_pairs().any(|(name, value)| (name == "list" || name == "scan") && is_true(&value));
    let lists = matches!(method.as_str(), "LIST" | "SCAN") || (method == http::Method::GET && has_list_query);
    assert_eq!(read.is_list, lists, "the operation of the rules differs from that of the server");
    let login_names = ["login", "oidc", "auth", "mfa/validate"];
    assert!(!read.is_login || login_names.iter().any(|name| read.path.contains(name)), "{} is a login", read.path);
    // The spelling of the path does not matter: with other percent-encoding it is the same request.
    let encoded = percent_encoding::utf8_percent_encode(&read.path, percent_encoding::NON_ALPHANUMERIC).to_string();
    let again = read_request(&method, &format!("/v1/{}", encoded.replace("%2F", "/")), query);
    assert_eq!(again.as_ref(), Some(&read), "another spelling gives another request");
}

/// Returns true if a segment of the path is `.` or `..` in any encoding.
fn has_dot_segment(path: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
    let decoded = percent_encoding::percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
    decoded.split(['/', '\\']).any(|segment| segment == "." || segment == "..")
}

/// Reads the first byte as user and group of a peer (four bits each), and the rest as the name of its socket.
pub(crate) fn credential_name(bytes: &[u8]) {
    let Some((ids, name)) = bytes.split_first() else { return };
    let ids = (u32::from(ids >> 4), u32::from(ids & 15));
    for (unit, id) in [("foobar.service", "credx"), ("worker@*.service", "tls.key")] {
        let Some((peer_unit, credential)) = decide_request(ids, name, unit, id) else { continue };
        assert_eq!(ids, (0, 0), "another user than root is served");
        assert_eq!(credential, id, "a credential that is not granted");
        let (prefix, suffix) = unit.split_once('*').unwrap_or((unit, ""));
        assert!(peer_unit.starts_with(prefix) && peer_unit.ends_with(suffix), "a unit that is not granted");
        // Exactly the form that systemd uses.
        let tail = format!("/unit/{peer_unit}/{credential}");
        let random = name.strip_suffix(tail.as_bytes()).expect("a name that systemd does not use");
        assert!(!random.is_empty() && random.iter().all(u8::is_ascii_alphanumeric), "a name that systemd does not use");
        assert!(peer_unit.len() > prefix.len() + suffix.len() || unit == peer_unit, "a template without an instance");
    }
}

/// Reads bytes as certificates, as public keys, and as a certificate with its key.
pub(crate) fn certificates(bytes: &[u8]) {
    match tls::fuzz::count_certificates(bytes) {
        Ok(count) => {
            let markers = bytes.windows(27).filter(|part| part == b"-----BEGIN CERTIFICATE-----").count();
            assert_eq!(count, markers, "a certificate is skipped");
        }
        Err(message) => super::assert_one_line(&message),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_ne!(keyward_acl::service::issuer_keys::fuzz::count_pem_keys(text), Some(0));
    }
    if let Err(message) = keyward_agent::identity::fuzz::certificate_and_key(bytes, "secret") {
        super::assert_one_line(message);
    }
}
