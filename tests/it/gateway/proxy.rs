//! The gateway as clients of the platform see it: requests that pass, are changed, or are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use keyward_gateway::proxy::{Exemption, RateLimit};
#[cfg(feature = "dev")]
use keyward_http::{server::ListenerLimits, tls::ServerCertificate};
use keyward_machine::clock::{Clock, TestClock};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::front::{Front, Platform};
use crate::harness::log;
use crate::harness::ports;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::tunnel::Tunnel;

/// The detail of the first error of a document in the platform's form.
async fn detail(response: reqwest::Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/vnd.api+json");
    let status = response.status().as_u16().to_string();
    let body: Value = response.json().await.unwrap();
    let error = &body["errors"][0];
    assert_eq!(error["status"], status.as_str(), "{body}");
    assert!(error["title"].is_string(), "{body}");
    error["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_with_the_local_token_reaches_the_platform_with_the_platforms_own() {
    let front = Front::start();
    let call = front.request("PATCH", "/api/v2/workspaces/ws-1?include=a%2Cb&page%5Bnumber%5D=2");
    let call = call.header("content-type", "application/vnd.api+json").header("user-agent", "go-tfe");
    let response = call.header("accept-encoding", "gzip").body(r#"{"data":{}}"#).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let requests = front.platform.requests();
    assert_eq!(requests.len(), 1);
    let call = &requests[0];
    assert_eq!((call.method.as_str(), call.bearer()), ("PATCH", "tok1"));
    assert_eq!(call.target, "/api/v2/workspaces/ws-1?include=a%2Cb&page%5Bnumber%5D=2");
    assert_eq!(call.body, r#"{"data":{}}"#);
    assert_eq!(call.headers["host"], front.upstream.strip_prefix("http://").unwrap());
    assert_eq!(call.headers["user-agent"], "go-tfe");
    assert_eq!(call.headers["content-length"], "11");
    assert_eq!(call.headers["accept-encoding"], "identity", "an encoded answer could not be read");
}

#[tokio::test]
async fn callers_without_the_local_token_are_rejected() {
    let front = Front::start();
    let url = format!("{}/api/v2/ping", front.url);
    let bare = front.client.get(&url).send().await.unwrap();
    assert_eq!((bare.status().as_u16(), &bare.headers()["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    assert!(detail(bare).await.contains("local token is missing or wrong"));
    let mut near = front.local();
    near.pop();
    let basic = front.client.get(&url).basic_auth("user", Some(front.local())).send().await.unwrap();
    assert_eq!(basic.status(), 401);
    for token in ["tok1", "", near.as_str(), &format!("{}x", front.local())] {
        let response = front.client.get(&url).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), 401, "{token}");
        let own =
            front.client.get(format!("{}/v1/platform/tokens", front.url)).bearer_auth(token).send().await.unwrap();
        assert_eq!(own.status(), 401, "{token}");
    }
    assert!(front.platform.requests().is_empty());
}

#[tokio::test]
async fn look_alike_paths_foreign_hosts_and_browsers_are_refused_before_anything_is_sent() {
    let front = Front::start();
    let local = front.local();
    let check = async |request: &str, status: u16, expected: &str| {
        let mut caller = Raw::tcp(front.address).await;
        let request = request.replace("TOKEN", &local).replace("HERE", &front.address.to_string());
        let response = caller.ask(format!("{request}\r\n\r\n")).await;
        let detail = response.json()["errors"][0]["detail"].as_str().unwrap_or_default().to_owned();
        assert!(response.status == status && detail.contains(expected), "{request}: {response:?}");
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: HERE\r\nAuthorization: Bearer TOKEN");
    for path in ["/api/v20/ping", "//api/v2/ping", "/API/v2/ping", "/admin", "/api/v2", "/_archivist/v1/object/x"] {
        check(&get(path), 404, "the gateway serves /api/v2/").await;
    }
    for path in
        ["/api/v2/../admin", "/api/v2/%2e%2e/admin", "/api/v2/a/..%2f..%2f..%2fadmin", "/api/v2/%252e%252e/admin"]
    {
        check(&get(path), 400, "a . or .. segment").await;
    }
    check(&get("/api/v2/%zz"), 400, "an invalid percent-encoding").await;
    check(&get("/api/v2/ping").replace("GET", "OPTIONS"), 405, "no such method").await;
    check(&get("/api/v2/ping").replace("Host: HERE", "Host: evil.example"), 421, "Host header").await;
    check(&get("/api/v2/ping").replace("Host: HERE", "Host: app.terraform.io"), 421, "Host header").await;
    check(&get("http://evil.example/api/v2/ping"), 421, "another host").await;
    check(&format!("{}\r\nOrigin: http://HERE", get("/api/v2/ping")), 403, "web pages").await;
    check(&format!("{}\r\nX-Forwarded-For: 10.0.0.1", get("/api/v2/ping")), 400, "forwarded by a proxy").await;
    assert!(front.platform.requests().is_empty());
}

#[tokio::test]
async fn service_discovery_needs_no_token_and_names_the_gateway() {
    let front = Front::start();
    let response = front.client.get(format!("{}/.well-known/terraform.json", front.url)).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let services: Value = response.json().await.unwrap();
    for (name, path) in services.as_object().unwrap() {
        assert!(path.as_str().unwrap().starts_with("/api/"), "{name} {path}");
    }
    assert_eq!(services["tfe.v2.2"], "/api/v2/");
}

#[tokio::test]
async fn service_discovery_passes_on_the_platforms_services_that_the_gateway_does_not_serve() {
    let front = Front::start();
    front.platform.answers(|request| match request.target.as_str() {
        "/.well-known/terraform.json" => {
            let services = r#"{"tfe.v2":"/elsewhere/","motd.v1":"/api/motd","versions.v1":"https://v.example.com/","login.v1":{}}"#;
            reply(200, &[("content-type", "application/json")], services)
        }
        _ => reply(404, &[], ""),
    });
    let ask = async || -> Value {
        let response = front.client.get(format!("{}/.well-known/terraform.json", front.url)).send().await.unwrap();
        response.json().await.unwrap()
    };
    for _ in 0..3 {
        let services = ask().await;
        assert_eq!(services["motd.v1"], format!("{}/api/motd", front.upstream));
        assert_eq!(
            (&services["versions.v1"], &services["tfe.v2"]),
            (&"https://v.example.com/".into(), &"/api/v2/".into())
        );
        assert_eq!(services.as_object().unwrap().len(), 8, "{services}");
    }
    assert_eq!(front.platform.requests().len(), 1, "callers need no token, and make no call each");
}

#[tokio::test]
async fn links_are_rewritten_in_documents_of_any_length() {
    let front = Front::start();
    let origin = front.upstream.clone();
    front.platform.answers(move |request| {
        let pad = "y".repeat(if request.target.contains("large") { 300_000 } else { 10 });
        let body = format!(
            r#"{{"data":{{"pad":"{pad}","attributes":{{"upload-url":"{origin}/api/v2/x"}}}},"links":{{"next":"{origin}/api/v2/list?page%5Bnumber%5D=2","blob":"{origin}/_archivist/v1/object/y"}}}}"#
        );
        reply(200, &[("content-type", "application/vnd.api+json; charset=utf-8")], body)
    });
    for path in ["/api/v2/small", "/api/v2/large"] {
        let response = front.get(path).await;
        let length = response.headers().get("content-length").cloned();
        let text = response.text().await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["links"]["next"], format!("{}/api/v2/list?page%5Bnumber%5D=2", front.url), "{path}");
        assert_eq!(body["links"]["blob"], format!("{}/_archivist/v1/object/y", front.upstream));
        assert_eq!(body["data"]["attributes"]["upload-url"], format!("{}/api/v2/x", front.upstream));
        let content_length = length.map(|length| length.to_str().unwrap().parse::<usize>().unwrap());
        assert!(content_length.is_none_or(|content_length| content_length == text.len()), "{path}");
    }
    front.platform.answers(|request| {
        reply(200, &[("content-type", "text/plain")], format!("{{\"links\":{{\"a\":\"{}\"}}}}", request.target))
    });
    assert_eq!(front.get("/api/v2/a").await.text().await.unwrap(), "{\"links\":{\"a\":\"/api/v2/a\"}}", "no JSON");
    let head = front.request("HEAD", "/api/v2/a").send().await.unwrap();
    assert_eq!(head.status(), 200);
}

#[tokio::test]
async fn state_download_links_lead_to_the_gateway_and_other_texts_with_the_platforms_origin_are_unchanged() {
    let front = Front::with(|options, _| options.aliases = vec!["https://tfe.example.com".parse().unwrap()]);
    let document = |platform: &str, other: &str, gateway: &str| {
        format!(
            r#"{{"data":{{"id":"sv-1","type":"state-versions","attributes":{{"description":"{platform}/api/v2/a",
            "value":"{platform}/api/v2/a","value2":{{"links":{{"self":"{platform}/api/v2/a"}},"attributes":{{
            "hosted-state-download-url":"{platform}/api/state-versions/sv-1/hosted_state"}},
            "hosted-state-download-url":"{platform}/api/state-versions/sv-1/hosted_state"}},"url":"{platform}/api/v2/a",
            "hosted-state-upload-url":"{platform}/_archivist/v1/object/x",
            "hosted-state-download-url":"{gateway}/api/state-versions/sv-1/hosted_state",
            "hosted-json-state-download-url" : "{other}/api/state-versions/sv-1/hosted_json_state",
            "sanitized-state-download-url":"{other}/api/state-versions/sv-1/sanitized_state"}},
            "relationships":{{"run":{{"links":{{"related":"{gateway}/api/v2/runs/run-1"}}}}}},
            "links":{{"self":"{gateway}/api/v2/state-versions/sv-1"}}}}}}"#
        )
    };
    let (here, there) = (front.url.clone(), front.upstream.clone());
    let upper = there.to_uppercase();
    for spelling in [there.as_str(), &upper, "https://tfe.example.com", "https://TFE.Example.com:443"] {
        let body = document(&there, &there, spelling);
        front.platform.answers(move |_| reply(200, &[("content-type", "application/vnd.api+json")], body.clone()));
        let got = front.get("/api/v2/state-versions/sv-1").await.text().await.unwrap();
        assert_eq!(got, document(&there, &here, &here), "{spelling}");
    }
}

