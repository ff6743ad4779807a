//! Lists that are sent in pieces.

use keyward_acl::store::{Batch, Freshness, Key, Page, Store, Write};
use serde_json::{Value, json};

use crate::harness::{Acl, issuer};

/// Copies a record of each kind under other ids, so that the list of the kind has more than one page and piece.
async fn multiply(store: &dyn Store, kinds: &[&str]) {
    let mut writes = Vec::new();
    for kind in kinds {
        let page = Page { after: None, limit: 100 };
        let listing = store.list(&format!("{kind}/"), page, Freshness::Linearizable).await.unwrap();
        let is_pattern = |value: &[u8]| String::from_utf8_lossy(value).contains("pattern");
        let (key, record) = listing.entries.into_iter().find(|(_, record)| is_pattern(&record.value)).unwrap();
        let value = String::from_utf8(record.value.to_vec()).unwrap();
        let id = key.last_segment();
        for number in 0..COPIES {
            // The last digits of an id are not part of its version, and names have none.
            let copy = format!("{}{number:04}", &id[..id.len().saturating_sub(4)]);
            let value = value.replace(id, &copy).into_bytes();
            let key = key.as_str().strip_suffix(id).unwrap();
            writes.push(Write::Put(Key::from(format!("{key}{copy}")), value));
        }
    }
    for writes in writes.chunks(Batch::MAX_OPERATIONS) {
        store.commit(Batch { checks: Vec::new(), writes: writes.to_vec() }).await.unwrap();
    }
}

const COPIES: usize = 600;

#[tokio::test]
async fn a_long_list_of_any_kind_is_sent_in_pieces_and_is_complete() {
    let acl = Acl::start().await;
    let description = format!("pattern {}", "x".repeat(200));
    let policy = acl.make("/v1/acl/policy", json!({"Name": "p", "Description": description})).await;
    let links = json!([{"ID": policy["ID"]}]);
    acl.make("/v1/acl/role", json!({"Name": "r", "Description": description, "Policies": links})).await;
    acl.make("/v1/acl/token", json!({"Description": description, "Policies": links})).await;
    acl.jwt_method("pattern-0000", &issuer::Key::shared("k")).await;
    let rule =
        json!({"AuthMethod": "pattern-0000", "BindType": "service", "BindName": "web", "Description": description});
    acl.make("/v1/acl/binding-rule", rule).await;
    acl.make("/v1/namespace", json!({"Name": "pattern-0000", "Description": description})).await;
    let kinds = ["policy", "role", "token", "auth-method", "binding-rule", "namespace"];
    let acl = acl.restarted_with(async |store| multiply(&*store, &kinds).await).await;
    let policy = policy["ID"].as_str().unwrap();
    for (path, id, filter) in [
        ("/v1/acl/policies", "ID", None),
        ("/v1/acl/roles", "ID", Some(format!("policy={policy}"))),
        ("/v1/acl/tokens", "AccessorID", Some(format!("policy={policy}"))),
        ("/v1/acl/auth-methods", "Name", None),
        ("/v1/acl/binding-rules", "ID", Some("authmethod=pattern-0000".to_owned())),
        ("/v1/namespaces", "Name", None),
    ] {
        let list = acl.get(path).await;
        assert_eq!((list.status, list.headers.contains_key("content-length")), (200, false), "{path}");
        let records = list.json().as_array().unwrap().clone();
        assert!(records.len() >= COPIES, "{path}: {} records", records.len());
        let ids: Vec<&str> = records.iter().map(|record| record[id].as_str().unwrap()).collect();
        assert!(ids.is_sorted_by(|one, other| one < other), "{path}: each record once, in order");
        assert!(list.text.len() > 64 * 1024, "{path}: {} bytes", list.text.len());

        let pretty = acl.get(&format!("{path}?pretty")).await.text;
        assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), list.json(), "{path}");
        assert!(pretty.starts_with("[\n    {\n        \"") && pretty.ends_with("\n    }\n]\n"), "{path}: {pretty:.40}");
        if let Some(filter) = filter {
            let found = acl.get(&format!("{path}?{filter}")).await.json().as_array().unwrap().len();
            assert!((COPIES..=COPIES + 2).contains(&found), "{path}?{filter}: {found}");
        }
        // Records that are not shown are searched, too.
        let none = acl.get(&format!("{path}?policy={}&authmethod=other", uuid::Uuid::nil())).await;
        if path.contains("role") || path.contains("rule") {
            assert_eq!((none.text.as_str(), none.headers.contains_key("content-length")), ("[]", true), "{path}");
        }
    }
    // The header says that namespaces are omitted, although the first piece has none.
    let rules = "namespace_prefix \"\" { policy = \"read\" }\nnamespace \"pattern-0599\" { policy = \"deny\" }";
    let limited = acl.token_with(rules).await;
    let list = acl.call("GET", "/v1/namespaces", Some(&limited), None).await;
    assert_eq!((list.status, list.headers.contains_key("x-service-results-filtered-by-acls")), (200, true));
    assert!(!list.text.contains("pattern-0599") && list.text.contains("pattern-0598"));
}
