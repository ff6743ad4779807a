//! The emulated platform's lists: the ten that have pages since 2021-11-17, and the others.

use http::Method;
use keyward_emulators::platform::Paging;
use serde_json::{Value, json};

use crate::harness::platform::{Emulated, text};

/// The ten lists, each with five entries or more.
pub(crate) async fn ten(it: &Emulated) -> [String; 10] {
    let faults = it.platform.faults();
    faults.limit(None);
    let workspace = it.make("/api/v2/organizations/example/workspaces", json!({"name": "web"})).await;
    let user = text(&it.get("/api/v2/account/details").await.with(200)["data"]["id"]);
    for (list, parent) in [
        ("feature-sets", ""),
        ("notification-configurations", workspace.as_str()),
        ("oauth-clients", "example"),
        ("oauth-tokens", "oc-1"),
        ("organizations", ""),
        ("policy-checks", "run-1"),
        ("vars", "polset-1"),
        ("ssh-keys", "example"),
    ] {
        assert_eq!(faults.fill(list, parent, 5), 5);
    }
    for number in 0..5 {
        faults.mint(&format!("token {number}"));
    }
    [
        "/feature-sets".to_owned(),
        format!("/workspaces/{workspace}/notification-configurations"),
        "/organizations/example/oauth-clients".to_owned(),
        "/oauth-clients/oc-1/oauth-tokens".to_owned(),
        "/organizations/example/feature-sets".to_owned(),
        "/organizations".to_owned(),
        "/runs/run-1/policy-checks".to_owned(),
        "/policy-sets/polset-1/parameters".to_owned(),
        "/organizations/example/ssh-keys".to_owned(),
        format!("/users/{user}/authentication-tokens"),
    ]
}

#[tokio::test]
async fn the_ten_lists_are_complete_unless_a_page_is_requested() {
    let it = Emulated::start();
    for path in ten(&it).await {
        let path = format!("/api/v2{path}");
        let whole = it.get(&path).await.with(200);
        let all = whole["data"].as_array().unwrap().clone();
        assert!(all.len() >= 5 && whole["meta"].is_null() && whole["links"].is_null(), "{path}: {whole}");

        // The pages, followed by their links, are the whole list.
        let mut next = format!("{path}?page%5Bsize%5D=2");
        let mut items = Vec::new();
        while !next.is_empty() {
            let page = it.get(&next).await.with(200);
            let pagination = &page["meta"]["pagination"];
            assert_eq!(
                (&pagination["total-count"], &pagination["page-size"]),
                (&json!(all.len()), &json!(2)),
                "{path}"
            );
            let last = text(&page["links"]["last"]);
            assert!(last.starts_with(it.platform.url()) && last.contains("page%5Bnumber%5D="), "{last}");
            items.extend(page["data"].as_array().unwrap().clone());
            next = text(&page["links"]["next"]);
            assert_eq!(next.is_empty(), pagination["next-page"].is_null(), "{page}");
        }
        let id = |entry: &Value| text(&entry["id"]);
        assert_eq!(items.iter().map(id).collect::<Vec<_>>(), all.iter().map(id).collect::<Vec<_>>(), "{path}");
    }
}

#[tokio::test]
async fn fault_injection_sets_the_paging_of_the_ten_lists() {
    let it = Emulated::start();
    for path in ten(&it).await {
        let page = async |paging: Paging, query: &str| {
            it.platform.faults().paging(paging);
            it.get(&format!("/api/v2{path}{query}")).await.with(200)["meta"]["pagination"].take()
        };
        assert_eq!(page(Paging::Always, "").await["current-page"], 1, "{path}");
        assert!(page(Paging::Never, "?page%5Bnumber%5D=2").await.is_null(), "{path}");
        assert_eq!(page(Paging::Looping, "?page%5Bnumber%5D=1").await["next-page"], 1, "{path}");
    }
}

#[tokio::test]
async fn other_lists_are_always_paged_or_never() {
    let it = Emulated::start();
    it.platform.faults().limit(None);
    let teams = "/api/v2/organizations/example/teams";
    for number in 1..=25 {
        it.post(teams, json!({"name": format!("team-{number}")})).await.with(201);
    }
    let first = it.get(teams).await.with(200);
    assert_eq!((first["data"].as_array().unwrap().len(), &first["meta"]["pagination"]["next-page"]), (20, &json!(2)));
    let named = it.get(&format!("{teams}?filter%5Bnames%5D=team-3,team-4")).await.with(200);
    assert_eq!(named["meta"]["pagination"]["total-count"], 2);
    let searched = it.get(&format!("{teams}?q=team-2&page%5Bsize%5D=1")).await.with(200);
    assert_eq!(searched["meta"]["pagination"]["total-count"], 7);
    assert!(text(&searched["links"]["next"]).contains("q=team-2"), "links keep what was asked: {searched}");
    it.get(&format!("{teams}?page%5Bnumber%5D=x")).await.with(400);

    let workspace = it.make("/api/v2/organizations/example/workspaces", json!({"name": "web"})).await;
    let vars = format!("/api/v2/workspaces/{workspace}/vars");
    for number in 1..=25 {
        it.post(&vars, json!({"key": format!("k{number}"), "value": "v"})).await.with(201);
    }
    let all = it.get(&format!("{vars}?page%5Bnumber%5D=2")).await.with(200);
    assert!(all["data"].as_array().unwrap().len() == 25 && all["meta"].is_null(), "{all}");
}

#[tokio::test]
async fn entries_are_made_shown_changed_and_removed_and_keep_their_secrets() {
    let it = Emulated::start();
    let keys = "/api/v2/organizations/example/ssh-keys";
    let id = it.make(keys, json!({"name": "deploy", "value": "PRIVATE KEY"})).await;
    let one = format!("/api/v2/ssh-keys/{id}");
    assert!(!it.get(&one).await.with(200).to_string().contains("PRIVATE"));
    assert!(it.post(keys, json!({"name": "deploy"})).await.refused(422).contains("can't be blank"));
    let body = json!({"data": {"attributes": {"name": "other"}}}).to_string().into_bytes();
    let changed = it.send(Method::PATCH, &one, Some(it.token()), Some(body)).await.with(200);
    assert_eq!(changed["data"]["attributes"]["name"], "other");
    it.delete(&one).await.with(204);
    it.get(&one).await.with(404);

    let projects = "/api/v2/organizations/example/projects";
    it.make(projects, json!({"name": "x".repeat(40)})).await;
    let long = it.post(projects, json!({"name": "x".repeat(41)})).await;
    assert!(long.refused(422).contains("maximum is 40 characters"), "the entry of 2024-04-25");

    let workspace = it.make("/api/v2/organizations/example/workspaces", json!({"name": "web"})).await;
    let vars = format!("/api/v2/workspaces/{workspace}/vars");
    let made = it.post(&vars, json!({"key": "k", "value": "hush", "sensitive": true})).await.with(201);
    assert!(made["data"]["attributes"]["value"].is_null(), "{made}");
}
