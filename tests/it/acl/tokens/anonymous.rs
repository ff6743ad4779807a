//! The anonymous token: its secret is well known, and no caller deletes it with it.

use keyward_acl::store::{Batch, Freshness, Page, Store, Write};
use serde_json::{Value, json};

use super::TOKEN;
use crate::harness::Acl;

/// Accessor of the anonymous token.
pub(crate) const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";

/// Returns the refusal of a call without a token, which names the anonymous one if that exists.
pub(crate) async fn refusal_without_token(acl: &Acl) -> (u16, String) {
    let response = acl.call("GET", "/v1/acl/tokens", None, None).await;
    (response.status, response.text)
}

/// Text of [`refusal_without_token`] while the anonymous token exists.
pub(crate) const LACKS: &str = "Permission denied: anonymous token lacks permission 'acl:read'. The anonymous token is used \
    implicitly when a request does not specify a token.";

/// Deletes all records of the anonymous token.
pub(crate) async fn delete_records(store: &dyn Store) {
    let mut writes = vec![Write::Delete(format!("token/default/{ANONYMOUS}").into())];
    let page = Page { after: None, limit: 1000 };
    let index = store.list("token-id/", page, Freshness::Linearizable).await.unwrap();
    let own = |value: &[u8]| String::from_utf8_lossy(value).contains(ANONYMOUS);
    writes
        .extend(index.entries.into_iter().filter(|(_, record)| own(&record.value)).map(|(key, _)| Write::Delete(key)));
    assert_eq!(writes.len(), 3);
    store.commit(Batch { checks: vec![], writes }).await.unwrap();
}

#[tokio::test]
async fn no_way_of_presenting_the_anonymous_token_deletes_it() {
    let acl = Acl::start().await;
    let refused = "Delete operation not permitted on the anonymous token";
    for header in ["X-Vault-Token", "X-Consul-Token", "X-Service-Token"] {
        for method in ["POST", "PUT"] {
            let response = acl.send(method, "/v1/auth/token/revoke-self", &[(header, "anonymous")], b"").await;
            assert_eq!((response.status, response.error().as_str()), (400, refused), "{method} {header}");
        }
    }
    let bearer = [("Authorization", "Bearer anonymous")];
    assert_eq!(acl.send("POST", "/v1/auth/token/revoke-self", &bearer, b"").await.status, 400);
    let own = format!("{TOKEN}/{ANONYMOUS}");
    let response = acl.delete(&own).await;
    assert_eq!((response.status, response.text.as_str()), (400, refused));
    let response = acl.call("POST", "/v1/acl/logout", Some("anonymous"), None).await;
    assert_eq!((response.status, response.text.as_str()), (403, "Permission denied: token wasn't created via login"));
    assert_eq!(acl.call("DELETE", &own, Some("anonymous"), None).await.status, 403);

    // Its accessor and the other reserved ids are no secrets.
    for id in [ANONYMOUS, "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000000"] {
        let response = acl.send("POST", "/v1/auth/token/revoke-self", &[("X-Vault-Token", id)], b"").await;
        assert_eq!(response.status, 403, "{id}: {response:?}");
        let response = acl.call("GET", "/v1/acl/tokens", Some(id), None).await;
        assert_eq!((response.status, response.text.as_str()), (403, "ACL not found"), "{id}");
    }

    assert_eq!(refusal_without_token(&acl).await, (403, LACKS.to_owned()));
    let named = acl.call("GET", "/v1/acl/tokens", Some("anonymous"), None).await;
    assert_eq!((named.status, named.text.as_str()), (403, LACKS));
    let look_up = acl.send("GET", "/v1/auth/token/lookup-self", &[("X-Vault-Token", "anonymous")], b"").await;
    assert_eq!((look_up.status, &look_up.json()["data"]["accessor"]), (200, &json!(ANONYMOUS)));
    let renew = acl.send("POST", "/v1/auth/token/renew-self", &[("X-Vault-Token", "anonymous")], b"").await;
    assert_eq!(renew.status, 400, "{renew:?}");

    // As in Consul it can be changed, which keeps its ids, and cloned, which makes another token.
    let changed = acl.make(&own, json!({"Description": "changed"})).await;
    let ids = |token: &Value| (token["AccessorID"].clone(), token["SecretID"].clone());
    assert_eq!(ids(&changed), (json!(ANONYMOUS), json!("anonymous")));
    let clone = acl.make(&format!("{own}/clone"), json!({})).await;
    assert!(clone["AccessorID"] != ANONYMOUS && clone["SecretID"] != "anonymous", "{clone}");
    let response = acl.put(&own, json!({"SecretID": "6a1253d2-1785-24fd-91c2-f8e78c745511"})).await;
    assert_eq!((response.status, response.text.as_str()), (400, "Changing a token's SecretID is not permitted"));
}

#[tokio::test]
async fn a_store_without_the_anonymous_token_has_it_again_after_a_start() {
    let acl = Acl::start().await;
    let acl = acl.restarted_with(async |store| delete_records(&*store).await).await;
    assert_eq!(refusal_without_token(&acl).await, (403, LACKS.to_owned()));
    let named = acl.call("GET", "/v1/acl/token/self", Some("anonymous"), None).await;
    assert_eq!((named.status, &named.json()["AccessorID"]), (200, &json!(ANONYMOUS)), "{named:?}");
    acl.make(&format!("{TOKEN}/{ANONYMOUS}"), json!({"Description": "kept"})).await;
    // An existing one stays as it is, and one that cannot be read does not stop the server.
    let acl = acl.restarted().await;
    assert_eq!(acl.get(&format!("{TOKEN}/{ANONYMOUS}")).await.json()["Description"], "kept");
    let damage = Write::Put(format!("token/default/{ANONYMOUS}").into(), b"nonsense".to_vec());
    let acl = acl
        .restarted_with(async |store| {
            store.commit(Batch { checks: vec![], writes: vec![damage] }).await.unwrap();
        })
        .await;
    assert_eq!(acl.get("/v1/acl/tokens").await.status, 200);
    assert_eq!(refusal_without_token(&acl).await.0, 500);
}
