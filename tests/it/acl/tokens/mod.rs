//! Tokens over HTTP, compared with Consul case by case.

pub(crate) mod anonymous;
mod change;
mod create;
mod list;
mod namespaces;
mod read;
mod sweep;

use serde_json::{Value, json};

use crate::harness::Acl;

const TOKEN: &str = "/v1/acl/token";

/// Returns the path of a token.
fn path_of(token: &Value) -> String {
    format!("{TOKEN}/{}", token["AccessorID"].as_str().unwrap())
}

fn secret_of(token: &Value) -> &str {
    token["SecretID"].as_str().unwrap()
}

/// Creates a token, which must fail; returns status and text.
async fn refused(acl: &Acl, body: Value) -> (u16, String) {
    let response = acl.put(TOKEN, body.clone()).await;
    assert_ne!(response.status, 200, "{body} made {response:?}");
    (response.status, response.text)
}

/// Creates a policy.
async fn policy(acl: &Acl, name: &str, rules: &str) -> Value {
    acl.make("/v1/acl/policy", json!({"Name": name, "Rules": rules})).await
}
