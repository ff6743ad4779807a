//! The operation of a request by its method and query, as rules and the server read it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::acl::third_party_clients::clients;
use crate::harness::raw::Raw;
use crate::harness::vault::{Proxied, rules};

async fn status(caller: &mut Raw, method: &str, query: &str) -> u16 {
    let head = "Host: localhost\r\nX-Vault-Request: true";
    caller.send(format!("{method} /v1/secret/web?{query} HTTP/1.1\r\n{head}\r\n\r\n")).await;
    if method == "HEAD" {
        let head = caller.until("\r\n\r\n").await;
        return head.split(' ').nth(1).unwrap().parse().unwrap();
    }
    caller.answer().await.unwrap().status
}

#[tokio::test]
async fn a_list_is_not_let_through_as_a_read_by_a_query_that_go_reads_otherwise() {
    let proxied = Proxied::with(|options, _| options.rules = rules(&["GET secret/*"], &[], &[]));
    for (query, expected) in [
        ("version=1", 200),
        ("list=false", 200),
        ("list=", 200),
        ("list=true", 403),
        ("scan=1", 403),
        ("%6cist=T", 403),
        ("list=%zz&list=true", 400),
        ("list=1;&list=true", 400),
        ("scan=%&scan=true", 400),
        ("a=1;b=2", 400),
        ("a=%4", 400),
        ("list=false&list=true", 400),
        ("list&list=true", 400),
        ("list=true&scan=true", 400),
        ("list=yes", 400),
        ("a=%3b&b=100%25&c=x+y&d", 200),
    ] {
        let mut caller = Raw::tcp(proxied.address).await;
        assert_eq!(status(&mut caller, "GET", query).await, expected, "{query}");
    }
    let requests = proxied.vault.requests();
    assert!(
        requests.iter().all(|request| !request.target.contains("true") && !request.target.contains(';')),
        "{requests:?}"
    );
    let mut caller = Raw::tcp(proxied.address).await;
    assert_eq!(status(&mut caller, "POST", "list=1;&list=true").await, 400, "whatever the method");
}

#[tokio::test]
async fn a_head_request_is_its_own_operation_and_is_denied_like_a_read() {
    let check = async |allow: &[&str], deny: &[&str], query: &str, expected: u16| {
        let proxied = Proxied::with(|options, _| options.rules = rules(allow, deny, &[]));
        let mut caller = Raw::tcp(proxied.address).await;
        assert_eq!(status(&mut caller, "HEAD", query).await, expected, "{allow:?} {deny:?} {query}");
    };
    check(&["GET,LIST secret/*"], &[], "", 403).await;
    check(&["HEAD secret/*"], &[], "", 200).await;
    check(&["HEAD secret/*"], &[], "list=true", 200).await;
    check(&["LIST secret/*"], &[], "list=true", 403).await;
    check(&["secret/*"], &[], "", 200).await;
    check(&["*"], &["HEAD secret/*"], "", 403).await;
    check(&["*"], &["GET secret/*"], "", 403).await;
    check(&["*"], &["LIST secret/*"], "list=true", 200).await;
}

/// A generator of numbers that is the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// Queries of the pieces that readers of queries differ about.
fn queries(count: usize) -> Vec<String> {
    const NAMES: [&str; 12] =
        ["list", "list", "scan", "%6cist", "li%73t", "sca%6E", "version", "lis+t", "%zz", "list%", "", "%00"];
    const JOINTS: [&str; 6] = ["=", "=", "=", "", "%3d", "=="];
    const VALUES: [&str; 14] =
        ["true", "true", "1", "t", "T%52UE", "false", "0", "", "tRUE", "2", "%zz", "%ff", "a%3bb", "+"];
    const SEPARATORS: [&str; 8] = ["&", "&", "&", "&", "&&", "%26", ";", "?"];
    let mut numbers = Numbers(20_261_122);
    let mut query = || {
        let mut text = String::new();
        for pair in 0..=numbers.below(3) {
            text += if pair == 0 { "" } else { SEPARATORS[numbers.below(SEPARATORS.len())] };
            for pieces in [&NAMES[..], &JOINTS, &VALUES] {
                text += pieces[numbers.below(pieces.len())];
            }
        }
        text
    };
    (0..count).map(|_| query()).collect()
}

#[tokio::test]
async fn queries_are_read_as_go_reads_them() {
    let queries = queries(2000);
    let mut go = Command::new(clients().join("bin/go-query"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tests/clients/install has built it");
    let mut input = go.stdin.take().unwrap();
    let lines = queries.join("\n") + "\n";
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = go.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let read: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert_eq!((output.status.success(), read.len()), (true, queries.len()));
    let count = |expected| read.iter().filter(|read| **read == expected).count();
    assert!(["read", "list", "scan", "refused"].iter().all(|expected| count(*expected) > 30), "each is among them");

    let listener = |allow: &str| Proxied::with(|options, _| options.rules = rules(&[allow], &[], &[]));
    let listeners = [("read", listener("GET *")), ("list", listener("LIST *")), ("scan", listener("SCAN *"))];
    for (operation, proxied) in listeners {
        let mut caller = Raw::tcp(proxied.address).await;
        for (query, read) in queries.iter().zip(&read) {
            let expected = if *read == "refused" {
                400
            } else if *read == operation {
                200
            } else {
                403
            };
            assert_eq!(status(&mut caller, "GET", query).await, expected, "{operation}: Go reads {query} as {read}");
        }
    }
}
