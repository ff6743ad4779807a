//! Reloads: the callers' tokens go on, or are revoked.

use std::time::Duration;

use keyward_emulators::secrets::Operation;
use serde_json::json;

use super::{Process, Scene, TOKEN, put_secrets};
use crate::agent::derived_tokens::call;
use crate::harness::binary::eventually;
use crate::harness::not_run::is_root;

/// A listener that is required, as those without the key are.
const TWO: &str = "[listener.two]\naddress = \"unix://FOLDER/two.sock\"\nmode = \"0666\"\n";

fn job(scope: &str) -> String {
    format!(
        "[caller.job]\nuid = \"2000\"\nroutes = [\"token\", \"proxy\"]\n\
         [caller.job.derived_token]\npolicies = [\"a\"]\nttl = \"1h\"\nscope = \"{scope}\"\n"
    )
}

/// Waits until the server does not know a token any more.
#[track_caller]
fn ends_within(scene: &Scene, token: &str, seconds: u64) {
    let alive = || if scene.is_alive(token) { Err(format!("it is alive: {}", scene.agent.output())) } else { Ok(()) };
    eventually(Duration::from_secs(seconds), alive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_listeners_serve_live_tokens_after_a_reload_that_removes_or_adds_a_required_one() {
    if !is_root() {
        return;
    }
    for scope in ["process", "caller"] {
        let scene = Scene::start(&format!("{TWO}{}", job(scope)));
        put_secrets(&scene).await;
        let is_required = || scene.status()["components"]["derived_token/caller/job/web"]["required"].clone();
        let mut process = Process::start(2000);
        let first = tokio::task::block_in_place(|| {
            scene.reload(|text| {
                ["checks", "api", "proxy"].iter().fold(text, |text, name| {
                    let section = format!("[listener.{name}]\n");
                    text.replace(&section, &format!("{section}required = false\n"))
                })
            });
            let first = process.token(&scene);
            assert_eq!(is_required(), json!(scope == "caller"), "{scope}");
            let mut two = String::new();
            scene.reload(|text| {
                let (start, end) = (text.find("[listener.two]").unwrap(), text.find("[caller.").unwrap());
                two = text[start..end].to_owned();
                text.replace(&two, "")
            });
            assert_eq!(is_required(), json!(false), "{scope}");
            assert_eq!(process.token(&scene), first, "{scope}");
            scene.reload(|text| text.replacen("[caller.", &format!("{two}[caller."), 1));
            assert_eq!(is_required(), json!(scope == "caller"), "{scope}");
            assert_eq!(process.token(&scene), first, "{scope}");
            first
        });
        assert!(scene.is_alive(&first), "{scope}");
        // It is still replaced where it dies.
        assert_eq!(call(&scene.secrets, &first, "auth/token/revoke-self", Some(json!({}))).await.0, 204);
        tokio::task::block_in_place(|| {
            let (status, _, body) = process.ask(&scene.socket("proxy"), "/v1/secret/data/a");
            assert_eq!(status, 200, "{scope}: {body} {}", scene.agent.output());
            let second = process.token(&scene);
            assert!(second != first && scene.is_alive(&second), "{scope}");
        });
        assert_eq!((scene.count(Operation::Login), scene.count(Operation::CreateToken)), (1, 2), "{scope}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_changes_the_user_of_a_caller_revokes_the_tokens_of_its_processes() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&job("process"));
    let mut process = Process::start(2000);
    tokio::task::block_in_place(|| {
        let token = process.token(&scene);
        scene.reload(|text| text.replace("uid = \"2000\"", "uid = \"2001\""));
        ends_within(&scene, &token, 2);
        assert_eq!(process.ask(&scene.socket("api"), TOKEN).0, 403);
    });
    assert_eq!((scene.count(Operation::OtherToken), scene.count(Operation::Revoke)), (1, 0), "by its accessor");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_revokes_the_token_of_a_process_after_its_request_in_flight() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&job("process"));
    put_secrets(&scene).await;
    let mut process = Process::start(2000);
    tokio::task::block_in_place(|| {
        let token = process.token(&scene);
        let faults = scene.secrets.faults();
        faults.hang_only(Operation::Secret);
        let before = scene.count(Operation::Secret);
        process.send(&scene.socket("proxy"), "/v1/secret/data/a");
        eventually(Duration::from_secs(10), || match scene.count(Operation::Secret) {
            now if now > before => Ok(()),
            now => Err(format!("{now} calls: {}", scene.agent.output())),
        });
        scene.reload(|text| text.replace("uid = \"2000\"", "uid = \"2001\""));
        // Longer than a revocation takes.
        std::thread::sleep(Duration::from_millis(500));
        assert!(scene.is_alive(&token), "{}", scene.agent.output());
        faults.set_unresponsive(false);
        let (status, _, body) = process.answer();
        assert_eq!(status, 200, "{body} {}", scene.agent.output());
        ends_within(&scene, &token, 2);
    });
}
