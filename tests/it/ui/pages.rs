//! Content of the pages.

use std::time::Duration;

use super::{AclTokens, KEY, Pages};

/// Waits until the page of the agent shows that the login has failed; its server does not exist.
async fn page_of_an_outage(pages: &Pages, cookie: &str) -> String {
    pages.binary.logs("code=\"KW-1201\"");
    let mut page = String::new();
    for _ in 0..300 {
        page = pages.browser.page("/agent", cookie).await;
        if page.contains("Failures in a row") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    page
}

#[tokio::test]
async fn the_agents_page_shows_problems_first_with_their_remedy_and_folds_what_works() {
    let pages = Pages::start();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let page = page_of_an_outage(&pages, &cookie).await;
    let places = ["Not ready", "id=\"problems\"", "id=\"sessions\"", "id=\"components\"", "id=\"events\""];
    let places: Vec<usize> = places.iter().map(|part| page.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{page}");
    let (problems, rest) = page.split_once("id=\"sessions\"").unwrap();
    for part in ["DOWN", "session/main", "Connection refused", "What to do:", "href=\"/codes/KW-1201\""] {
        assert!(problems.contains(part), "{part} is not in {problems}");
    }
    assert!(!problems.contains("listener/api"), "{problems}");
    let folded = rest.split_once("<details").unwrap().1.split_once("</details>").unwrap().0;
    assert!(folded.contains("listener/api") && !folded.contains("session/main"), "{folded}");
    for part in ["http://127.0.0.1:9", "class=\"timeline\"", "class=\"legend\"", "retries at", "ui.started"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let code = pages.browser.page("/codes/KW-1201", &cookie).await;
    assert!(code.contains("<h1>KW-1201: "), "{code}");

    let live = pages.browser.page("/agent/live", &cookie).await;
    for id in ["state", "session-cards", "certificate-cards", "working-count", "working-rows", "event-rows"] {
        assert!(live.contains(&format!("<div id=\"{id}\" hx-swap-oob=\"innerHTML\">")), "{id} is not in {live}");
        assert!(page.contains(&format!("id=\"{id}\"")), "{id} has no place in {page}");
    }
}

#[tokio::test]
async fn events_are_filtered_by_level_and_session_and_the_own_sign_in_is_not_among_them() {
    let pages = Pages::start();
    let other = pages.browser.sign_in("/sign-in", KEY, None).await;
    let events = |page: String| page.split_once("id=\"event-rows\"").unwrap().1.to_owned();
    assert!(!events(pages.browser.page("/agent", &other).await).contains("ui.signed_in"), "its own sign-in");
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let page = page_of_an_outage(&pages, &cookie).await;
    for part in ["<option value=\"main\">main</option>", "<option value=\"warning\">Warnings and errors</option>"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    // The first browser's sign-in is shown to the second one, and the second one's to the first.
    for cookie in [&cookie, &other] {
        let all = events(pages.browser.page("/agent", cookie).await);
        assert_eq!(all.matches("ui.signed_in").count(), 1, "{all}");
    }
    let warnings = pages.browser.page("/agent?level=warning", &cookie).await;
    assert!(warnings.contains("<option value=\"warning\" selected>"), "{warnings}");
    assert!(warnings.contains("hx-get=\"/agent/live?level=warning\""), "the refresh keeps the filter: {warnings}");
    let warnings = events(warnings);
    assert!(warnings.contains("KW-1201") && !warnings.contains("ui.started"), "{warnings}");
    let of_session = events(pages.browser.page("/agent?session=main", &cookie).await);
    assert!(of_session.contains("session=main") && !of_session.contains("ui.started"), "{of_session}");
    let none = events(pages.browser.page("/agent/live?session=other", &cookie).await);
    assert!(none.contains("No event matches."), "{none}");
}

#[tokio::test]
async fn the_gateways_pages_show_tokens_without_their_text_and_filter_the_history() {
    let pages = Pages::start();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let page = pages.browser.page("/gateway", &cookie).await;
    assert!(page.contains("Platform token") && !page.contains("platform-token-0123456789"), "{page}");
    let all = pages.browser.page("/history", &cookie).await;
    assert!(all.contains("113 changes, page 1 of 6") && all.contains("rel=\"next\""), "{all}");
    assert!(all.contains("<code>vcs-speculative-plan-management</code>") && !all.contains('`'), "{all}");
    assert_eq!(all.matches("<td data-label=\"Date\">").count(), 20, "one column of dates");
    for part in [
        "<option value=\"deprecated\">Deprecated</option>",
        "<option value=\"PATCH\">PATCH</option>",
        "<option value=\"policy-checks\">policy-checks</option>",
        "<option value=\"workspaces\">workspaces</option>",
        "type=\"date\" name=\"since\"",
    ] {
        assert!(all.contains(part), "{part} is not in {all}");
    }
    let found = pages.browser.page("/history?text=timeframe", &cookie).await;
    assert!(found.contains("Runs list endpoints: new timeframe filter.") && !found.contains("113 changes"), "{found}");
    let filtered =
        pages.browser.page("/history?kind=deprecated&resource=policy-checks&since=2024-09-02", &cookie).await;
    assert!(
        filtered.contains("<option value=\"policy-checks\" selected>") && filtered.contains("1 change, page 1 of 1"),
        "{filtered}"
    );
    let wrong = pages.browser.page("/history?kind=nonsense", &cookie).await;
    assert!(wrong.contains("role=\"alert\""), "{wrong}");
    let none = pages.browser.page("/history?text=nothing-is-called-so", &cookie).await;
    assert!(none.contains("No change matches the filter."), "{none}");
}

#[tokio::test]
async fn the_acl_pages_have_the_rights_of_the_token_and_say_why_it_may_do_something() {
    let pages = Pages::start();
    let AclTokens { root, web, accessor } = pages.fill_acl();

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
    let record = pages.browser.page(&format!("/acl/tokens/{accessor}"), &cookie).await;
    assert!(record.contains("app-read") && !record.contains(&web) && !record.contains(&root), "{record}");
    let (facts, folded) = record.split_once("Other fields of the API").unwrap();
    for field in ["CreateIndex", "Hash"] {
        assert!(!facts.contains(field) && folded.contains(field), "{field}: {record}");
    }
    for part in ["Accessor", "Policies in force", "What may this token do?"] {
        assert!(facts.contains(part), "{part} is not in {facts}");
    }
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
