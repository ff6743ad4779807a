//! Responses of the platform with links to rewrite: encoded ones, and redirects inside the API.

use serde_json::Value;

use crate::harness::front::Front;
use crate::harness::log;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;

#[tokio::test]
async fn encoded_responses_are_refused() {
    log::keep();
    let front = Front::start();
    front.platform.answers(|request| {
        let coding = if request.target.contains("plain") { "identity" } else { "gzip" };
        let kind =
            if request.target.contains("blob") { "application/octet-stream" } else { "application/vnd.api+json" };
        let status = if request.target.contains("missing") { 404 } else { 200 };
        reply(status, &[("content-type", kind), ("content-encoding", coding)], "{\"links\":{}}")
    });
    for path in ["/api/v2/workspaces/ws-1", "/api/v2/missing"] {
        let response = front.request("GET", path).header("accept-encoding", "gzip").send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.headers().get("content-encoding")), (502, None), "{path}");
        let body: Value = response.json().await.unwrap();
        let detail = body["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(&front.upstream) && detail.contains("Content-Encoding gzip"), "{detail}");
    }
    let list = front.request("GET", "/api/v2/organizations").header("keyward-merge-pages", "true");
    let body: Value = list.send().await.unwrap().json().await.unwrap();
    assert!(body["errors"][0]["detail"].as_str().unwrap().contains("Content-Encoding gzip"), "{body}");
    assert_eq!(front.get("/api/v2/plain").await.status(), 200);
    assert!(front.platform.requests().iter().all(|request| request.header("accept-encoding") == "identity"));
    let count = log::text().lines().filter(|line| line.contains("gateway.response.encoded")).count();
    assert_eq!(count, 1, "once");
    // A body that is not JSON has no links.
    let mut caller = Raw::tcp(front.address).await;
    let head = |method: &str, path: &str| {
        let local = front.local();
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {local}\r\n\r\n")
    };
    assert_eq!(caller.ask(head("GET", "/api/v2/blob")).await.status, 200);
    caller.send(head("HEAD", "/api/v2/workspaces/ws-1")).await;
    let response = caller.until("\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn a_relative_redirect_inside_the_api_leads_to_the_gateway() {
    let front = Front::start();
    front.platform.answers(|request| match request.target.split('?').next().unwrap() {
        "/api/v2/runs/run-1/old" => reply(307, &[("location", "../run-2?include=plan")], ""),
        "/api/v2/moved" => reply(302, &[("location", "/api/registry/v1/modules")], ""),
        "/api/v2/blob" => reply(302, &[("location", "/_archivist/v1/object/x")], ""),
        "/api/v2/climbs" => reply(302, &[("location", "/api/v2/..%2f..%2fadmin")], ""),
        _ => reply(200, &[("content-type", "text/plain")], request.target.clone()),
    });
    let follows = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, expected) in
        [("/api/v2/runs/run-1/old", "/api/v2/runs/run-2?include=plan"), ("/api/v2/moved", "/api/registry/v1/modules")]
    {
        let response = follows.get(format!("{}{path}", front.url)).bearer_auth(front.local()).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.url().as_str()),
            (200, format!("{}{expected}", front.url).as_str())
        );
        assert_eq!(response.text().await.unwrap(), expected);
    }
    // The client that follows names the gateway as its referrer; a web page names itself.
    let page = front.request("GET", "/api/v2/moved").header("referer", "https://evil.example/").send().await.unwrap();
    assert_eq!(page.status(), 403);
    for (path, expected) in [("/api/v2/blob", "/_archivist/v1/object/x"), ("/api/v2/climbs", "/api/v2/..%2f..%2fadmin")]
    {
        assert_eq!(front.get(path).await.headers()["location"], format!("{}{expected}", front.upstream), "{path}");
    }
}
