//! Listing tokens.

use std::collections::BTreeSet;
use std::sync::Arc;

use keyward_acl::store::{Batch, Freshness, Store, Write};
use serde_json::{Value, json};

use super::{TOKEN, path_of, policy};
use crate::harness::{Acl, Answer};

async fn accessors(acl: &Acl, query: &str) -> Vec<String> {
    let response = acl.get(&format!("/v1/acl/tokens{query}")).await;
    assert_eq!(response.status, 200, "{query}: {response:?}");
    let listed = response.json();
    listed.as_array().unwrap().iter().map(|token| token["AccessorID"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn token_lists_are_sorted_by_accessor_and_take_one_filter() {
    let acl = Acl::start().await;
    let first = acl.get("/v1/acl/token/self").await.json();
    let anonymous = "00000000-0000-0000-0000-000000000002";
    let links = policy(&acl, "p", "").await;
    let role = acl.make("/v1/acl/role", json!({"Name": "r", "Policies": [{"Name": "p"}]})).await;
    let with_policy = acl.make(TOKEN, json!({"Policies": [{"Name": "p"}]})).await;
    let with_role = acl.make(TOKEN, json!({"Roles": [{"Name": "r"}]})).await;
    let with_service = acl.make(TOKEN, json!({"ServiceIdentities": [{"ServiceName": "web"}]})).await;
    let deleted = acl.make(TOKEN, json!({})).await;
    acl.delete(&path_of(&deleted)).await;

    let all = accessors(&acl, "").await;
    let expected: BTreeSet<&str> = [&first, &with_policy, &with_role, &with_service]
        .into_iter()
        .map(|token| token["AccessorID"].as_str().unwrap())
        .chain([anonymous])
        .collect();
    assert_eq!(all, Vec::from_iter(expected));
    let listed = acl.get("/v1/acl/tokens").await;
    assert!(listed.json().as_array().unwrap().contains(&with_policy), "a list shows what a read shows: {listed:?}");
    assert!(!listed.headers.contains_key("x-service-results-filtered-by-acls"));

    let id = |item: &Value| item["ID"].as_str().unwrap().to_owned();
    let of = |token: &Value| vec![token["AccessorID"].as_str().unwrap().to_owned()];
    for (query, expected) in [
        ("?policy=00000000-0000-0000-0000-000000000001".to_owned(), of(&first)),
        (format!("?policy={}", id(&links)), of(&with_policy)),
        (format!("?role={}", id(&role)), of(&with_role)),
        ("?servicename=web".to_owned(), of(&with_service)),
        ("?policy=p".to_owned(), vec![]),
        ("?role=r".to_owned(), vec![]),
        ("?servicename=we".to_owned(), vec![]),
        ("?authmethod=none".to_owned(), vec![]),
        ("?authmethod=none&authmethod-ns=other".to_owned(), vec![]),
        ("?policy=&role=".to_owned(), all),
    ] {
        assert_eq!(accessors(&acl, &query).await, expected, "{query}");
    }
    let none = acl.get("/v1/acl/tokens?servicename=none").await;
    assert_eq!(none.text, "[]");
    for query in ["policy=x&role=y", "role=x&servicename=y", "servicename=x&authmethod=y", "policy=x&authmethod=y"] {
        let refused = acl.get(&format!("/v1/acl/tokens?{query}")).await;
        let text = "can only filter by one of policy, role, serviceName, or methodName at a time";
        assert_eq!((refused.status, refused.text.as_str()), (400, text), "{query}");
    }
}

/// Writes records into a store.
async fn put(store: Arc<dyn Store>, records: impl IntoIterator<Item = (String, Vec<u8>)>) {
    let writes: Vec<_> = records.into_iter().map(|(key, value)| Write::Put(key.into(), value)).collect();
    for writes in writes.chunks(Batch::MAX_OPERATIONS) {
        store.commit(Batch { checks: vec![], writes: writes.to_vec() }).await.unwrap();
    }
}

#[tokio::test]
async fn a_list_of_many_pages_omits_unreadable_tokens_only() {
    let acl = Acl::start().await;
    let body = json!({"Description": "<x>\n", "ServiceIdentities": [{"ServiceName": "web"}]});
    let made = acl.make(TOKEN, body).await;
    let key = format!("token/default/{}", made["AccessorID"].as_str().unwrap());
    // Six hundred copies of one record under other keys: lists show records as they are.
    let acl = acl
        .restarted_with(async |store| {
            let record = store.get(&key.into(), Freshness::Linearizable).await.unwrap().unwrap().value.to_vec();
            put(store, (0..600).map(|number| (format!("token/default/f{number}"), record.clone()))).await;
        })
        .await;
    let accessor = made["AccessorID"].as_str().unwrap();
    assert_eq!(accessors(&acl, "?servicename=web").await, [accessor; 601]);
    assert_eq!(accessors(&acl, "").await.len(), 603);
    for (query, ends) in [("servicename=web", "    }\n]\n"), ("servicename=none", "[]\n")] {
        let plain = acl.get(&format!("/v1/acl/tokens?{query}")).await.json();
        let pretty = acl.get(&format!("/v1/acl/tokens?pretty&{query}")).await;
        assert!(pretty.json() == plain, "{query}");
        assert!(pretty.text.ends_with(ends), "{query}");
        let indents = pretty.text.lines().map(|line| line.len() - line.trim_start().len());
        assert!(indents.clone().all(|indent| indent % 4 == 0 && indent <= 16), "{query}");
    }

    assert!(!says_unreadable(&acl.get("/v1/acl/tokens").await));

    // A damaged token is omitted, and a header says so.
    let damage = async |store: Arc<dyn Store>, key: &str| put(store, [(key.to_owned(), vec![])]).await;
    let acl = acl.restarted_with(async |store| damage(store, "token/default/0").await).await;
    assert_eq!(accessors(&acl, "").await.len(), 603);
    assert!(says_unreadable(&acl.get("/v1/acl/tokens").await));
    assert!(says_unreadable(&acl.get("/v1/acl/tokens?ns=*&servicename=none").await));
    assert!(!says_unreadable(&acl.get("/v1/acl/roles").await));

    // One found after the headers were sent interrupts the list once; the next list has the header.
    let removed = async |store: Arc<dyn Store>| {
        let writes = vec![Write::Delete("token/default/0".to_owned().into())];
        store.commit(Batch { checks: vec![], writes }).await.unwrap();
        damage(store, "token/default/z").await;
    };
    let acl = acl.restarted_with(removed).await;
    let list = acl.http.get(format!("{}/v1/acl/tokens", acl.url)).header("X-Service-Token", &acl.root);
    // The headers may have been sent by then, or not.
    let response = async { list.send().await?.text().await };
    response.await.unwrap_err();
    assert_eq!(accessors(&acl, "").await.len(), 603);
    assert!(says_unreadable(&acl.get("/v1/acl/tokens").await));
    assert!(acl.metrics.text().contains("keyward_acl_unreadable_records_total 1"));
}

fn says_unreadable(response: &Answer) -> bool {
    let has_header =
        ["x-service-results-unreadable", "x-consul-results-unreadable"].map(|name| response.headers.get(name));
    assert_eq!(has_header[0], has_header[1]);
    has_header[0].is_some_and(|has_header| has_header == "true")
}

#[tokio::test]
async fn a_blocking_list_returns_when_a_token_is_created() {
    let acl = Acl::start().await;
    let before = acl.get("/v1/acl/tokens").await;
    let index: u64 = before.headers["x-service-index"].to_str().unwrap().parse().unwrap();
    let blocked = format!("/v1/acl/tokens?index={index}&wait=20s");
    let (listed, made) = tokio::join!(acl.get(&blocked), async {
        acl.until_a_query_waits().await;
        acl.make(TOKEN, json!({})).await
    });
    assert!(listed.json().as_array().unwrap().contains(&made));
    assert_eq!(listed.headers["x-service-index"].to_str().unwrap(), made["ModifyIndex"].to_string());
    for (query, mode) in [("", "leader"), ("?leader", "leader"), ("?stale", "stale"), ("?consistent", "consistent")] {
        let read = acl.get(&format!("/v1/acl/tokens{query}")).await;
        assert_eq!(read.headers["x-consul-effective-consistency"], mode);
    }
}
