//! Tokens over HTTP: what real services of this kind do, case by case, and what this one does otherwise.

mod change;
mod create;
mod list;
mod namespaces;
mod read;

use serde_json::{Value, json};

use crate::harness::Acl;

const TOKEN: &str = "/v1/acl/token";

/// The path of a token that was answered with.
fn path_of(token: &Value) -> String {
    format!("{TOKEN}/{}", token["AccessorID"].as_str().unwrap())
}

fn secret_of(token: &Value) -> &str {
    token["SecretID"].as_str().unwrap()
}

/// Asks for a new token and says how that was refused.
async fn refused(acl: &Acl, body: Value) -> (u16, String) {
    let answer = acl.put(TOKEN, body.clone()).await;
    assert_ne!(answer.status, 200, "{body} made {answer:?}");
    (answer.status, answer.text)
}

/// A policy with these rules.
async fn policy(acl: &Acl, name: &str, rules: &str) -> Value {
    acl.make("/v1/acl/policy", json!({"Name": name, "Rules": rules})).await
}
