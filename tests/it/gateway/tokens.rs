//! The tokens of the gateway: the platform's, refused and replaced under load; the local one, over a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_gateway::platform_token::{PlatformToken, PlatformTokenSource};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::front::Front;
use crate::harness::log;
use crate::harness::scripted::{Seen, reply};

fn token(text: &str) -> Arc<PlatformToken> {
    Arc::new(PlatformToken::parse(SecretString::from(text), Clock::System.now()).unwrap())
}

#[tokio::test]
async fn a_rejected_token_is_refreshed_once_for_all_callers_and_each_call_is_retried() {
    let refresh_requests = Arc::new(AtomicU64::new(0));
    let mut publisher_task = JoinSet::new();
    let (publisher, read) = credential_channel("none yet");
    let refresh_signal = RefreshSignal::new(Clock::System);
    publisher.publish(Availability::Available(token("tok1")), None);
    let (counted, signal) = (Arc::clone(&refresh_requests), refresh_signal.clone());
    publisher_task.spawn(async move {
        loop {
            signal.requested().await;
            counted.fetch_add(1, Ordering::Relaxed);
            // As long as a login takes: all callers come meanwhile.
            tokio::time::sleep(Duration::from_millis(300)).await;
            publisher.publish(Availability::Available(token("tok2")), Some(Clock::System.now()));
            signal.complete();
        }
    });
    let front = Front::with(|_, parts| {
        parts.source = PlatformTokenSource { watch: read, refresh_signal, origin: "a test".to_owned() }
    });
    front.platform.revoke("tok1");
    front.platform.accept("tok2");
    let calls = (0..100)
        .map(|number| front.request("POST", &format!("/api/v2/runs/{number}")).body(format!("body {number}")).send());
    for response in join_all(calls).await {
        assert_eq!(response.unwrap().status(), 200);
    }
    assert_eq!(refresh_requests.load(Ordering::Relaxed), 1);
    let text = front.metrics.text();
    assert!(text.contains("keyward_local_requests_total{listener=\"gateway\",code=\"200\"} 100"), "{text}");
    assert!(
        text.contains("keyward_upstream_requests_total{server=\"platform\",path=\"runs\",status=\"2xx\"} 100"),
        "{text}"
    );
    let requests = front.platform.requests();
    let is_call = |request: &&Seen| request.target.starts_with("/api/v2/runs/");
    let again = requests.iter().filter(is_call).filter(|request| request.bearer() == "tok1").count();
    assert!(text.contains(&format!("keyward_gateway_replays_total {again}")), "{again}: {text}");
    for number in 0..100 {
        let of: Vec<_> = requests.iter().filter(|request| request.target == format!("/api/v2/runs/{number}")).collect();
        let tokens: Vec<&str> = of.iter().map(|request| request.bearer()).collect();
        assert!(matches!(tokens[..], ["tok1", "tok2"] | ["tok2"]), "{number}: {tokens:?}");
        assert!(of.iter().all(|request| request.body == format!("body {number}")), "{number}");
    }
}

#[tokio::test]
async fn a_persistent_rejection_gives_503_and_never_401() {
    let front = Front::with(|options, _| options.token_wait = Duration::from_millis(300));
    front.platform.revoke("tok1");
    for _ in 0..5 {
        let response = front.get("/api/v2/ping").await;
        assert_eq!(response.status(), 503);
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!([header("retry-after"), header("x-ratelimit-reset")], ["5", "5.000"]);
        assert_eq!(header("content-type"), "application/vnd.api+json");
        let body: Value = response.json().await.unwrap();
        let (status, detail) = (&body["errors"][0]["status"], body["errors"][0]["detail"].as_str().unwrap());
        assert!(status == "503" && detail.contains("rejects the platform token (file "), "{body}");
        assert!(detail.contains("no new one came within 300ms") && !detail.contains("tok1"), "{detail}");
    }
    let requests = front.platform.requests();
    let pings = requests.iter().filter(|request| request.target == "/api/v2/ping").count();
    assert_eq!((pings, requests.len()), (5, 6), "nothing is sent again with the same token, which is checked once");
}

