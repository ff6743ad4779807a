//! Answers that a real OpenBao gave, as the agent's own client reads them. The snapshot has a line for each.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use keyward_agent::server_client::{CallError, LoginRequest, SecretOp, SecretRequest, SecretResponse, ServerClient};
use keyward_agent::token::{ClientToken, Lease};
use keyward_emulators::axum_service;
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use parking_lot::Mutex;
use serde_json::Value;

use crate::harness::recording::{RecordedCall, recorded_calls};
use crate::harness::secrets::options;

/// Calls that the client does not make, or that it answers with calls of its own: the path of a key-value store without its
/// folders.
fn is_left_out(call: &RecordedCall) -> bool {
    let own = ["sys/capabilities-self", "sys/wrapping/unwrap"];
    (call.path.starts_with("sys/") && !own.contains(&&*call.path))
        || ["kv2 read without data/", "kv2 list without metadata/", "kv2 list of the mount", "pki ca pem"]
            .contains(&&*call.name)
        || ["DELETE", "PATCH"].contains(&&*call.method)
}

fn describe_lease(lease: &Lease) -> String {
    let renewable = if lease.renewable { "renewable" } else { "not renewable" };
    format!("{} s, {renewable}", lease.ttl.as_secs())
}

fn describe_error(error: &CallError) -> String {
    format!("{:?}: {error}", error.verdict())
}

/// Fields of a secret with their types; texts are not shown, as their lengths differ between servers.
fn describe_secret(response: &SecretResponse) -> String {
    let kind = |value: &Value| match value {
        Value::String(text) if text.contains("-----BEGIN") => {
            let labels: Vec<_> = text.split("-----").skip(1).step_by(2).collect();
            format!("PEM of {}", labels.join(", "))
        }
        Value::String(_) => "text".to_owned(),
        Value::Array(values) => format!("list of {}", values.len()),
        Value::Object(fields) => format!("{{{}}}", fields.keys().cloned().collect::<Vec<_>>().join(" ")),
        value => value.to_string(),
    };
    let data = serde_json::to_value(&*response.data).unwrap();
    let hidden = ["expiration", "not_before"];
    let fields = data.as_object().unwrap().iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| {
            let shown = if hidden.contains(&&**name) { "number".to_owned() } else { kind(value) };
            format!("{name}: {shown}")
        })
        .collect();
    let lease = response.lease.as_ref().map(|lease| format!("; lease of {}", describe_lease(&lease.lease)));
    let again = response.suggested_ttl.map(|ttl| format!("; again after {} s", ttl.as_secs()));
    format!("{}{}{}", fields.join(", "), lease.unwrap_or_default(), again.unwrap_or_default())
}

/// Makes the client's call for a recorded one, and describes what it reads.
async fn read(upstream: &ServerClient, call: &RecordedCall) -> String {
    let token = ClientToken::parse(SecretString::from("s.token")).unwrap();
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let outcome = match (path, &*call.method) {
        ("auth/token/lookup-self", _) => upstream.lookup_self(&token, None).await.map(|lookup| {
            let kind = if lookup.batch { "batch" } else { "service" };
            format!("{kind} token, {}, accessor: {}", describe_lease(&lookup.lease), lookup.accessor.is_some())
        }),
        ("auth/token/renew-self", _) => {
            upstream.renew_self(&token, None).await.map(|renewed| describe_lease(&renewed.lease))
        }
        ("auth/token/revoke-self", _) => upstream.revoke_self(&token, None).await.map(|()| "revoked".to_owned()),
        ("sys/capabilities-self", _) => {
            let paths: Vec<_> = call.body["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            upstream.capabilities_self(&token, &paths, None).await.map(|rights| format!("{rights:?}"))
        }
        (path, "POST" | "PUT")
            if path.contains("/login") || path == "auth/token/create" || path.ends_with("unwrap") =>
        {
            let jwt = SecretString::from("a.b.c");
            let (subscription_id, resource_group_name) = (None, None);
            let (vm_name, vmss_name, resource_id) = (None, None, None);
            let body = LoginRequest {
                role: "web",
                jwt: &jwt,
                subscription_id,
                resource_group_name,
                vm_name,
                vmss_name,
                resource_id,
            };
            let wrap = (!call.headers["X-Vault-Wrap-TTL"].is_null()).then_some(Duration::from_mins(1));
            let login = upstream.login("jwt", None, wrap, &body).await;
            login
                .map(|login| format!("token, {}, policies: {}", describe_lease(&login.lease), login.policies.join(" ")))
        }
        (path, method) => {
            let op = match method {
                _ if method == "LIST" || query == "list=true" => SecretOp::List,
                "GET" => SecretOp::Read,
                _ => SecretOp::Write(std::collections::BTreeMap::new()),
            };
            let path = path.trim_end_matches('/').to_owned();
            let response = upstream.request_secret(Some(&token), &SecretRequest { path, op }, None).await;
            response.map(|response| describe_secret(&response))
        }
    };
    outcome.unwrap_or_else(|error| describe_error(&error))
}

#[tokio::test]
async fn the_client_reads_each_recorded_answer() {
    let answer = Arc::new(Mutex::new((200_u16, String::new())));
    let served = Arc::clone(&answer);
    let routes = Router::new().fallback(async move || {
        let (status, body) = served.lock().clone();
        (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], body)
    });
    let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.tcp_address().unwrap();
    let mut tasks = TaskGroup::default();
    let stop = tasks.stop_token();
    tasks.start("recorded answers", async move {
        listener.serve(axum_service(routes), ListenerLimits::default(), stop).await;
        Ok(())
    });
    let upstream = ServerClient::build(&options(&format!("http://{address}"))).unwrap();
    let calls = recorded_calls();
    let calls: Vec<_> = calls.iter().filter(|call| !is_left_out(call)).collect();
    assert_eq!(calls.len(), 88, "of 115");
    let mut lines = Vec::new();
    for call in calls {
        *answer.lock() = (call.status, call.response.clone());
        lines.push(format!("{}: {}", call.name, read(&upstream, call).await));
    }
    insta::assert_snapshot!("recorded_answers", lines.join("\n"));
}