#[tokio::test]
async fn state_downloads_are_forwarded_unchanged() {
    let front = Front::start();
    let origin = front.upstream.clone();
    // A state's outputs may be named like anything of the API's.
    let state = format!(r#"{{"outputs":{{"x":{{"value":{{"links":{{"self":"{origin}/api/v2/a"}}}}}}}}}}"#);
    let served = state.clone();
    front.platform.answers(move |request| match request.target.as_str() {
        "/api/state-versions/sv-1/hosted_state" => {
            reply(302, &[("location", "https://archivist.example.com/v1/object/secret")], "")
        }
        _ => reply(200, &[("content-type", "application/json")], served.clone()),
    });
    let response = front.get("/api/state-versions/sv-1/hosted_state").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (302, &"https://archivist.example.com/v1/object/secret".parse().unwrap())
    );
    for path in [
        "/api/state-versions/sv-1/hosted_json_state",
        "/api/state-versions/sv-1/sanitized_state",
        "/api/v2/plans/plan-1/json-output",
    ] {
        assert_eq!(front.get(path).await.text().await.unwrap(), state, "{path}");
    }
    let requests = front.platform.requests();
    assert!(requests.len() == 4 && requests.iter().all(|request| request.bearer() == "tok1"), "{requests:?}");
    for path in [
        "/api/state-versions",
        "/api/state-versions/sv-1",
        "/api/state-versions/sv-1/a/b",
        "/api/state-versions/sv%2d1/hosted_state",
    ] {
        assert_eq!(front.get(path).await.status(), 404, "{path}");
    }
    let written = front.request("PUT", "/api/state-versions/sv-1/hosted_state").body("x").send().await.unwrap();
    assert_eq!((written.status().as_u16(), &written.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
    let bare = front.client.get(format!("{}/api/state-versions/sv-1/hosted_state", front.url)).send().await.unwrap();
    assert_eq!((bare.status().as_u16(), front.platform.requests().len()), (401, 4));
}

#[tokio::test]
async fn redirects_are_handed_on_and_relative_addresses_made_absolute() {
    let front = Front::start();
    front.platform.answers(|request| match request.target.as_str() {
        "/api/v2/download" => reply(302, &[("location", "https://archivist.example.com/v1/object/secret?x=%2f")], ""),
        "/api/v2/relative" => reply(302, &[("location", "/v1/object/secret"), ("set-cookie", "a=b")], ""),
        _ => reply(204, &[("x-terraform-get", "./archive.tar.gz?archive=tgz")], ""),
    });
    let response = front.get("/api/v2/download").await;
    assert_eq!(response.headers()["location"], "https://archivist.example.com/v1/object/secret?x=%2f");
    let response = front.get("/api/v2/relative").await;
    assert_eq!(response.headers()["location"], format!("{}/v1/object/secret", front.upstream));
    assert!(!response.headers().contains_key("set-cookie"), "a client that keeps it is taken for a browser");
    let response = front.get("/api/registry/v1/modules/o/n/p/1.0.0/download").await;
    let expected = format!("{}/api/registry/v1/modules/o/n/p/1.0.0/archive.tar.gz?archive=tgz", front.upstream);
    assert_eq!(response.headers()["x-terraform-get"], expected.as_str());
    assert_eq!(front.platform.requests().len(), 3, "nothing was followed");
}

#[tokio::test]
async fn a_429_sets_retry_after_and_delays_other_calls() {
    let front = Front::start();
    front.platform.answers(|request| {
        let limited = request.target.contains("limited");
        let headers = [("x-ratelimit-limit", "30"), ("x-ratelimit-reset", "0.6")];
        reply(if limited { 429 } else { 200 }, &headers, "")
    });
    let response = front.get("/api/v2/limited").await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(response.headers()["x-ratelimit-reset"], "0.6");
    let start = tokio::time::Instant::now();
    assert_eq!(front.get("/api/v2/other").await.status(), 200);
    assert!(start.elapsed() > Duration::from_millis(400), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_429_by_the_limit_per_minute_of_lists_of_runs_delays_no_other_call() {
    let front = Front::start();
    front.platform.answers(|request| {
        let limited = request.target.ends_with("/runs");
        let headers = [("x-ratelimit-limit", "30"), ("x-ratelimit-reset", "25")];
        reply(if limited { 429 } else { 200 }, &headers, "")
    });
    assert_eq!(front.get("/api/v2/workspaces/ws-1/runs").await.status(), 429);
    let start = tokio::time::Instant::now();
    assert_eq!(front.get("/api/v2/workspaces/ws-1").await.status(), 200);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_gateways_own_429_has_both_retry_headers_of_the_platform() {
    let front = Front::start();
    front.platform.answers(|_| reply(200, &[("x-ratelimit-limit", "1000")], ""));
    let lists = join_all((0..31).map(|_| front.get("/api/v2/workspaces/ws-1/runs"))).await;
    let refused: Vec<_> = lists.iter().filter(|response| response.status() == 429).collect();
    assert_eq!((refused.len(), front.platform.requests().len()), (1, 30), "thirty a minute");
    let header = |name: &str| refused[0].headers()[name].to_str().unwrap();
    let (after, reset): (u64, f64) =
        (header("retry-after").parse().unwrap(), header("x-ratelimit-reset").parse().unwrap());
    assert!(
        reset > 30.0 && reset < 61.0 && (reset.ceil() - f64::from(u32::try_from(after).unwrap())).abs() < 0.5,
        "{after} {reset}"
    );
}

#[tokio::test]
async fn calls_that_make_platform_tokens_are_refused_unless_they_are_exempt_and_lists_are_not() {
    let path = "/api/v2/teams/team-1/authentication-tokens";
    let front = Front::start();
    let response = front.request("POST", path).body("{}").send().await.unwrap();
    assert_eq!(response.status(), 403);
    let detail_text = detail(response).await;
    assert!(detail_text.contains("does not mint platform tokens for callers"), "{detail_text}");
    assert!(detail_text.contains("add \"teams/authentication-tokens\" to gateway.exempt"), "{detail_text}");
    let other = front.request("POST", "/api/v2//others/x/authentication%2Dtokens/").body("{}").send().await.unwrap();
    assert_eq!(other.status(), 403);
    assert!(front.platform.requests().is_empty());
    for (method, path) in [
        ("GET", "/api/v2/organizations/o/team-tokens"),
        ("GET", "/api/v2/users/user-1/authentication-tokens"),
        ("DELETE", "/api/v2/authentication-tokens/at-1"),
    ] {
        assert_eq!(front.request(method, path).send().await.unwrap().status(), 200, "{method} {path}");
    }
    let exempt = Front::with(|options, _| options.exempt.extend(Exemption::parse("teams/authentication-tokens")));
    assert_eq!(exempt.request("POST", path).body("{}").send().await.unwrap().status(), 200);
    let legacy = exempt.request("POST", "/api/v2/teams/team-1/authentication-token").body("{}").send().await.unwrap();
    assert_eq!(legacy.status(), 403);
}

#[tokio::test]
async fn a_call_with_429_is_retried_after_the_pause() {
    let front = Front::start();
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    front.platform.answers(move |request| {
        let mut count = counted.lock();
        *count += 1;
        let reset = if request.target.contains("minute") { "40" } else { "0.3" };
        let status = if *count % 2 == 1 || request.target.contains("minute") { 429 } else { 200 };
        reply(status, &[("x-ratelimit-limit", "30"), ("x-ratelimit-reset", reset)], request.body.clone())
    });
    let start = tokio::time::Instant::now();
    let response = front.request("POST", "/api/v2/runs").body("body").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "body"));
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!(*count.lock(), 2);
    // A body that is too large to buffer is not sent again, and the caller decides how long it waits.
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>(vec![b'x'; 2 << 20])]);
    let streamed = front.request("POST", "/api/v2/runs").body(reqwest::Body::wrap_stream(stream)).send().await.unwrap();
    assert_eq!(streamed.status(), 429);
    let long = front.get("/api/v2/minute").await;
    assert_eq!((long.status().as_u16(), &long.headers()["retry-after"]), (429, &"40".parse().unwrap()));
    assert_eq!(*count.lock(), 4);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_the_limit_when_a_429_comes_are_sent_after_its_pause() {
    let front = Front::with(|options, _| options.limit = RateLimit::PerSecond(1));
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&arrived);
    front.platform.answers(move |_| {
        let mut times = times.lock();
        times.push(tokio::time::Instant::now());
        // The first comes at once; when the second does, the others are in the queue.
        reply(if times.len() == 2 { 429 } else { 200 }, &[("x-ratelimit-reset", "4")], "")
    });
    let all = join_all((0..4).map(|_| front.get("/api/v2/ping"))).await;
    assert!(all.iter().all(|response| response.status() == 200), "{all:?}");
    let times = arrived.lock().clone();
    assert_eq!(times.len(), 5, "the refused one was sent once more");
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[1] >= Duration::from_secs(4), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_after_a_502_of_a_load_balancer_stay_below_the_limit() {
    let front = Front::start();
    // It reports no limit.
    front.platform.answers(|_| reply(502, &[], ""));
    assert_eq!(front.get("/api/v2/ping").await.status(), 502);
    let all = join_all((0..40).map(|_| front.get("/api/v2/ping"))).await;
    assert!(all.iter().all(|response| response.status() == 502), "{all:?}");
    let text = front.metrics.text();
    let waited = text.lines().find_map(|line| line.strip_prefix("keyward_gateway_queue_seconds_count ")).unwrap();
    assert_ne!(waited, "0", "no call has waited for its slot");
}

#[tokio::test]
async fn callers_together_stay_below_the_limit() {
    let front = Front::with(|options, _| options.limit = RateLimit::PerSecond(20));
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let times = arrived.clone();
    front.platform.answers(move |_| {
        times.lock().push(tokio::time::Instant::now());
        reply(200, &[], "")
    });
    let all = join_all((0..50).map(|_| front.get("/api/v2/ping"))).await;
    assert!(all.iter().all(|response| response.status() == 200));
    let text = front.metrics.text();
    let waited = text.lines().find_map(|line| line.strip_prefix("keyward_gateway_queue_seconds_count ")).unwrap();
    assert!((1..=30).contains(&waited.parse::<u32>().unwrap()), "the first 20 need not wait: {waited}");
    let times = arrived.lock().clone();
    assert_eq!(times.len(), 50);
    for window in times.windows(21) {
        assert!(window[20] - window[0] >= Duration::from_secs(1), "21 requests within {:?}", window[20] - window[0]);
    }
}

#[tokio::test]
async fn an_unreachable_platform_gives_an_error_document_and_recovers() {
    let addr = ports::reserve();
    let front = Front::with(|options, _| options.upstream = format!("http://{addr}").parse().unwrap());
    let response = front.get("/api/v2/ping").await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (502, &"2".parse().unwrap()));
    assert!(
        detail(response).await.contains(&format!("the platform at http://{addr} does not respond: cannot connect"))
    );
    let component = front.health.statuses()["gateway/platform"].clone();
    assert_eq!(component.target, Some(format!("http://{addr}")));
    assert!(component.warning.unwrap().reason.starts_with("the platform does not respond: cannot connect"));
    let text = front.metrics.text();
    assert!(text.contains("{server=\"platform\",path=\"other\",status=\"unreachable\"} 1"), "{text}");

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", silent.local_addr().unwrap());
    let front = Front::with(|options, _| {
        options.upstream = upstream.parse().unwrap();
        options.response_timeout = Duration::from_millis(200);
    });
    let response = front.get("/api/v2/ping").await;
    assert_eq!(response.status(), 504);
    assert!(detail(response).await.contains("no response from the upstream within 200ms"));
}

#[tokio::test]
async fn an_outage_of_the_platform_is_logged_once_and_its_end_with_its_length() {
    log::keep();
    let clock = TestClock::starting_at(std::time::SystemTime::now());
    let (platform, mut servers) = (Platform::default(), JoinSet::new());
    platform.accept("tok1");
    let address = platform.serve(&mut servers);
    let front = Front::with(|options, parts| {
        options.upstream = format!("http://{address}").parse().unwrap();
        parts.clock = Clock::Test(clock.clone());
    });
    assert_eq!(front.get("/api/v2/ping").await.status(), 200);
    servers.shutdown().await;
    for _ in 0..3 {
        assert_eq!(front.get("/api/v2/ping").await.status(), 502);
    }
    clock.suspend(Duration::from_mins(10));
    platform.serve_at(address, &mut servers);
    for _ in 0..3 {
        assert_eq!(front.get("/api/v2/ping").await.status(), 200);
    }
    let lines = log::lines();
    let events = |name: &str| -> Vec<&Value> {
        lines.iter().map(|line| &line["fields"]).filter(|fields| fields["event"] == name).collect()
    };
    let [failed] = events("gateway.upstream.failed")[..] else { panic!("{lines:?}") };
    assert!(failed["error"].as_str().unwrap().contains("cannot connect") && failed["code"] == "KW-1703", "{failed}");
    let [recovered] = events("gateway.upstream.recovered")[..] else { panic!("{lines:?}") };
    let lasted = recovered["lasted_seconds"].as_f64().unwrap();
    assert!((600.0..660.0).contains(&lasted) && recovered["upstream"] == failed["upstream"], "{recovered}");
}

#[tokio::test]
async fn bodies_of_every_framing_are_forwarded_and_the_proxy_answers_an_expectation() {
    let front = Front::start();
    let pieces = futures_util::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(vec![b'z'; 100_000])));
    let call = front.request("POST", "/api/v2/upload").body(reqwest::Body::wrap_stream(pieces));
    assert_eq!(call.send().await.unwrap().text().await.unwrap(), "4000000", "chunked");
    let call = front.request("POST", "/api/v2/upload").body(vec![b'z'; 3_000_000]);
    assert_eq!(call.send().await.unwrap().text().await.unwrap(), "3000000", "larger than what is held");
    let mut caller = Raw::tcp(front.address).await;
    let chunks = |method: &str, chunks: &str| {
        format!(
            "{method} /api/v2/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}",
            front.local()
        )
    };
    assert_eq!(caller.ask(chunks("GET", "5\r\nhello\r\n0\r\n\r\n")).await.status, 200);
    assert_eq!(front.platform.requests().pop().unwrap().body.as_ref(), b"hello", "also where a body is unusual");
    assert_eq!(caller.ask(chunks("POST", "zz\r\n")).await.status, 400, "the caller's mistake");
    let mut caller = Raw::tcp(front.address).await;
    let head = format!(
        "POST /api/v2/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        front.local()
    );
    caller.send(head).await;
    assert_eq!(caller.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(caller.ask("hello").await.status, 200);
    let request = front.platform.requests().pop().unwrap();
    assert_eq!((request.body.as_ref(), request.headers.contains_key("expect")), (&b"hello"[..], false));
}

