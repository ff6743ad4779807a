//! The search in everything: what it finds, and for whom.

use super::{KEY, Pages};

#[tokio::test]
async fn a_search_finds_sessions_records_codes_and_changes_of_the_api() {
    let pages = Pages::start();
    let acl = pages.fill_acl();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let cookie = pages.browser.sign_in("/acl/sign-in", &acl.root, Some(&cookie)).await;
    let agent = pages.browser.page("/agent", &cookie).await;
    assert!(agent.contains("action=\"/search\"") && agent.contains("role=\"search\""), "{agent}");
    for (search, link) in [
        ("MAIN", "href=\"/agent#session-main\"".to_owned()),
        ("listener/api", "href=\"/agent\">listener/api</a>".to_owned()),
        ("kw-1201", "href=\"/codes/KW-1201\"".to_owned()),
        ("app-read", "href=\"/acl/policies/".to_owned()),
        (acl.accessor.as_str(), format!("href=\"/acl/tokens/{}?ns=default\"", acl.accessor.replace('-', "%2D"))),
        (&acl.accessor[..8], format!("href=\"/acl/tokens/{}?ns=default\"", acl.accessor.replace('-', "%2D"))),
        ("timeframe", "href=\"/history?since=2024-10-11&amp;until=2024-10-11\"".to_owned()),
    ] {
        let found = pages.search(search, &cookie).await;
        assert!(found.contains(&link), "{search} does not find {link}: {found}");
        assert!(found.contains(&format!("value=\"{search}\"")), "the field keeps {search}: {found}");
    }
    let code = pages.search("KW-1201", &cookie).await;
    assert!(code.contains("What to do:"), "{code}");
    let nothing = pages.search("nothing is called so", &cookie).await;
    assert!(nothing.contains("Nothing found for"), "{nothing}");
    assert!(pages.search("", &cookie).await.contains("Type a part of a session"));
}

#[tokio::test]
async fn a_search_shows_what_the_browsers_own_token_may_read() {
    let pages = Pages::start();
    let acl = pages.fill_acl();
    let closed = pages.browser.get("/search?q=main").send().await.unwrap();
    assert_eq!(closed.headers()["location"], "/sign-in?next=%2Fsearch%3Fq%3Dmain");

    // The key alone opens nothing of the ACL server, and the token alone nothing of the agent.
    let with_key = pages.browser.sign_in("/sign-in", KEY, None).await;
    let found = pages.search("app-read", &with_key).await;
    assert!(
        !found.contains("/acl/policies/") && found.contains("/acl/sign-in?next=%2Fsearch%3Fq%3Dapp%252Dread"),
        "{found}"
    );
    let with_token = pages.browser.sign_in("/acl/sign-in", &acl.web, None).await;
    let found = pages.search("main", &with_token).await;
    assert!(!found.contains("session/main") && found.contains("/sign-in?next=%2Fsearch%3Fq%3Dmain"), "{found}");

    // A record that exists and may not be read gives the same page as one that does not exist.
    let normalized =
        |page: String, search: &str| page.replace(search, "SEARCH").replace(&search.replace('-', "%252D"), "SEARCH");
    let existing = normalized(pages.search("app-read", &with_token).await, "app-read");
    let missing = normalized(pages.search("no-such-name", &with_token).await, "no-such-name");
    assert_eq!(existing, missing);
    assert!(existing.contains("does not list tokens for your token"), "{existing}");
    // It may read itself.
    let own = pages.search(&acl.accessor, &with_token).await;
    assert!(own.contains("href=\"/acl/tokens/"), "{own}");
}

#[tokio::test]
async fn a_secret_finds_no_token() {
    let pages = Pages::start();
    let acl = pages.fill_acl();
    let cookie = pages.browser.sign_in("/acl/sign-in", &acl.root, None).await;
    for secret in [&acl.web, &acl.root] {
        let found = pages.search(secret, &cookie).await;
        assert!(found.contains("Nothing found for") && !found.contains("href=\"/acl/tokens/"), "{found}");
    }
    let found = pages.search("web", &cookie).await;
    assert!(
        found.contains("href=\"/acl/tokens/") && !found.contains(&acl.web) && !found.contains(&acl.root),
        "{found}"
    );
    assert!(!pages.binary.output().contains(&acl.web), "queries are not logged");
}

#[tokio::test]
async fn a_code_has_a_page_with_its_remedy_for_everybody_and_its_events_for_those_with_the_key() {
    let pages = Pages::start();
    let open = pages.browser.page("/codes/KW-1201", "").await;
    assert!(open.contains("What to do") && !open.contains("Recent events"), "{open}");
    assert!(pages.browser.page("/codes", "").await.contains("href=\"/codes/KW-1201\""));
    assert_eq!(pages.browser.get("/codes/KW-0000").send().await.unwrap().status(), 404);
    pages.binary.logs("KW-1201");
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let page = pages.browser.page("/codes/KW-1201", &cookie).await;
    let events = page.split_once("Recent events with this code").expect("no events").1;
    assert!(events.contains("session=main"), "{events}");
}
