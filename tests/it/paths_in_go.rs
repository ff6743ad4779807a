//! Paths and queries as the API proxy and the gateway parse them, compared with Go's net/http and net/url, which HashiCorp Vault, OpenBao and
//! Consul are built on.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use http::Method;
use http::uri::PathAndQuery;
use keyward::agent::api_proxy::fuzz::read_request;
use keyward::gateway::proxy::fuzz::is_forwarded;

use crate::acl::third_party_clients::clients;
use crate::harness::chance::Chance;

/// A target as Go reads it.
#[derive(Debug)]
struct InGo {
    path: Vec<u8>,
    /// The path as Go's router cleans it: it redirects every other spelling.
    clean: Vec<u8>,
    query: Vec<u8>,
    /// Names and values of the query; `None` if Go refuses it.
    pairs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl InGo {
    /// Parses a line of `tests/clients/go-url`; `None` if Go refuses the target.
    fn parse(line: &str) -> Option<Self> {
        let bytes = |text: &str| -> Vec<u8> {
            text.as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        if line == "error" {
            return None;
        }
        let mut parts = line.split(' ');
        let [path, clean, query, pairs] = std::array::from_fn(|_| parts.next());
        let pairs = pairs.filter(|pairs| *pairs != "error").map(|pairs| {
            let pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
            pairs.map(|(name, value)| (bytes(name), bytes(value))).collect()
        });
        Some(Self { path: bytes(path?), clean: bytes(clean?), query: bytes(query?), pairs })
    }

    fn is_list(&self) -> Option<bool> {
        let is_true = |value: &[u8]| matches!(value, b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True");
        let pairs = self.pairs.as_ref()?;
        Some(pairs.iter().any(|(name, value)| (name == b"list" || name == b"scan") && is_true(value)))
    }
}

/// Targets of the corpus of the fuzz target `paths`, and generated ones of the pieces that readers of paths differ about.
fn targets(count: usize) -> Vec<PathAndQuery> {
    const STARTS: [&str; 8] =
        ["/v1/", "/v1/", "/api/v2/", "/api/registry/", "/api/state-versions/", "/v1", "//v1/", "/%76%31/"];
    const PIECES: [&str; 40] = [
        "a",
        "secret",
        "data",
        "auth/azure/login",
        "hosted_state",
        "/",
        "/",
        "/",
        "//",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "%252e",
        "...",
        "%2f",
        "%5c",
        "\\",
        "%",
        "%4",
        "%zz",
        "%41",
        "%00",
        "%0a",
        "%20",
        "+",
        "%2b",
        ";",
        "%3b",
        "..;",
        "@",
        ":",
        "a:b",
        "%3f",
        "*",
        "~",
        "%c3%a9",
        "%ff",
        "é",
        "&=",
    ];
    const QUERIES: [&str; 16] = [
        "",
        "",
        "",
        "?",
        "?list=true",
        "?list=1&scan=0",
        "?%6cist=T",
        "?list=%74rue",
        "?a=b;list=true",
        "?a+b=c%20d",
        "?=&&a",
        "?a=%zz",
        "?a=%ff",
        "??a",
        "?list=true?",
        "?scan=True&a=%26",
    ];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/paths");
    let seeds = std::fs::read_dir(corpus).unwrap().map(|seed| std::fs::read(seed.unwrap().path()).unwrap());
    let seeds = seeds.filter_map(|seed| {
        let text = String::from_utf8(seed).ok()?;
        Some(text.split_once(' ').map_or(text.as_str(), |(_, target)| target).to_owned())
    });
    let mut chance = Chance(0x6010);
    let generated = (0..count).map(|_| {
        let mut text = STARTS[chance.below(STARTS.len())].to_owned();
        for _ in 0..=chance.below(5) {
            text += PIECES[chance.below(PIECES.len())];
        }
        text + QUERIES[chance.below(QUERIES.len())]
    });
    seeds.chain(generated).filter_map(|text| text.parse().ok()).collect()
}

fn in_go(targets: &[PathAndQuery]) -> Vec<Option<InGo>> {
    let mut go = Command::new(clients().join("bin/go-url"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tests/clients/install has built it");
    let mut input = go.stdin.take().unwrap();
    let lines = targets.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = go.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let read: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().map(InGo::parse).collect();
    assert_eq!((output.status.success(), read.len()), (true, targets.len()));
    read
}

fn without_trailing_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

#[test]
fn a_path_that_is_forwarded_is_the_same_in_go() {
    let targets = targets(5000);
    let (mut proxied, mut lists, mut through_gateway) = (0, 0, 0);
    for (target, go) in targets.iter().zip(in_go(&targets)) {
        if let Some(read) = read_request(&Method::GET, target.path(), target.query()) {
            let go = go.as_ref().unwrap_or_else(|| panic!("Go refuses {target}"));
            let path = format!("/v1/{}", read.path);
            assert_eq!(without_trailing_slash(&go.path), path.as_bytes(), "{target}: another path");
            assert_eq!(go.clean, path.as_bytes(), "{target}: Go's router redirects it");
            assert_eq!(go.query, target.query().unwrap_or_default().as_bytes(), "{target}: another query");
            assert_eq!(go.is_list(), Some(read.is_list), "{target}: another operation");
            (proxied, lists) = (proxied + 1, lists + usize::from(read.is_list));
        }
        if is_forwarded(target.path()) {
            let go = go.unwrap_or_else(|| panic!("Go refuses {target}"));
            let decoded: Vec<u8> = percent_encoding::percent_decode_str(target.path()).collect();
            assert_eq!(go.path, decoded, "{target}: another path");
            let below = ["/api/v2/", "/api/registry/", "/api/state-versions/", "/api/meta/ip-ranges"];
            let stays = below.iter().any(|start| go.clean.starts_with(start.trim_end_matches('/').as_bytes()));
            assert!(stays, "{target}: Go leaves the API");
            through_gateway += 1;
        }
    }
    assert!(proxied > 100 && lists > 10 && through_gateway > 100, "{proxied}, {lists} lists, {through_gateway}");
}
