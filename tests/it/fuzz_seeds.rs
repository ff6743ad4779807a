//! The fuzz targets on their seeds and on some thousand changed ones, so that they don't rot between two fuzzings.

use std::path::Path;

use crate::harness::rng::TestRng;

#[path = "../../fuzz/bodies/mod.rs"]
pub(crate) mod bodies;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A seed with a few bytes removed, doubled, changed, or copied from another seed.
fn changed(seeds: &[Vec<u8>], rng: &mut TestRng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(3) {
        let from = rng.below(bytes.len());
        let end = (from + 1 + rng.below(12)).min(bytes.len());
        match rng.below(4) {
            0 => drop(bytes.drain(from..end)),
            1 => bytes.extend_from_within(from..end),
            2 if !bytes.is_empty() => bytes[from] = b"\"{}[]=,\\$<:#/\n a0-"[rng.below(18)],
            _ => {
                let other = &seeds[rng.below(seeds.len())];
                let start = rng.below(other.len());
                let piece = other[start..(start + rng.below(40)).min(other.len())].to_vec();
                bytes.splice(from..from, piece);
            }
        }
    }
    bytes
}

fn run(target: &str, times: usize, body: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(seeds.len() > 3, "the seeds of {target} were not found");
    let mut rng = TestRng(0x5eed);
    let many = (0..times).map(|_| changed(&seeds, &mut rng));
    for bytes in seeds.iter().cloned().chain(many) {
        let outcome = std::panic::catch_unwind(|| body(&bytes));
        assert!(outcome.is_ok(), "{target}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn every_fuzz_target_has_seeds_and_a_body_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = entries.map(|entry| stem(entry.unwrap().path())).collect();
        names.sort();
        names
    };
    let targets = names("fuzz/fuzz_targets");
    assert_eq!(targets, names("fuzz/corpus"));
    let (manifest, tests) =
        (std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap(), include_str!("fuzz_seeds.rs"));
    for target in targets {
        assert!(manifest.contains(&format!("fuzz_targets/{target}.rs")), "{target} is not in fuzz/Cargo.toml");
        assert!(tests.contains(&format!("run(\"{target}\", ")), "no test runs {target}");
    }
}

#[test]
fn rules_match_as_documented() {
    run("rules", 5000, bodies::acl::rules);
}

#[test]
fn every_line_of_an_audit_is_verified_or_found() {
    run("audit", 5000, bodies::audit::audit);
}

#[test]
fn snapshots_are_read_as_they_were_written_or_refused_in_one_line() {
    run("snapshot", 5000, bodies::acl::snapshot);
}

#[test]
fn bodies_are_accepted_or_refused_with_one_line() {
    run("json", 5000, bodies::acl::json);
}

#[test]
fn a_selector_and_its_negation_never_agree() {
    run("selector", 5000, bodies::acl::selector);
}

#[test]
fn claims_of_a_token_depend_on_its_second_part_alone() {
    run("jwt", 5000, bodies::acl::jwt);
}

#[test]
fn an_identity_token_is_accepted_only_with_a_signature_of_a_key_in_the_set() {
    run("bearer", 500, bodies::bearer::bearer);
}

#[test]
fn identity_tokens_of_the_seeds_are_accepted_if_they_are_signed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/bearer");
    let outcome = |name: &str| bodies::bearer::is_accepted(&std::fs::read(folder.join(name)).unwrap());
    for name in ["rs256", "rs384_unnamed", "rs512", "ps256", "es256", "es384", "pem"] {
        assert_eq!(outcome(name), Some(true), "{name}");
    }
    let refused = [
        "none",
        "hs256",
        "pem_hs256",
        "other_owner",
        "other_key",
        "other_alg",
        "not_allowed",
        "crit",
        "crit_null",
        "encryption_key",
        "odd_members",
        "odd_alg",
        "padded",
        "twice",
    ];
    for name in refused {
        assert_eq!(outcome(name), Some(false), "{name}");
    }
}

#[test]
fn a_review_is_refused_in_one_line_or_gives_a_pod_a_configuration() {
    run("review", 2000, bodies::injector::review);
}

#[test]
fn a_cached_response_is_served_to_the_same_request_alone() {
    run("cached", 5000, bodies::cached::cached);
}

#[test]
fn requests_of_the_seeds_are_served_from_the_cache() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/cached");
    for (name, hits) in [("callers", 6), ("namespaces", 6), ("leases", 5), ("writes", 5), ("restart", 7)] {
        assert_eq!(bodies::cached::count_hits(&std::fs::read(folder.join(name)).unwrap()), hits, "{name}");
    }
}

#[test]
fn a_request_line_that_is_forwarded_is_the_same_operation_in_go() {
    run("go_paths", 5000, bodies::go_paths::go_paths);
}

#[test]
fn a_response_that_is_accepted_is_the_same_to_hyper() {
    run("response", 5000, bodies::http1::response);
}