#[tokio::test]
async fn no_token_body_query_or_blob_is_in_the_log() {
    log::keep();
    let front = Front::with(|options, _| options.token_wait = Duration::from_millis(100));
    front.platform.answers(|request| match request.target.split('?').next() {
        Some("/api/v2/blob") => reply(302, &[("location", "https://archivist.example.com/v1/object/canary-blob")], ""),
        _ => reply(200, &[("content-type", "application/json")], r#"{"attributes":{"token":"canary-answer"}}"#),
    });
    front.get("/api/v2/blob?q=canary-query").await;
    front.request("POST", "/api/v2/a").body("canary-body").send().await.unwrap();
    front.put_token("canary-token");
    front.platform.revoke("tok1");
    front.get("/api/v2/a").await;
    front.client.get(format!("{}/api/v2/a", front.url)).bearer_auth("canary-presented").send().await.unwrap();
    let text = log::text();
    // The client and the platform of this test log on this thread too; their lines are not the gateway's.
    let ours: Vec<&str> = text.lines().filter(|line| line.contains("\"keyward")).collect();
    assert!(ours.iter().any(|line| line.contains("gateway.forwarded")), "{ours:?}");
    for line in ours {
        assert!(!line.contains("canary") && !line.contains(&front.local()) && !line.contains("tok1"), "{line}");
    }
}

#[cfg(feature = "dev")]
#[tokio::test]
async fn a_platform_behind_tls_is_called_by_the_name_and_authority_that_it_has() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    let leaf = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&leaf, &issuer).unwrap();
    std::fs::write(path("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(path("key.pem"), leaf.serialize_pem()).unwrap();
    let tls =
        ServerCertificate { certificate: path("cert.pem"), key: path("key.pem"), is_awaited: false, client_ca: None }
            .server()
            .unwrap();
    let (platform, mut servers) = (Platform::default(), JoinSet::new());
    platform.accept("tok1");
    let port =
        platform.serve_with(ListenerLimits { tls: Some(tls.into()), ..ListenerLimits::default() }, &mut servers).port();
    platform.answers(move |_| {
        let body = format!(r#"{{"links":{{"next":"https://localhost:{port}/api/v2/a?page=2"}}}}"#);
        reply(200, &[("content-type", "application/vnd.api+json")], body)
    });
    let front = |host: &str, ca: Option<&str>| {
        let (upstream, ca_file) = (format!("https://{host}:{port}"), ca.map(path));
        Front::with(|options, _| (options.upstream, options.ca_file) = (upstream.parse().unwrap(), ca_file))
    };
    let trusted = front("localhost", Some("ca.pem"));
    for _ in 0..2 {
        let body: Value = trusted.get("/api/v2/a").await.json().await.unwrap();
        assert_eq!(body["links"]["next"], format!("{}/api/v2/a?page=2", trusted.url));
    }
    assert_eq!(platform.requests()[0].headers["host"], format!("localhost:{port}").as_str());
    for (host, ca) in [("localhost", None), ("127.0.0.1", Some("ca.pem"))] {
        let response = front(host, ca).get("/api/v2/a").await;
        assert_eq!(response.status(), 502, "{host} {ca:?}");
        let detail_text = detail(response).await;
        assert!(detail_text.contains("certificate") && !detail_text.contains("tok1"), "{detail_text}");
    }
    assert_eq!(platform.requests().len(), 2, "no token went to a server that is not the one that was named");
    let other = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
    std::fs::write(path("followed.pem"), other.pem()).unwrap();
    let followed = front("localhost", Some("followed.pem"));
    assert_eq!(followed.get("/api/v2/a").await.status(), 502);
    std::fs::copy(path("ca.pem"), path("followed.pem")).unwrap();
    assert_eq!(followed.get("/api/v2/a").await.status(), 200, "the authorities' file was replaced");
}

#[cfg(feature = "dev")]
#[tokio::test]
async fn a_self_signed_certificate_with_the_mark_of_an_authority_is_accepted_if_the_ca_file_has_it() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let make = |file: &str, past: bool| {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        if past {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(path(file), &pem).unwrap();
        std::fs::write(path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    };
    for (file, past) in [("own.pem", false), ("other.pem", false), ("past.pem", true)] {
        make(file, past);
    }
    let status = async |serves: &str, trusts: &str, host: &str| {
        let pair = ServerCertificate {
            certificate: path(serves),
            key: path(&format!("{serves}.key")),
            is_awaited: false,
            client_ca: None,
        };
        let (platform, mut servers) = (Platform::default(), JoinSet::new());
        platform.accept("tok1");
        let limits = ListenerLimits { tls: Some(pair.server().unwrap().into()), ..ListenerLimits::default() };
        let port = platform.serve_with(limits, &mut servers).port();
        let (upstream, ca_file) = (format!("https://{host}:{port}").parse().unwrap(), Some(path(trusts)));
        let front = Front::with(|options, _| (options.upstream, options.ca_file) = (upstream, ca_file));
        front.get("/api/v2/a").await.status().as_u16()
    };
    assert_eq!(status("own.pem", "own.pem", "localhost").await, 200);
    // Another name, another certificate, and one whose time has passed.
    assert_eq!(status("own.pem", "own.pem", "127.0.0.1").await, 502);
    assert_eq!(status("own.pem", "other.pem", "localhost").await, 502);
    assert_eq!(status("past.pem", "past.pem", "localhost").await, 502);
}

#[tokio::test]
async fn redirects_into_the_api_stay_on_the_gateway_and_addresses_of_providers_lead_to_the_platform() {
    let front = Front::with(|options, _| options.aliases = vec!["https://tfe.internal".parse().unwrap()]);
    let origin = front.upstream.clone();
    let at = origin.clone();
    front.platform.answers(move |request| match request.target.as_str() {
        "/api/registry/v1/modules/a/b/c/versions" => {
            reply(302, &[("location", &format!("{at}/api/registry/private/v2/versions?x=1"))], "")
        }
        "/api/v2/named" => reply(307, &[("location", "https://tfe.internal/api/v2/there")], ""),
        target if target.ends_with("/download/linux/amd64") => {
            let document = r#"{"download_url":"/_archivist/v1/a.zip","shasums_url":"sums","protocols":["5.0"]}"#;
            reply(200, &[("content-type", "application/json")], document)
        }
        _ => reply(200, &[("content-type", "application/json")], r#"{"modules":[]}"#),
    });
    let location = async |path: &str| front.get(path).await.headers()["location"].to_str().unwrap().to_owned();
    let there = location("/api/registry/v1/modules/a/b/c/versions").await;
    assert_eq!(there, "/api/registry/private/v2/versions?x=1");
    assert_eq!(location("/api/v2/named").await, "/api/v2/there");
    let download = "/api/registry/v1/providers/acme/a/1.0.0/download/linux/amd64";
    let document: Value = front.get(download).await.json().await.unwrap();
    let sums = "/api/registry/v1/providers/acme/a/1.0.0/download/linux/sums";
    assert_eq!(document["download_url"], format!("{origin}/_archivist/v1/a.zip"));
    assert_eq!(document["shasums_url"], format!("{origin}{sums}"));
}

#[tokio::test]
async fn an_unlock_is_repeated_while_the_state_is_pending() {
    let front = Front::start();
    let refusals = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&refusals);
    let pending = r#"{"errors":[{"status":"409","detail":"Unable to unlock workspace. The latest state version is still pending"}]}"#;
    front.platform.answers(move |request| {
        let refuses = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let body = if request.target.contains("ws-other") { "{}" } else { pending };
        reply(if refuses { 409 } else { 200 }, &[("content-type", "application/vnd.api+json")], body)
    });
    let unlock = async |workspace: &str, action: &str| {
        let path = format!("/api/v2/workspaces/{workspace}/actions/{action}");
        front.request("POST", &path).send().await.unwrap().status().as_u16()
    };
    assert_eq!(unlock("ws-1", "unlock").await, 200);
    assert_eq!(front.platform.requests().len(), 3);
    // Another refusal, and another call, are the caller's to repeat.
    for (workspace, action) in [("ws-other", "unlock"), ("ws-1", "force-unlock"), ("ws-1", "lock")] {
        refusals.store(1, Ordering::Relaxed);
        assert_eq!(unlock(workspace, action).await, 409, "{workspace} {action}");
    }
    assert_eq!(front.platform.requests().len(), 6);
}

#[tokio::test]
async fn links_with_an_unknown_name_of_the_platform_are_warned_of_once() {
    log::keep();
    let front = Front::with(|options, _| options.aliases = vec!["https://known.example.com".parse().unwrap()]);
    front.platform.answers(|_| {
        let links = r#"{"self":"https://known.example.com/api/v2/a","upload":"https://archivist.example.com/v1/o",
            "next":"https://unknown-name.example.com/api/v2/a?page=2"}"#;
        reply(200, &[("content-type", "application/vnd.api+json")], format!(r#"{{"data":[],"links":{links}}}"#))
    });
    for _ in 0..3 {
        let body: Value = front.get("/api/v2/a").await.json().await.unwrap();
        assert_eq!(body["links"]["self"], format!("{}/api/v2/a", front.url));
    }
    let text = log::text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("unknown-name.example.com")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("gateway.links.unknown") && line.contains("gateway.aliases")),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_platform_behind_a_proxy_is_called_through_it() {
    // base64 of "me:hush"
    let tunnel = Tunnel::start("Basic bWU6aHVzaA==").await;
    let through = |user: &str| {
        let proxy = format!("http://{user}{}", tunnel.address).parse().unwrap();
        Front::with(|options, _| options.proxy = keyward_http::client::ProxyMode::Through(proxy))
    };
    let front = through("me:hush@");
    for _ in 0..3 {
        assert_eq!(front.get("/api/v2/organizations").await.status(), 200);
    }
    assert_eq!(front.platform.requests().len(), 3);
    let heads = tunnel.heads();
    assert_eq!(heads.len(), 1, "one connection is kept: {heads:?}");
    assert!(heads[0].starts_with("CONNECT 127.0.0.1:") && !heads[0].contains("tok1"), "{heads:?}");
    let response = through("").get("/api/v2/organizations").await;
    assert_eq!(response.status(), 502);
    let detail_text = detail(response).await;
    assert!(detail_text.contains("the proxy rejected CONNECT with HTTP 407"), "{detail_text}");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_calls_at_once_stay_within_the_platforms_rate() {
    let front = Front::start();
    let came = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&came);
    front.platform.answers(move |_| {
        noted.lock().push(tokio::time::Instant::now());
        reply(200, &[("content-type", "application/vnd.api+json"), ("x-ratelimit-limit", "30")], r#"{"data":[]}"#)
    });
    let responses = join_all((0..200).map(|_| front.get("/api/v2/organizations"))).await;
    assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
    let mut came = came.lock().clone();
    came.sort();
    assert_eq!(came.len(), 200);
    for (place, window) in came.windows(31).enumerate() {
        let span = window[30] - window[0];
        assert!(span >= Duration::from_secs(1), "31 calls in {span:?}, from call {place} on");
    }
}