#[tokio::test]
async fn a_401_about_the_content_of_a_call_is_returned_and_the_token_stays_in_use() {
    const BODY: &str = r#"{"errors":[{"status":"401","title":"SMTP user credentials are invalid"}]}"#;
    // With each status the token is known to the platform.
    for status in [200, 403, 404] {
        // Longer than the test's client waits.
        let front = Front::with(|options, _| options.token_wait = Duration::from_hours(1));
        front.platform.answers(move |request| match request.target.as_str() {
            "/api/v2/admin/smtp-settings" => reply(401, &[("content-type", "application/vnd.api+json")], BODY),
            _ => reply(status, &[], ""),
        });
        for bytes in [10, 2_000_000] {
            let call = front.request("PATCH", "/api/v2/admin/smtp-settings").body(vec![b'x'; bytes]);
            let response = call.send().await.unwrap();
            assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (401, BODY));
        }
        let requests = front.platform.requests();
        let targets: Vec<&str> = requests.iter().map(|request| request.target.as_str()).collect();
        let (patch, check) = ("/api/v2/admin/smtp-settings", "/api/v2/account/details");
        assert_eq!(targets, [patch, check, patch, check], "no call is made twice");
        let document: Value = front.get("/v1/platform/tokens").await.json().await.unwrap();
        assert!(document["platform_token"]["refused_since"].is_null(), "{document}");
        assert!(front.metrics.text().contains("keyward_gateway_replays_total 0"));
    }
}

#[tokio::test]
async fn calls_with_a_token_known_as_refused_wait_from_its_refusal_and_not_each_anew() {
    let wait = Duration::from_secs(2);
    let front = Front::with(|options, _| options.token_wait = wait);
    front.platform.revoke("tok1");
    let start = Instant::now();
    assert_eq!(front.get("/api/v2/ping").await.status(), 503);
    assert!(start.elapsed() >= wait, "the first call waits for a new token: {:?}", start.elapsed());
    let again = Instant::now();
    for _ in 0..5 {
        assert_eq!(front.get("/api/v2/ping").await.status(), 503);
    }
    assert!(again.elapsed() < wait, "{:?}", again.elapsed());
    // A new token is taken by the next call, and a refused one is waited for anew.
    front.put_token("tok2");
    let start = Instant::now();
    while front.platform.requests().last().is_none_or(|request| request.bearer() != "tok2") {
        assert_eq!(front.get("/api/v2/ping").await.status(), 503);
    }
    assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
    front.platform.accept("tok2");
    assert_eq!(front.get("/api/v2/ping").await.status(), 200);
}

#[tokio::test]
async fn without_a_response_to_the_check_of_the_token_a_401_is_no_rejection_and_reaches_no_caller() {
    for status in [429, 500, 503] {
        let front = Front::with(|options, _| options.token_wait = Duration::from_millis(100));
        front.platform.answers(move |request| match request.target.as_str() {
            "/api/v2/account/details" => reply(status, &[], ""),
            _ => reply(401, &[], ""),
        });
        let response = front.get("/api/v2/organizations").await;
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"5".parse().unwrap()));
        let body = response.text().await.unwrap();
        assert!(
            body.contains("a check of the platform token (file ") && body.contains("make the call again"),
            "{body}"
        );
        let document: Value = front.get("/v1/platform/tokens").await.json().await.unwrap();
        assert!(document["platform_token"]["refused_since"].is_null(), "{document}");
        // The check is repeated, as long as it says nothing.
        let checks = front.platform.requests().iter().filter(|request| request.target == CHECK).count();
        assert_eq!(checks, 3, "{status}");
    }
    // A check that works at its second try decides.
    let front = Front::start();
    let checks = Arc::new(AtomicUsize::new(0));
    front.platform.answers(move |request| match request.target.as_str() {
        CHECK => reply(if checks.fetch_add(1, Ordering::Relaxed) == 0 { 503 } else { 200 }, &[], ""),
        _ => reply(401, &[], ""),
    });
    assert_eq!(front.get("/api/v2/organizations").await.status(), 401);
}

/// The call that tells a refused token from a refused call.
const CHECK: &str = "/api/v2/account/details";

#[tokio::test]
async fn calls_whose_token_is_refused_wait_for_the_next_one_and_none_of_them_sees_a_401() {
    let front = Front::start();
    front.platform.revoke("tok1");
    front.platform.accept("tok2");
    let calls = join_all(
        (0..20).map(|number| front.request("POST", &format!("/api/v2/runs/{number}")).body(number.to_string()).send()),
    );
    let replacement = async {
        let is_call = |request: &&Seen| request.target.starts_with("/api/v2/runs/");
        while front.platform.requests().iter().filter(is_call).count() < 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        front.put_token("tok2");
    };
    let (responses, ()) = tokio::join!(calls, replacement);
    for response in responses {
        assert_eq!(response.unwrap().status(), 200);
    }
    let requests = front.platform.requests();
    for number in 0..20 {
        let of: Vec<_> = requests.iter().filter(|request| request.target == format!("/api/v2/runs/{number}")).collect();
        assert_eq!(of.iter().map(|request| request.bearer()).collect::<Vec<_>>(), ["tok1", "tok2"], "{number}");
        assert!(of.iter().all(|request| request.body == number.to_string()), "{number}");
    }
}

