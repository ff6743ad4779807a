//! `scope = "caller"`: all processes of a caller share one token.

use std::time::Duration;

use keyward_emulators::secrets::Operation;
use serde_json::json;

use super::{Process, Scene, TOKEN, put_secrets};
use crate::agent::derived_tokens::call;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::not_run::is_root;

const TWO: &str = "[caller.a]\nuid = \"2000\"\nroutes = [\"token\", \"proxy\"]\n\
    [caller.a.derived_token]\npolicies = [\"a\"]\nttl = \"1h\"\n\
    [caller.b]\nuid = \"2001\"\nroutes = [\"token\", \"proxy\"]\n\
    [caller.b.derived_token]\npolicies = [\"b\"]\nttl = \"1h\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_reads_its_own_secret_by_its_own_token_and_never_sees_the_sessions() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(TWO);
    put_secrets(&scene).await;
    let (a, b, ops) = tokio::task::block_in_place(|| {
        let token = |uid| Process::start(uid).token(&scene);
        let (a, b, ops) = (token(2000), token(2001), token(0));
        assert_eq!(token(2000), a, "its processes share it");
        assert!(a != b && a != ops && b != ops);
        let read = |uid, name: &str| scene.ask_as(uid, "proxy", &format!("/v1/secret/data/{name}"));
        // Whatever others have read, and the cache holds.
        for name in ["a", "b", "a", "b"] {
            assert_eq!(read(0, name).0, 200);
        }
        for (uid, own, other) in [(2000, "a", "b"), (2001, "b", "a")] {
            let (status, body) = read(uid, own);
            assert_eq!(
                (status, &body["data"]["data"]["password"]),
                (200, &json!(format!("secret-of-{own}"))),
                "{body}"
            );
            let (status, body) = read(uid, other);
            assert!(status == 403 && !body.to_string().contains("secret-of"), "{body}");
        }
        let (_, response) = scene.ask_as(2000, "proxy", "/v1/auth/token/lookup-self");
        assert_eq!(response["data"]["policies"], json!(["a", "default"]), "{response}");
        (a, b, ops)
    });
    for (token, name) in [(&a, "a"), (&b, "b")] {
        let (_, response) = call(&scene.secrets, token, "auth/token/lookup-self", None).await;
        let data = &response["data"];
        assert_eq!((&data["policies"], &data["orphan"]), (&json!([name, "default"]), &json!(false)));
        assert_eq!(data["explicit_max_ttl"], json!(3600), "its holder cannot renew it: {response}");
        assert_eq!(data["meta"], json!({ "caller": name, "session": "web" }), "{response}");
    }
    assert_eq!((scene.count(Operation::Login), scene.count(Operation::CreateToken)), (1, 2));
    tokio::task::block_in_place(|| {
        let (_, body) = ask(&scene.socket("api"), "GET", "/readyz").unwrap();
        assert!(body.contains("derived_token/caller/a/web") && body.contains("derived_token/caller/b/web"), "{body}");
        let output = scene.agent.output();
        for token in [&a, &b, &ops] {
            assert!(!output.contains(token.as_str()), "a token stands in the log: {output}");
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_has_the_accessor_of_the_callers_token_and_its_name() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(TWO);
    tokio::task::block_in_place(|| {
        let (status, body) = scene.ask_as(2000, "api", TOKEN);
        assert_eq!(status, 200, "{body}");
        assert_eq!(scene.ask_as(2000, "proxy", "/v1/auth/token/lookup-self").0, 200);
        let accessor = body["accessor"].as_str().unwrap();
        let (file, key) = (scene.folder.path().join("audit/audit.jsonl"), scene.folder.path().join("audit.key"));
        let (file, key) = (file.to_str().unwrap(), key.to_str().unwrap());
        eventually(Duration::from_secs(10), || {
            let (code, out, error) =
                run(&["audit", "show", file, "--key-file", key, "--accessor", accessor, "-o", "json"], &[]);
            let is_recorded =
                out.contains("/agent/v1/token") && out.contains("lookup-self") && out.contains("\"name\":\"a\"");
            if code == 0 && is_recorded { Ok(()) } else { Err(format!("{code} {out} {error}")) }
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_others_revoke_or_that_ends_with_the_sessions_is_replaced() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(TWO);
    put_secrets(&scene).await;
    let read = || tokio::task::block_in_place(|| scene.ask_as(2000, "proxy", "/v1/secret/data/a"));
    assert_eq!(read().0, 200);
    let first = tokio::task::block_in_place(|| Process::start(2000).token(&scene));
    assert_eq!(call(&scene.secrets, &first, "auth/token/revoke-self", Some(json!({}))).await.0, 204);
    let (status, body) = read();
    assert_eq!(status, 200, "{body} {}", scene.agent.output());
    assert_eq!((scene.count(Operation::Login), scene.count(Operation::CreateToken)), (1, 3));
    scene.secrets.faults().revoke_all();
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || {
            let (status, body) = read();
            if status == 200 { Ok(()) } else { Err(format!("{status} {body} {}", scene.agent.output())) }
        });
    });
    assert_eq!(scene.count(Operation::Login), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_with_a_number_of_uses_is_replaced_once_they_are_used_up() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&TWO.replacen("ttl = \"1h\"\n", "ttl = \"1h\"\nnum_uses = 5\n", 1));
    put_secrets(&scene).await;
    tokio::task::block_in_place(|| {
        for request in 0..40 {
            let (status, body) = scene.ask_as(2000, "proxy", "/v1/secret/data/a");
            assert_eq!(status, 200, "request {request}: {body} {}", scene.agent.output());
        }
    });
    let created = scene.count(Operation::CreateToken);
    assert!((8..=20).contains(&created), "{created} tokens for 40 requests of five uses each");
    assert_eq!(scene.count(Operation::Login), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_role_is_bound_to_the_addresses_of_the_role() {
    if !is_root() {
        return;
    }
    for (role, expected) in [("here", 200), ("elsewhere", 403)] {
        let callers = format!(
            "[caller.a]\nuid = \"2000\"\nroutes = [\"token\"]\n\
             [caller.a.derived_token]\nrole = \"{role}\"\nttl = \"1h\"\n"
        );
        let scene = Scene::start(&callers);
        let token = tokio::task::block_in_place(|| Process::start(2000).token(&scene));
        let (status, body) = call(&scene.secrets, &token, "auth/token/lookup-self", None).await;
        assert_eq!(status, expected, "{role}: {body}");
        if expected == 200 {
            assert_eq!(body["data"]["bound_cidrs"], json!(["127.0.0.0/8"]), "{body}");
            assert_eq!(body["data"]["policies"], json!(["a", "default"]), "{body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_token_counts_where_its_listener_has_one_too() {
    if !is_root() {
        return;
    }
    let listener = "[listener.both]\naddress = \"unix://FOLDER/both.sock\"\nmode = \"0666\"\n\
        [listener.both.derived_token]\npolicies = [\"b\"]\nttl = \"1h\"\n\
        [caller.plain]\nuid = \"2002\"\nroutes = [\"token\"]\n";
    let scene = Scene::start(&format!("{listener}{TWO}"));
    tokio::task::block_in_place(|| {
        let policies = |uid, listener| scene.ask_as(uid, listener, TOKEN).1["policies"].clone();
        assert_eq!(policies(2000, "both"), json!(["a", "default"]));
        assert_eq!(policies(2002, "both"), json!(["b", "default"]));
        assert_eq!(policies(2000, "api"), json!(["a", "default"]));
        let config = scene.folder.path().join("keyward.toml");
        let (_, out, error) = run(&["check", "--config", config.to_str().unwrap()], &[]);
        let output = out + &error;
        assert!(output.contains("the caller's own is used there for a"), "{output}");
        assert!(
            output.contains("gets a token of its own, a child of a session's token with the policies a"),
            "{output}"
        );
        let mut process = Process::start(2000);
        process.token(&scene);
        let pid = process.child.id().to_string();
        let (_, out, _) = run(&["policy", "explain", "-c", config.to_str().unwrap(), "--pid", &pid], &[]);
        assert!(out.contains("it gets a token of its own, a child of a session's token with the policies a"), "{out}");
        let pid = std::process::id().to_string();
        let (_, out, _) = run(&["policy", "explain", "-c", config.to_str().unwrap(), "--pid", &pid], &[]);
        assert!(out.contains("it gets the session's token, and on the listener both its derived token"), "{out}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_makes_batch_tokens_serves_them() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(
        "[caller.a]\nuid = \"2000\"\nroutes = [\"token\"]\n\
         [caller.a.derived_token]\npolicies = [\"a\"]\nrole = \"batch\"\nttl = \"1h\"\n",
    );
    let token = tokio::task::block_in_place(|| Process::start(2000).token(&scene));
    let (status, body) = call(&scene.secrets, &token, "auth/token/lookup-self", None).await;
    let data = &body["data"];
    assert_eq!((status, &data["type"], &data["renewable"]), (200, &json!("batch"), &json!(false)), "{body}");
    assert_eq!(data["policies"], json!(["a", "default"]), "{body}");
    assert_eq!(scene.count(Operation::CreateToken), 2, "once without an end over all renewals");
}
