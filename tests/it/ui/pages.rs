//! Content of the pages.

use std::time::Duration;

use super::{KEY, Pages};

#[tokio::test]
async fn the_agents_page_shows_sessions_components_and_recent_events() {
    let pages = Pages::start();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let mut page = String::new();
    for _ in 0..300 {
        page = pages.browser.page("/agent", &cookie).await;
        if page.contains("Failures in a row") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for part in ["http://127.0.0.1:9", "DOWN", "not ready", "listener/api", "class=\"timeline\"", "ui.started"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let live = pages.browser.page("/agent/live", &cookie).await;
    assert!(live.starts_with("<div id=\"live\"") && live.contains("Sessions"), "{live}");
}

#[tokio::test]
async fn the_gateways_pages_show_tokens_without_their_text_and_search_the_history() {
    let pages = Pages::start();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let page = pages.browser.page("/gateway", &cookie).await;
    assert!(page.contains("Platform token") && !page.contains("platform-token-0123456789"), "{page}");
    let all = pages.browser.page("/history", &cookie).await;
    assert!(all.contains("113 changes, page 1 of 6") && all.contains("rel=\"next\""), "{all}");
    let found = pages.browser.page("/history?text=timeframe", &cookie).await;
    assert!(found.contains("Runs list endpoints: new timeframe filter.") && !found.contains("113 changes"), "{found}");
    let wrong = pages.browser.page("/history?kind=nonsense", &cookie).await;
    assert!(wrong.contains("role=\"alert\""), "{wrong}");
}

#[tokio::test]
async fn the_acl_pages_have_the_rights_of_the_token_and_say_why_it_may_do_something() {
    let pages = Pages::start();
    let root = pages.path("root.token");
    pages.acl(&["bootstrap", "--out", root.to_str().unwrap()], None);
    let root = std::fs::read_to_string(root).unwrap().trim().to_owned();
    let rules = pages.path("rules.hcl");
    std::fs::write(&rules, "key_prefix \"app/\" { policy = \"read\" }").unwrap();
    pages.acl(&["policy", "create", "app-read", "--rules", rules.to_str().unwrap()], Some(&root));
    let web = pages.path("web.token");
    let args = ["token", "create", "--policy-name", "app-read", "--description", "<i>web</i>", "--out"];
    pages.acl(&[&args[..], &[web.to_str().unwrap()]].concat(), Some(&root));
    let web = std::fs::read_to_string(web).unwrap().trim().to_owned();

    // The listener's key opens no page of the ACL server.
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let closed = pages.browser.get("/acl/tokens").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(closed.headers()["location"], "/acl/sign-in?next=%2Facl%2Ftokens");
    let limited = pages.browser.sign_in("/acl/sign-in", &web, Some(&cookie)).await;
    let denied = pages.browser.get("/acl/tokens").header("cookie", &limited).send().await.unwrap();
    assert_eq!(denied.status(), 403);
    assert!(denied.text().await.unwrap().contains("lacks permission"));

    let cookie = pages.browser.sign_in("/acl/sign-in", &root, Some(&limited)).await;
    let list = pages.browser.page("/acl/tokens?q=WEB", &cookie).await;
    assert!(list.contains("&lt;i&gt;web&lt;/i&gt;") && !list.contains("<i>web"), "{list}");
    let accessor = list.split_once("href=\"/acl/tokens/").unwrap().1;
    let accessor = accessor.split(['?', '"']).next().unwrap().replace("%2D", "-");
    let record = pages.browser.page(&format!("/acl/tokens/{accessor}"), &cookie).await;
    assert!(record.contains("app-read") && !record.contains(&web) && !record.contains(&root), "{record}");
    let explained =
        pages.browser.page(&format!("/acl/tokens/{accessor}/explain?resource=key&segment=app/x"), &cookie).await;
    for part in
        ["allowed", "denied", "by this rule of policy", "key_prefix &quot;app/&quot; { policy = &quot;read&quot; }"]
    {
        assert!(explained.contains(part), "{part} is not in {explained}");
    }
    let policies = pages.browser.page("/acl/policies?q=app-read", &cookie).await;
    let id = policies.split_once("href=\"/acl/policies/").unwrap().1.split(['?', '"']).next().unwrap().to_owned();
    let policy = pages.browser.page(&format!("/acl/policies/{id}"), &cookie).await;
    assert!(policy.contains("Tokens that depend on it") && policy.contains(&accessor), "{policy}");
    for kind in ["roles", "namespaces", "auth-methods", "binding-rules"] {
        pages.browser.page(&format!("/acl/{kind}"), &cookie).await;
    }
    assert!(!pages.binary.output().contains(&web) && !pages.binary.output().contains(&root));
}
