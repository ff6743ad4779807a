//! Listeners that use a derived token instead of the session's token, on a running agent.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Secrets};
use keyward_machine::tasks::TaskGroup;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::derived_tokens::{call, server, sink, start};
use crate::harness::binary::{Binary, ask, eventually};

const LISTENERS: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n\
    [listener.proxy.derived_token]\npolicies = [\"web\"]\nttl = \"1h\"\n\
    [listener.api]\naddress = \"unix://FOLDER/api.sock\"\n[listener.api.derived_token]\nttl = \"10m\"\n";

fn get(folder: &Path, socket: &str, path: &str) -> (u16, Value) {
    let (status, body) = ask(&folder.join(socket), "GET", path).unwrap();
    (status, serde_json::from_str(&body).unwrap_or_default())
}

/// Waits until the local API returns another token than `before`.
fn wait_for_new_token(agent: &Binary, folder: &Path, before: &str) -> String {
    eventually(Duration::from_secs(40), || {
        let (status, body) = get(folder, "api.sock", "/agent/v1/token");
        let token = body["token"].as_str().unwrap_or_default().to_owned();
        if status == 200 && token != before { Ok(token) } else { Err(format!("{status} {body} {}", agent.output())) }
    })
}

/// Twenty callers at once: all are answered.
fn all_are_served(folder: &Path, agent: &Binary) {
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..20).map(|_| scope.spawn(|| get(folder, "proxy.sock", "/v1/secret/data/example"))).collect();
        for call in calls {
            let (status, body) = call.join().unwrap();
            assert_eq!(status, 200, "{body} {}", agent.output());
        }
    });
}

fn made(secrets: &Secrets) -> (u64, u64) {
    let counts = secrets.faults().counts();
    (counts.get(Operation::Login), counts.get(Operation::CreateToken))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_uses_a_child_with_fewer_rights_and_gets_another_when_it_dies_or_its_parent_does() {
    child_is_replaced_when_it_or_its_parent_dies(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_openbao_no_longer_knows_is_replaced_as_one_that_vault_calls_invalid() {
    child_is_replaced_when_it_or_its_parent_dies(true).await;
}

async fn child_is_replaced_when_it_or_its_parent_dies(openbao: bool) {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    secrets.faults().respond_as_openbao(openbao);
    let agent = start(&secrets, folder.path(), LISTENERS);
    let raw = sink(&agent, &folder.path().join("raw"), "");
    let child = tokio::task::block_in_place(|| wait_for_new_token(&agent, folder.path(), ""));
    assert_ne!(child, raw);
    let (_, body) = call(&secrets, &child, "auth/token/lookup-self", None).await;
    assert_eq!((&body["data"]["policies"], &body["data"]["orphan"]), (&json!(["ops", "web"]), &json!(false)));

    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || match get(folder.path(), "proxy.sock", "/v1/auth/token/lookup-self") {
            (200, body) if body["data"]["policies"] == json!(["default", "web"]) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        all_are_served(folder.path(), &agent);
        assert_eq!(get(folder.path(), "proxy.sock", "/v1/kv/example").0, 403, "the session's own token may read it");
    });
    assert_eq!(call(&secrets, &raw, "kv/example", None).await.0, 200);
    assert_eq!(made(&secrets), (1, 2));

    // Only the derived token is revoked: the next caller gets a new one, and the session does not log in.
    tokio::task::block_in_place(|| agent.logs("output=\"listener proxy\" accessor=\""));
    let output = agent.output();
    let accessor_text =
        output.split("output=\"listener proxy\" accessor=\"").nth(1).and_then(|rest| rest.split('"').next());
    let accessor = json!({ "accessor": accessor_text.unwrap() });
    assert_eq!(call(&secrets, &raw, "auth/token/revoke-accessor", Some(accessor)).await.0, 204);
    tokio::task::block_in_place(|| all_are_served(folder.path(), &agent));
    assert_eq!(made(&secrets), (1, 3), "{}", agent.output());

    // The session's token is revoked, and all derived tokens with it.
    secrets.faults().revoke_all();
    tokio::task::block_in_place(|| all_are_served(folder.path(), &agent));
    let next = sink(&agent, &folder.path().join("raw"), &raw);
    let renewed = tokio::task::block_in_place(|| wait_for_new_token(&agent, folder.path(), &child));
    assert_eq!(call(&secrets, &renewed, "auth/token/lookup-self", None).await.0, 200);
    assert_eq!(made(&secrets).0, 2);
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
    for secret in [raw, child, next, renewed] {
        assert!(!output.contains(&secret), "a token stands in the log: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_changes_the_child_of_a_listener_fails_no_call() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let agent = start(&secrets, folder.path(), LISTENERS);
    sink(&agent, &folder.path().join("raw"), "");
    tokio::task::block_in_place(|| wait_for_new_token(&agent, folder.path(), ""));
    let before = made(&secrets).1;
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let caller = std::thread::spawn({
        let (over, calls, folder) = (Arc::clone(&over), Arc::clone(&calls), folder.path().to_owned());
        move || {
            while !over.load(Ordering::Relaxed) {
                let (status, body) = get(&folder, "api.sock", "/agent/v1/token");
                assert_eq!(status, 200, "{body}");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    tokio::task::block_in_place(|| {
        let file = folder.path().join("keyward.toml");
        for ttl in ["20m", "30m", "40m"] {
            let made_before = made(&secrets).1;
            let text = std::fs::read_to_string(&file).unwrap();
            let (first, _) = text.rsplit_once("ttl = ").unwrap();
            std::fs::write(&file, format!("{first}ttl = \"{ttl}\"\n")).unwrap();
            agent.signal(Signal::HUP);
            let calls_before = calls.load(Ordering::Relaxed);
            eventually(Duration::from_secs(40), || {
                let done = made(&secrets).1 > made_before && calls.load(Ordering::Relaxed) > calls_before + 20;
                if done || caller.is_finished() { Ok(()) } else { Err(agent.output()) }
            });
        }
    });
    over.store(true, Ordering::Relaxed);
    caller.join().unwrap();
    assert_eq!(made(&secrets), (1, before + 3), "the other listener keeps its child");
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_get_an_error_and_the_agent_is_not_ready_where_no_child_token_can_be_created() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let refused = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    secrets.faults().respond_always(Operation::CreateToken, Some(refused));
    let agent = start(&secrets, folder.path(), LISTENERS);
    sink(&agent, &folder.path().join("raw"), "");
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || {
            let (status, body) = get(folder.path(), "api.sock", "/agent/v1/token");
            let reason = body["errors"][0].as_str().unwrap_or_default().to_owned();
            if (status, reason.as_str()) == (503, "the derived token could not be created") {
                Ok(())
            } else {
                Err(reason)
            }
        });
        let (status, body) = get(folder.path(), "api.sock", "/readyz");
        assert_eq!(status, 503);
        let component = &body["components"]["derived_token/api/web"];
        assert_eq!(component["reason"], json!("the derived token could not be created"), "{body}");
        assert_eq!(get(folder.path(), "proxy.sock", "/v1/secret/data/example").0, 503);
    });
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
}
