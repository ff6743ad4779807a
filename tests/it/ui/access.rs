//! Access to the pages.

use super::{KEY, Pages};

#[tokio::test]
async fn pages_open_with_the_key_in_a_cookie_that_no_script_and_no_other_site_gets() {
    let pages = Pages::start();
    let closed = pages.browser.get("/gateway").send().await.unwrap();
    assert_eq!(
        (closed.status().as_u16(), &closed.headers()["location"]),
        (303, &"/sign-in?next=%2Fgateway".parse().unwrap())
    );
    let response = pages.browser.get("/history?kind=removal").send().await.unwrap();
    assert_eq!(
        response.headers()["location"],
        "/sign-in?next=%2Fhistory%3Fkind%3Dremoval",
        "it leads back to the query"
    );
    let wrong = pages.browser.post("/sign-in", &[("secret", "not-the-key-0123456789")]).send().await.unwrap();
    assert_eq!((wrong.status().as_u16(), wrong.headers().get("set-cookie")), (403, None));
    let right =
        pages.browser.post("/sign-in", &[("secret", KEY), ("next", "https://evil.example/")]).send().await.unwrap();
    assert_eq!(right.headers()["location"], "/");
    let cookie = right.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-keyward="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=900; HttpOnly; Secure; SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let page = pages.browser.page("/agent", pair).await;
    assert!(page.contains("<h1>Agent</h1>") && !page.contains(KEY), "{page}");
    let out = pages.browser.post("/sign-out", &[]).header("cookie", pair).send().await.unwrap();
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(pages.browser.get("/agent").header("cookie", pair).send().await.unwrap().status(), 303);
    assert!(!pages.binary.output().contains(KEY));
}

#[tokio::test]
async fn every_response_forbids_foreign_content_and_frames() {
    let pages = Pages::start();
    for path in ["/sign-in", "/static/style.css", "/static/mark.svg", "/static/htmx.js", "/agent", "/nothing"] {
        let response = pages.browser.get(path).send().await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{path}");
        assert!(response.headers().get("access-control-allow-origin").is_none(), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_with_the_right_cookie_too() {
    let pages = Pages::start();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let get =
        |name: &'static str, value: &str| pages.browser.get("/agent").header("cookie", &cookie).header(name, value);
    for (request, status) in [
        (get("origin", "http://evil.example"), 403),
        (get("origin", "null"), 403),
        (get("sec-fetch-site", "cross-site"), 403),
        (get("sec-fetch-site", "same-site"), 403),
        (get("host", "evil.example"), 421),
        (get("x-forwarded-for", "192.0.2.1"), 400),
        (get("sec-fetch-site", "same-origin"), 200),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{response:?}");
    }
    let form = || pages.browser.http.post(format!("{}/sign-out", pages.browser.origin)).header("cookie", &cookie);
    let typed = "application/x-www-form-urlencoded";
    assert_eq!(form().header("content-type", typed).send().await.unwrap().status(), 403, "without an origin");
    let foreign = form().header("content-type", typed).header("origin", "http://evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    assert_eq!(
        pages.browser.get("/agent").header("cookie", &cookie).send().await.unwrap().status(),
        200,
        "it is still signed in"
    );
}

#[tokio::test]
async fn the_anonymous_token_opens_no_session() {
    let pages = Pages::start();
    let response = pages.browser.post("/acl/sign-in", &[("secret", "anonymous")]).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().get("set-cookie")), (403, None));
    assert!(response.text().await.unwrap().contains("the ACL server refuses this token: it is the anonymous one"));
}

#[tokio::test]
async fn attempts_to_guess_the_key_are_limited() {
    let pages = Pages::start();
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let response = pages.browser.post("/sign-in", &[("secret", "guess")]).send().await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 403).count(), 10, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    pages.binary.logs("reason=\"rate\"");
    let output = pages.binary.output();
    for (reason, message) in [("key", "this is not the key of the listener"), ("rate", "too many attempts to sign in")]
    {
        let reason = format!("reason=\"{reason}\"");
        let line = |line: &&str| line.contains("local.refused") && line.contains(&reason) && line.contains(message);
        assert!(output.lines().any(|text| line(&text)), "{output}");
    }
}

#[test]
fn a_listener_of_pages_needs_loopback_or_tls_and_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyward.toml");
    let text = "[listener.a]\nkind = \"ui\"\naddress = \"unix:///tmp/a.sock\"\nany_local_user = true\n\
                [listener.b]\nkind = \"ui\"\naddress = \"tcp://192.0.2.1:8310\"\n\
                [listener.c]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8311\"\ntls_cert = \"/tmp/cert.pem\"\n";
    std::fs::write(&path, text).unwrap();
    let (code, output, error) = crate::harness::binary::run(&["check", path.to_str().unwrap()], &[]);
    assert_eq!(code, 3, "{output}{error}");
    for part in [
        "a browser cannot open a unix socket",
        "whoever opens its pages gives the key",
        "would show pages on 192.0.2.1 unencrypted",
        "only allowed on a listener of kind = \"api_proxy\" or \"ui\"",
    ] {
        assert!(format!("{output}{error}").contains(part), "{part}: {output}{error}");
    }
}
