//! Detection of the platform: before the first call, and again when it may have changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keyward_gateway::actions::ActionOptions;
use keyward_machine::clock::{Clock, TestClock};
use keyward_telemetry::health::Health;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::front::{Front, Platform};
use crate::harness::log;
use crate::harness::scripted::{Seen, reply};

const LATER_THAN_THE_RELEASE: &str = "/api/v2/organizations/o/relationships/module-producers";

fn strict() -> Front {
    Front::with(|options, _| options.actions = ActionOptions { strict: true, ..ActionOptions::default() })
}

fn release(version: &'static str) -> impl Fn(&Seen) -> http::Response<bytes::Bytes> {
    move |_| {
        let headers = [("tfp-appname", "Terraform Enterprise"), ("x-tfe-version", version), ("tfp-api-version", "2.3")];
        reply(204, &headers, "")
    }
}

fn platform_status(front: &Front) -> Value {
    let status = front.status_registry.collect(&Health::default(), BTreeMap::new());
    serde_json::to_value(status.platform).unwrap()
}

/// Status of the platform, once it is detected and `fits` accepts it.
async fn wait_for_status(front: &Front, fits: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3000 {
        let status = platform_status(front);
        if fits(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{}", platform_status(front));
}

#[tokio::test]
async fn the_platform_is_probed_once_before_the_first_call() {
    log::keep();
    let mut front = strict();
    front.platform.answers(release("v202012-1"));
    front.start_platform_detection();
    let known = wait_for_status(&front, |status| status["release"].is_string()).await;
    assert_eq!(
        known,
        json!({"upstream": front.upstream, "product": "self-managed", "release": "v202012-1", "api_version": "2.3"})
    );
    let detected =
        log::lines().into_iter().find(|line| line["fields"]["event"] == "gateway.platform.detected").unwrap();
    for field in ["upstream", "product", "release", "api_version"] {
        assert_eq!(detected["fields"][field], known[field], "{detected}");
    }
    // The first call of all is judged by it.
    let response = front.get(LATER_THAN_THE_RELEASE).await;
    assert_eq!(response.status(), 422);
    let requests = front.platform.requests();
    let targets: Vec<_> = requests.iter().map(|request| (request.method.as_str(), request.target.as_str())).collect();
    assert_eq!(targets, [("GET", "/api/v2/ping")]);
    assert_eq!((requests[0].bearer(), requests[0].header("accept")), ("tok1", "application/vnd.api+json"));
    assert!(requests[0].header("user-agent").starts_with("keyward/"));
}

#[tokio::test]
async fn failed_probes_are_retried_while_callers_are_served() {
    let driven = TestClock::starting_at(std::time::SystemTime::now());
    let mut front = Front::with(|options, parts| {
        options.actions = ActionOptions { strict: true, ..ActionOptions::default() };
        parts.clock = Clock::Test(driven.clone());
    });
    let (ready, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_ready, counted) = (Arc::clone(&ready), Arc::clone(&refused));
    front.platform.answers(move |request| {
        if request.target == "/api/v2/ping" && !is_ready.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            return reply(503, &[], "");
        }
        if request.target == "/api/v2/ping" { release("v202012-1")(request) } else { reply(200, &[], "") }
    });
    front.start_platform_detection();
    while refused.load(Ordering::SeqCst) < 3 {
        driven.suspend(Duration::from_mins(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(front.get(LATER_THAN_THE_RELEASE).await.status(), 200, "nothing is known, so it passes");
    ready.store(true, Ordering::SeqCst);
    let known = || platform_status(&front);
    while known()["release"].is_null() {
        driven.suspend(Duration::from_mins(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(front.get(LATER_THAN_THE_RELEASE).await.status(), 422);
}

#[tokio::test]
async fn a_recovered_platform_is_probed_before_the_next_call() {
    let driven = TestClock::starting_at(std::time::SystemTime::now());
    let (old, mut servers) = (Platform::default(), JoinSet::new());
    old.accept("tok1");
    old.answers(release("v202012-1"));
    let address = old.serve(&mut servers);
    let mut front = Front::with(|options, parts| {
        options.upstream = format!("http://{address}").parse().unwrap();
        parts.clock = Clock::Test(driven.clone());
    });
    front.start_platform_detection();
    wait_for_status(&front, |status| status["release"] == "v202012-1").await;

    servers.shutdown().await;
    assert_eq!(front.get("/api/v2/organizations").await.status(), 502);
    let new = Platform::default();
    new.accept("tok1");
    new.answers(release("v202207-1"));
    new.serve_at(address, &mut servers);
    let passing = async {
        loop {
            driven.suspend(Duration::from_mins(5));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = passing => {}
        _ = wait_for_status(&front, |status| status["release"] == "v202207-1") => {}
    }
    let targets: Vec<_> = new.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/api/v2/ping"]);
    assert_eq!(old.requests().len(), 1);
}

#[tokio::test]
async fn a_rejected_probe_requests_no_refresh_and_tries_the_next_token() {
    let mut front = Front::start();
    front.platform.revoke("tok1");
    front.platform.accept("tok2");
    front.platform.answers(release("v202012-1"));
    front.start_platform_detection();
    while front.platform.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    front.put_token("tok2");
    wait_for_status(&front, |status| status["release"] == "v202012-1").await;
    assert_eq!(front.platform.last().bearer(), "tok2");
}