#[test]
fn the_guard_lets_no_header_of_a_browser_or_a_relay_in() {
    run("guard", 5000, bodies::listener::guard);
}

#[test]
fn a_socket_name_gives_a_credential_to_root_and_only_as_systemd_writes_it() {
    run("credential_name", 5000, bodies::listener::credential_name);
}

#[test]
fn a_request_that_is_forwarded_is_one_that_the_caller_has_sent() {
    run("requests", 300, bodies::forward::requests);
}

#[test]
fn requests_of_the_seeds_reach_the_server_unless_they_are_doubtful() {
    let seed = |name: &str| {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/requests").join(name)).unwrap()
    };
    for (name, expected) in [("read", 1), ("chunked", 1), ("pipelined", 3), ("short_body", 0), ("two_framings", 0)] {
        assert_eq!(bodies::forward::count_forwarded(&seed(name)), expected, "{name}");
    }
}

#[test]
fn a_path_that_is_forwarded_means_the_same_to_rules_and_server() {
    run("paths", 5000, bodies::listener::paths);
}

#[test]
fn certificates_are_all_read_or_refused_in_one_line() {
    run("certificates", 1000, bodies::listener::certificates);
}

#[test]
fn an_event_is_about_one_secret_or_refused_in_one_line() {
    run("events", 5000, bodies::agent::events);
}

#[test]
fn a_certificate_of_openssh_is_written_as_it_was_read_and_no_changed_one_is_signed() {
    run("ssh", 3000, bodies::agent::ssh);
}

#[test]
fn links_are_rewritten_as_in_the_parsed_document() {
    run("links", 5000, bodies::gateway::links);
}

#[test]
fn a_response_to_a_login_is_accepted_or_refused_without_the_credential() {
    run("login", 5000, bodies::agent::login);
}

#[test]
fn a_response_of_azure_is_accepted_or_refused_without_a_secret() {
    run("azure", 5000, bodies::agent::azure);
}

#[test]
fn a_state_file_never_makes_a_session_wait_for_long() {
    run("state", 5000, bodies::agent::state);
}

#[test]
fn a_template_renders_or_fails_without_a_secret() {
    run("template", 2000, bodies::agent::template);
}

#[test]
fn a_configuration_is_read_or_refused_with_places_in_the_text() {
    run("config", 1000, bodies::configuration::config);
}

#[test]
fn an_object_is_the_same_in_both_forms_of_its_language() {
    run("hcl", 5000, bodies::configuration::hcl);
}

#[test]
fn another_agents_configuration_becomes_toml_with_places_in_the_text() {
    run("migrate", 2000, bodies::configuration::migration);
}

/// Lines of a response's head; some are invalid or ambiguous.
const HEAD_LINES: &[&str] = &[
    "Content-Length: 3",
    "Content-Length: 3, 3",
    "content-length:03",
    "Content-Length: 0x3",
    "Content-Length: +3",
    "Content-Length: 4",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding:Chunked ",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: gzip, chunked",
    "transfer-encoding: identity",
    "Transfer-Encoding: \u{b}chunked",
    "Connection: close",
    "Connection: keep-alive, X-A",
    "X-A: 1",
    "X-B:\t2 ",
    "X-C: \u{e9}",
    "Trailer: X-Sum",
    " folded",
    "X-D : 1",
];

/// Pieces of a body, in chunks or not.
const BODY_PIECES: &[&str] = &[
    "3\r\nabc\r\n",
    "3;name=value\r\nabc\r\n",
    "3 \t;x\r\nabc\r\n",
    "3;a\nb\r\nabc\r\n",
    "00003\r\nabc\r\n",
    " 3\r\nabc\r\n",
    "0x3\r\nabc\r\n",
    "3\r\nab",
    "3\nabc\n",
    "-1\r\n",
    "0\r\n",
    "0;x\r\n",
    "\r\n",
    "\n",
    "X-Sum: 1\r\n",
    "X-Sum: 1\n",
    " folded\r\n",
    "abc",
    "HTTP/1.1 200 OK\r\n",
];

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(2000))]
    #[test]
    fn heads_and_bodies_that_are_accepted_are_the_same_to_hyper(
        start in proptest::sample::select(&["HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 204 \r\nX: 1", "HTTP/1.1 304", "HTTP/1.1 100 \r\n\r\nHTTP/1.1 206 "][..]),
        lines in proptest::collection::vec((proptest::sample::select(HEAD_LINES), proptest::bool::weighted(0.95)), 0..4),
        body in proptest::collection::vec(proptest::sample::select(BODY_PIECES), 0..6),
    ) {
        let end = |crlf: bool| if crlf { "\r\n" } else { "\n" };
        let lines: String = lines.into_iter().map(|(line, crlf)| [line, end(crlf)].concat()).collect();
        bodies::http1::response(format!("{start}\r\n{lines}\r\n{}", body.concat()).as_bytes());
    }
}
