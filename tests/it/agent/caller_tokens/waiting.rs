//! Callers that wait for a token of their own, with `?wait=` or through an API proxy.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use super::{Process, Scene, TOKEN, put_secrets};
use crate::harness::binary::{ask, eventually};
use crate::harness::not_run::is_root;

const JOB: &str = "[caller.job]\nuid = \"2000\"\nroutes = [\"token\", \"proxy\"]\n\
    [caller.job.derived_token]\npolicies = [\"a\"]\nttl = \"1h\"\nscope = \"process\"\n";

const TEAM: &str = "[caller.team]\nuid = \"2001\"\nroutes = [\"token\"]\n\
    [caller.team.derived_token]\npolicies = [\"a\"]\nttl = \"1h\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_wait_while_the_session_has_no_token_get_theirs_after_its_login() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&format!("{JOB}{TEAM}"));
    put_secrets(&scene).await;
    let faults = scene.secrets.faults();
    let admitted = |(caller, route): (&str, &str)| {
        scene.metric(&format!("keyward_caller_admitted_total{{caller=\"{caller}\",route=\"{route}\"}}"))
    };
    tokio::task::block_in_place(|| {
        faults.hang_only(Operation::Login);
        faults.revoke_all();
        // The refusal of its request makes the session check its token.
        let mut root = Process::start(0);
        root.send(&scene.socket("proxy"), "/v1/secret/data/a");
        eventually(Duration::from_secs(30), || {
            let statuses =
                (ask(&scene.socket("api"), "GET", TOKEN).map(|(status, _)| status), scene.ask_as(2001, "api", TOKEN).0);
            if statuses == (Ok(503), 503) { Ok(()) } else { Err(format!("{statuses:?} {}", scene.agent.output())) }
        });
        let requests = [
            (2000, "api", "/agent/v1/token?wait=20s", ("job", "token")),
            (2001, "api", "/agent/v1/token?wait=20s", ("team", "token")),
            (2000, "proxy", "/v1/secret/data/a", ("job", "proxy")),
        ];
        let waiting = requests.map(|(uid, listener, path, counter)| {
            let (mut process, before) = (Process::start(uid), admitted(counter));
            process.send(&scene.socket(listener), path);
            eventually(Duration::from_secs(10), || match admitted(counter) {
                count if count > before => Ok(()),
                count => Err(format!("{counter:?} {count}")),
            });
            (process, counter)
        });
        faults.set_unresponsive(false);
        for (mut process, counter) in waiting {
            let (status, _, body) = process.answer();
            assert_eq!(status, 200, "{counter:?}: {body} {}", scene.agent.output());
        }
        assert_eq!(root.answer().0, 200);
    });
    assert_eq!(scene.count(Operation::Login), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_follows_its_token_gets_the_next_one_after_a_login_of_the_session() {
    if !is_root() {
        return;
    }
    let role = Role { ttl: Duration::from_secs(20), renewable: false, ..Role::default() };
    let scene = Scene::start_as(JOB, "", role);
    tokio::task::block_in_place(|| {
        let mut process = Process::start(2000);
        let (status, _, first) = process.ask(&scene.socket("api"), TOKEN);
        assert_eq!(status, 200, "{first}");
        let after = first["generation"].as_str().unwrap();
        let path = format!("/agent/v1/token?wait=60s&after={after}");
        let (status, _, next) = process.ask(&scene.socket("api"), &path);
        assert_eq!(status, 200, "{next} {}", scene.agent.output());
        assert!(next["generation"].is_string() && next["generation"] != first["generation"], "{next}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_denial_of_a_revocation_is_logged_as_a_failure_because_the_token_may_be_alive() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&JOB.replace("policies = [\"a\"]", "role = \"elsewhere\""));
    let faults = scene.secrets.faults();
    let denied = "1 error occurred:\n\t* permission denied\n\n";
    faults.respond_always(Operation::OtherToken, Some(CannedResponse::error(403, denied)));
    // The response to a live token from an address that it is not bound to.
    faults.respond_always(Operation::Revoke, Some(CannedResponse::error(403, "permission denied")));
    tokio::task::block_in_place(|| {
        let mut process = Process::start(2000);
        let token = process.token(&scene);
        process.end();
        scene.agent.logs("event=\"token.derived.revoke_failed\"");
        let output = scene.agent.output();
        assert!(scene.is_alive(&token) && output.contains("the token may still be valid"), "{output}");
        assert!(!output.contains("outcome=\"gone\""), "{output}");
    });
}
