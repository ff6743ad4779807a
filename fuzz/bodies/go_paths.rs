//! Methods, paths and queries as the API proxy and the gateway read them, compared with Go's net/http and net/url, on which HashiCorp
//! Vault, OpenBao and Consul are built. `tests/clients/go-url` parses them in Go, in one process for all inputs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

use http::Method;
use http::uri::PathAndQuery;
use keyward_agent::api_proxy::fuzz::read_request;
use keyward_gateway::proxy::fuzz::{is_forwarded, is_minting};
use parking_lot::Mutex;

/// A request line as Go parses it.
#[derive(Debug)]
struct GoRequest {
    method: Vec<u8>,
    path: Vec<u8>,
    /// The path as Go's router cleans it; the router redirects every other spelling.
    clean: Vec<u8>,
    query: Vec<u8>,
    /// Names and values of the query; `None` if Go rejects it.
    pairs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// The parts of keyward that forward a request line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) by_proxy: bool,
    /// True if the rules of the API proxy treat the request as a list or a scan.
    pub(crate) as_list: bool,
    pub(crate) by_gateway: bool,
}

/// Reads bytes as method, path and query of a request, separated by spaces.
pub(crate) fn go_paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
    let (Ok(method), Ok(target)) = (Method::from_bytes(method.as_bytes()), target.parse()) else { return };
    let _ = compare(&method, &target);
}

/// Asserts that Go parses a forwarded request line as the rules do.
pub(crate) fn compare(method: &Method, target: &PathAndQuery) -> Forwarded {
    let proxied = read_request(method, target.path(), target.query());
    let by_gateway = is_forwarded(target.path());
    let mut forwarded = Forwarded { by_proxy: proxied.is_some(), as_list: false, by_gateway };
    if !forwarded.by_proxy && !by_gateway {
        return forwarded;
    }
    let line = format!("{method} {target}");
    let go = parse_in_go(&line).unwrap_or_else(|| panic!("Go rejects {line}"));
    assert_eq!(go.method, method.as_str().as_bytes(), "{line}: the method differs");
    assert_eq!(go.query, target.query().unwrap_or_default().as_bytes(), "{line}: the query differs");
    if let Some(read) = proxied {
        let path = format!("/v1/{}", read.path);
        assert_eq!(without_trailing_slash(&go.path), path.as_bytes(), "{line}: the path differs");
        assert_eq!(go.clean, path.as_bytes(), "{line}: Go's router redirects it");
        assert_eq!(go.operation().as_deref(), Some(read.operation), "{line}: the operation differs");
        forwarded.as_list = read.is_list;
    }
    if by_gateway {
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(target.path()).collect();
        assert_eq!(go.path, decoded, "{line}: the path differs");
        let prefixes = ["/api/v2/", "/api/registry/", "/api/state-versions/", "/api/meta/ip-ranges"];
        let is_in_api = prefixes.iter().any(|start| go.clean.starts_with(start.trim_end_matches('/').as_bytes()));
        assert!(is_in_api, "{line}: for Go the path is outside of the API");
        let mints = [&go.path, &go.clean].into_iter().any(|path| names_token(path));
        let is_write = ["POST", "PUT", "PATCH"].contains(&method.as_str());
        assert!(!(mints && is_write) || is_minting(method, target.path()), "{line}: for Go it mints a token");
    }
    forwarded
}

/// Returns true if a decoded path names a token of the platform.
fn names_token(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').find(|segment| !segment.is_empty()).unwrap_or_default();
    matches!(name, b"authentication-token" | b"authentication-tokens")
}

fn without_trailing_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

impl GoRequest {
    /// Parses an output line of the helper; `None` if Go rejects the request.
    fn parse(line: &str) -> Option<Self> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes =
            |text: &str| text.as_bytes().chunks(2).map(digits).collect::<Option<Vec<u8>>>().expect("hexadecimal");
        if line == "error" {
            return None;
        }
        let mut parts = line.split(' ');
        let [method, path, clean, query, pairs] = std::array::from_fn(|_| parts.next().expect("five parts"));
        let pairs = (pairs != "error").then(|| {
            let pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
            pairs.map(|(name, value)| (bytes(name), bytes(value))).collect()
        });
        Some(Self { method: bytes(method), path: bytes(path), clean: bytes(clean), query: bytes(query), pairs })
    }

    /// Returns the operation as Vault and OpenBao derive it: a `GET` with `list=true` or `scan=true` is a list or a scan.
    fn operation(&self) -> Option<String> {
        let pairs = self.pairs.as_ref()?;
        let value =
            |name: &[u8]| pairs.iter().find(|(pair_name, _)| pair_name == name).map_or(&b""[..], |(_, value)| value);
        let is_true = |name: &[u8]| matches!(value(name), b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True");
        let method = String::from_utf8(self.method.clone()).ok()?;
        Some(match method.as_str() {
            "GET" if is_true(b"list") => "LIST".to_owned(),
            "GET" if is_true(b"scan") => "SCAN".to_owned(),
            _ => method,
        })
    }
}

/// The running Go helper, with its pipes.
struct Helper {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Child,
}

static HELPER: LazyLock<Mutex<Helper>> = LazyLock::new(|| Mutex::new(Helper::start()));

impl Helper {
    fn start() -> Self {
        let path = find_helper().expect("no target/tools/clients/bin/go-url: tests/run --tools builds it");
        let mut process =
            Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("go-url does not start");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { input, output, _process: process }
    }
}

/// Returns the path of the helper. The package may be that of the tests or that of the fuzz targets: both are in the repository.
fn find_helper() -> Option<PathBuf> {
    let roots = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    roots.map(|root| root.join("target/tools/clients/bin/go-url")).find(|path| path.is_file())
}

/// Parses a request line in Go. It must not contain a line feed.
fn parse_in_go(line: &str) -> Option<GoRequest> {
    let mut helper = HELPER.lock();
    helper.input.write_all(format!("{line}\n").as_bytes()).expect("go-url has ended");
    let mut output = String::new();
    helper.output.read_line(&mut output).expect("go-url has ended");
    GoRequest::parse(output.strip_suffix('\n').expect("go-url has ended"))
}