#[tokio::test]
async fn half_of_the_connections_may_wait_for_a_token_and_the_other_calls_are_refused_at_once() {
    let front = Front::with(|options, _| options.connections = 4);
    front.platform.revoke("tok1");
    front.platform.accept("tok2");
    let mut calls: FuturesUnordered<_> = (0..6).map(|_| front.get("/api/v2/organizations")).collect();
    for _ in 0..4 {
        let response = calls.next().await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"5".parse().unwrap()));
        let body = response.text().await.unwrap();
        assert!(body.contains("too many calls wait for a new one"), "{body}");
    }
    front.put_token("tok2");
    while let Some(response) = calls.next().await {
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn a_refused_token_is_reported_once_with_its_source_and_so_is_its_recovery() {
    log::keep();
    let mut front = Front::with(|options, _| options.token_wait = Duration::from_millis(100));
    front.start_platform_detection();
    let component = |front: &Front| front.health.components()["gateway/platform"].clone();
    let until = async |front: &Front, ready: bool| {
        for _ in 0..3000 {
            if component(front).ready == ready {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", component(front));
    };
    until(&front, true).await;
    front.platform.revoke("tok1");
    for _ in 0..3 {
        assert_eq!(front.get("/api/v2/a").await.status(), 503);
    }
    until(&front, false).await;
    let source = format!("file {}", front.token_file.display());
    let reason = component(&front).reason.unwrap();
    assert!(reason.starts_with(&format!("the platform rejects the token ({source}) since 2")), "{reason}");
    assert!(!front.health.is_ready() && front.metrics.text().contains("keyward_gateway_token_refused 1"));
    let document: Value = front.get("/v1/platform/tokens").await.json().await.unwrap();
    assert!(document["platform_token"]["refused_since"].is_string(), "{document}");

    // No other call uses the next token, so the gateway probes it; a second refusal belongs to the first.
    front.put_token("tok0");
    for _ in 0..3000 {
        if front
            .platform
            .requests()
            .iter()
            .any(|request| request.bearer() == "tok0" && request.target.ends_with("/details"))
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    front.platform.accept("tok2");
    front.put_token("tok2");
    until(&front, true).await;
    assert!(front.health.is_ready() && front.metrics.text().contains("keyward_gateway_token_refused 0"));
    let probes: Vec<_> =
        front.platform.requests().into_iter().filter(|request| request.target == "/api/v2/account/details").collect();
    assert_eq!(probes.iter().map(Seen::bearer).collect::<Vec<_>>(), ["tok1", "tok0", "tok2"]);
    let lines = log::lines();
    let events = |name: &str| -> Vec<Value> {
        lines.iter().map(|line| line["fields"].clone()).filter(|fields| fields["event"] == name).collect()
    };
    let (refused, recovered) = (events("gateway.token.refused"), events("gateway.token.recovered"));
    assert_eq!((refused.len(), recovered.len()), (1, 1), "{refused:?} {recovered:?}");
    assert!(refused[0]["source"] == source.as_str() && refused[0]["since"].is_string(), "{refused:?}");
    assert!(recovered[0]["source"] == source.as_str() && recovered[0]["was"] == "refused", "{recovered:?}");
    assert!(recovered[0]["lasted_seconds"].as_f64().unwrap() > 0.0, "{recovered:?}");
}

#[tokio::test]
async fn a_streamed_body_is_sent_once_and_the_next_call_has_the_new_token() {
    // Longer than the test's client waits.
    let front = Front::with(|options, _| options.token_wait = Duration::from_hours(1));
    front.platform.revoke("tok1");
    let alone = front.request("POST", "/api/v2/large").body(vec![b'z'; 2_000_000]).send().await.unwrap();
    assert_eq!(alone.status(), 503, "it does not wait");
    assert!(alone.text().await.unwrap().contains("too large to be sent again"));
    front.platform.accept("tok2");
    front.put_token("tok2");
    let large = vec![b'z'; 2_000_000];
    // Either the file was seen to change before a call, or the call is refused at once and has it read.
    for attempt in 0.. {
        let response = front.request("POST", "/api/v2/large").body(large.clone()).send().await.unwrap();
        if response.status() == 200 {
            break;
        }
        assert!(response.status() == 503 && attempt < 300, "{response:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_token_is_replaced_under_load_again_and_again_and_no_call_fails() {
    let front = Arc::new(Front::start());
    let failed = Arc::new(AtomicU64::new(0));
    let made = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let (front, failed, made) = (Arc::clone(&front), Arc::clone(&failed), Arc::clone(&made));
        callers.spawn(async move {
            loop {
                let call = front.request("POST", &format!("/api/v2/load/{number}")).body("x").send().await;
                if call.map_or(true, |response| response.status() != 200) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                made.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for round in 1..=12 {
        let (old, new) = (format!("tok{round}"), format!("tok{}", round + 1));
        front.platform.accept(&new);
        front.put_token(&new);
        // The harshest way: the old one ends at once.
        front.platform.revoke(&old);
        let before = made.load(Ordering::Relaxed);
        while made.load(Ordering::Relaxed) < before + 40 {
            tokio::task::yield_now().await;
        }
    }
    callers.shutdown().await;
    assert_eq!(failed.load(Ordering::Relaxed), 0);
    let tokens: std::collections::BTreeSet<String> =
        front.platform.requests().iter().map(|request| request.bearer().to_owned()).collect();
    assert!(tokens.len() > 10, "{tokens:?}");
}

#[tokio::test]
async fn a_token_file_that_is_replaced_or_empty_for_a_while_is_followed() {
    let front = Front::start();
    let current = async |expected: &str| {
        for _ in 0..500 {
            front.get("/api/v2/ping").await;
            if front.platform.requests().last().unwrap().bearer() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not {expected}: {:?}", front.platform.requests().last());
    };
    for name in ["tok2", "tok3", "tok4"] {
        front.platform.accept(name);
    }
    front.put_token("  tok2 \r\n");
    current("tok2").await;
    std::fs::write(&front.token_file, "").unwrap();
    std::fs::write(&front.token_file, "two\nlines").unwrap();
    std::fs::remove_file(&front.token_file).unwrap();
    current("tok2").await;
    // As a kubelet does it: the name is a link to a link to a folder, which is changed.
    let folder = front.folder.path();
    for (version, token) in [("v1", "tok3"), ("v2", "tok4")] {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("platform.token"), token).unwrap();
        std::os::unix::fs::symlink(version, folder.join("next")).unwrap();
        std::fs::rename(folder.join("next"), folder.join("..data")).unwrap();
        if version == "v1" {
            std::os::unix::fs::symlink("..data/platform.token", &front.token_file).unwrap();
        }
        current(token).await;
    }
    // The same behind one more link, which stands elsewhere.
    let mounted = tempfile::tempdir().unwrap();
    std::fs::write(mounted.path().join("one"), "tok2").unwrap();
    std::fs::write(mounted.path().join("two"), "tok3").unwrap();
    let lead = |target: &std::path::Path, name: &std::path::Path| {
        std::os::unix::fs::symlink(target, name.with_extension("next")).unwrap();
        std::fs::rename(name.with_extension("next"), name).unwrap();
    };
    lead(std::path::Path::new("one"), &mounted.path().join("token"));
    lead(&mounted.path().join("token"), &front.token_file);
    current("tok2").await;
    lead(std::path::Path::new("two"), &mounted.path().join("token"));
    current("tok3").await;
}

#[tokio::test]
async fn the_token_report_has_sources_ages_and_callers_but_no_token() {
    let front = Front::start();
    for agent in ["go-tfe", "Terraform/1.11.4 (+https://www.terraform.io)", "go-tfe"] {
        front.request("GET", "/api/v2/ping").header("user-agent", agent).send().await.unwrap();
    }
    let response = front.get("/v1/platform/tokens").await;
    let text = response.text().await.unwrap();
    assert!(!text.contains("tok1") && !text.contains(&front.local()), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let platform = &document["platform_token"];
    assert_eq!(platform["source"], format!("file {}", front.token_file.display()));
    assert!(platform["serving"] == true && platform["age_seconds"].is_u64(), "{document}");
    assert!(
        document["local_token"]["made"].is_string() && document["local_token"]["previous_until"].is_null(),
        "{document}"
    );
    let callers: Vec<(&str, u64)> = document["callers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|caller| (caller["client"].as_str().unwrap(), caller["requests"].as_u64().unwrap()))
        .collect();
    assert_eq!(callers, [("Terraform/1.11.4", 1), ("go-tfe", 2), ("unknown", 1)]);
}
