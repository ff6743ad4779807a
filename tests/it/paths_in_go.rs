//! Paths and queries as the API proxy and the gateway parse them, compared with Go's net/http and net/url, which HashiCorp Vault, OpenBao and
//! Consul are built on.

use std::path::Path;

use http::Method;
use http::uri::PathAndQuery;

use crate::fuzz_seeds::bodies::go_paths;
use crate::harness::rng::TestRng;

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
    let mut rng = TestRng(0x6010);
    let generated = (0..count).map(|_| {
        let mut text = STARTS[rng.below(STARTS.len())].to_owned();
        for _ in 0..=rng.below(5) {
            text += PIECES[rng.below(PIECES.len())];
        }
        text + QUERIES[rng.below(QUERIES.len())]
    });
    seeds.chain(generated).filter_map(|text| text.parse().ok()).collect()
}

#[test]
fn a_path_that_is_forwarded_is_the_same_in_go() {
    let (mut proxied, mut lists, mut through_gateway) = (0, 0, 0);
    for target in targets(5000) {
        let forwarded = go_paths::compare(&Method::GET, &target);
        proxied += usize::from(forwarded.by_proxy);
        lists += usize::from(forwarded.as_list);
        through_gateway += usize::from(forwarded.by_gateway);
    }
    assert!(proxied > 100 && lists > 10 && through_gateway > 100, "{proxied}, {lists} lists, {through_gateway}");
}
