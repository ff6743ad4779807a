//! Third-party clients through the gateway, and its purpose: a platform token that changes during a run, with a control
//! run without the gateway.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use keyward_emulators::platform::{Edition, OLD_REGISTRY_ROUTES, Paging, PresentedToken};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::emulators::platform::clients::{Client, old_calls, platform, script, whole_life};
use crate::emulators::platform::lists::ten;
use crate::harness::binary::eventually;
use crate::harness::gateway_process::GatewayProcess;
use crate::harness::platform::Emulated;
use crate::harness::terraform::{Run, Terraform};

/// An apply that continues once a file exists. Only its state knows its resources.
const LONG: &str = "resource \"terraform_data\" \"long\" {\n  input = \"made\"\n  provisioner \"local-exec\" {\n    \
                    command = \"touch started; until [ -e go ]; do sleep 0.05; done\"\n  }\n}\n\
                    output \"made\" {\n  value = terraform_data.long.output\n}\n";

async fn begin(run: &Run) -> Child {
    run.run_successfully(&["init", "-input=false"]).await;
    let child = run.start(&["apply", "-input=false", "-auto-approve"]);
    eventually(Duration::from_mins(1), || exists(run, "started").then_some(()).ok_or_else(|| "not begun".to_owned()));
    child
}

async fn end(run: &Run, child: Child) -> Output {
    std::fs::write(run.folder.path().join("go"), "").unwrap();
    child.wait_with_output().await.unwrap()
}

fn exists(run: &Run, name: &str) -> bool {
    run.folder.path().join(name).exists()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// Returns true if the workspace is locked, as seen with another token of the same user.
async fn locked(it: &Emulated, name: &str) -> bool {
    let token = it.platform.faults().mint("observer").token;
    let path = format!("/api/v2/organizations/example/workspaces/{name}");
    let token = keyward_machine::secret_string::SecretString::expose_secret(&token);
    it.send(http::Method::GET, &path, Some(token), None).await.with(200)["data"]["attributes"]["locked"] == true
}

/// How many calls of a client came with a token, and how many were refused for theirs. The gateway's own question is no client's.
fn calls_with_token(it: &Emulated, token: &str) -> (usize, usize) {
    let mut calls = it.platform.faults().calls();
    calls.retain(|call| !call.agent.starts_with("keyward/"));
    let with = calls.iter().filter(|call| call.token == PresentedToken::Known(token.to_owned())).count();
    (with, calls.iter().filter(|call| call.status == 401).count())
}

/// Looks for a text in every file below a folder.
fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            holds(&path, text)
        } else {
            String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text)
        }
    })
}

const CLIENTS: [(Client, usize); 4] =
    [(Client::Pytfe, 7), (Client::Terrasnek, 0), (Client::GoTfe, 11), (Client::GoTfeCurrent, 1)];

/// Runs a client through the gateway; returns its success, the number of reported calls, and how many of these as
/// replaced. They make tokens for others and call with them: the gateway takes none but its own.
async fn through(client: Client, it: &Emulated, deprecated: &str) -> (bool, u64, u64) {
    it.platform.faults().limit(None);
    let gateway = GatewayProcess::start(it, deprecated);
    let (ok, output) = client.run(&gateway.url, &gateway.local(), "refused").await;
    assert!(ok || output.contains("not found"), "{client:?}: {output}\n{}", gateway.output());
    let strangers = it.platform.faults().calls().iter().filter(|call| call.token == PresentedToken::Unknown).count();
    assert_eq!(strangers, 0, "the local token stays here");
    let (calls, replaced) = gateway.reported();
    (ok, calls, replaced)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_do_their_work_through_the_gateway_and_each_old_call_is_reported_once() {
    for (client, old) in CLIENTS {
        let it = platform();
        assert_eq!(through(client, &it, "warn").await, (true, old as u64, 0), "{client:?}");
        assert_eq!(old_calls(&it), old, "{client:?}: they are sent as they are");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_do_their_work_on_a_platform_without_the_old_routes_where_the_gateway_replaces_them() {
    for mode in ["fallback", "always"] {
        for (client, old) in CLIENTS {
            let it = platform();
            it.platform.faults().routes(OLD_REGISTRY_ROUTES, false);
            let (ok, calls, replaced) = through(client, &it, mode).await;
            assert_eq!((ok, calls, replaced), (true, old as u64, old as u64), "{client:?} {mode}");
            if mode == "always" {
                assert_eq!(old_calls(&it), 0, "{client:?}: none is sent as it is");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_old_calls_fail_on_a_platform_without_the_old_routes_if_the_gateway_does_not_replace_them() {
    for (client, old) in CLIENTS {
        let it = platform();
        it.platform.faults().routes(OLD_REGISTRY_ROUTES, false);
        let (ok, _, replaced) = through(client, &it, "off").await;
        assert_eq!((ok, replaced), (old == 0, 0), "{client:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_the_ten_lists_is_merged_on_request_in_every_paging_mode() {
    let it = platform();
    let lists = ten(&it).await;
    let gateway = GatewayProcess::start(&it, "warn");
    let (client, local) = (reqwest::Client::new(), gateway.local());
    let mut longest = 0;
    for path in lists {
        let path = format!("/api/v2{path}");
        it.platform.faults().paging(Paging::OptIn);
        let whole = it.get(&path).await.with(200)["data"].take();
        longest = longest.max(whole.as_array().unwrap().len());
        for paging in [Paging::OptIn, Paging::Always, Paging::Never] {
            it.platform.faults().paging(paging);
            let request = client.get(format!("{}{path}", gateway.url)).bearer_auth(&local);
            let response = request.header("keyward-merge-pages", "true").send().await.unwrap();
            assert_eq!(response.status(), 200, "{path} {paging:?}");
            let mut merged: Value = response.json().await.unwrap();
            // When a token was last used differs by now.
            let ids = |list: &Value| -> Vec<Value> {
                list.as_array().unwrap().iter().map(|entry| entry["id"].clone()).collect()
            };
            assert_eq!(ids(&merged["data"].take()), ids(&whole), "{path} {paging:?}");
        }
        // A page that names itself as the next one is the last request; the incomplete list is
        // reported.
        it.platform.faults().paging(Paging::Looping);
        let before = it.platform.faults().total();
        let request = client.get(format!("{}{path}", gateway.url)).bearer_auth(&local);
        let response = request.header("keyward-merge-pages", "true").send().await.unwrap();
        assert_eq!(it.platform.faults().total() - before, 1, "{path}");
        let (status, length) = (response.status().as_u16(), whole.as_array().unwrap().len());
        let list: Value = response.json().await.unwrap();
        if length > 100 {
            let detail = list["errors"][0]["detail"].as_str().unwrap();
            assert!(
                status == 502 && detail.contains("form a loop before the list is complete"),
                "{path}: {status} {list}"
            );
        } else {
            assert_eq!((status, list["data"].as_array().unwrap().len()), (200, length), "{path}");
        }
    }
    assert!(longest > 200, "one of them is three pages long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_does_all_of_its_work_through_the_gateway_and_finds_archives_that_are_named_by_path() {
    let Some(terraform) = Terraform::find() else { return };
    for relative in [false, true] {
        let it = platform();
        it.platform.faults().relative_downloads(relative);
        let gateway = GatewayProcess::start(&it, "warn");
        whole_life(&terraform, &it, &gateway.url, &gateway.local()).await;
    }
}

/// The last release whose state download URLs lead to the archive at once.
fn before_guarded_downloads() -> Emulated {
    let it = platform();
    it.platform.faults().edition(Edition::SelfManaged { release: "v202310-1".to_owned() });
    it
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_reads_its_state_through_the_gateway_on_enterprise_before_v202311_1_too() {
    let Some(terraform) = Terraform::find() else { return };
    let it = before_guarded_downloads();
    let gateway = GatewayProcess::start(&it, "warn");
    whole_life(&terraform, &it, &gateway.url, &gateway.local()).await;
    assert!(it.platform.faults().calls().iter().all(|call| !call.path.starts_with("/api/state-versions/")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opentofu_does_all_of_its_work_through_the_gateway() {
    let Some(tofu) = Terraform::find_program("tofu") else { return };
    for it in [platform(), before_guarded_downloads()] {
        let gateway = GatewayProcess::start(&it, "warn");
        whole_life(&tofu, &it, &gateway.url, &gateway.local()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_download_states_through_the_gateway_with_the_local_token_from_both_forms_of_the_platform() {
    for client in [Client::Pytfe, Client::GoTfe, Client::GoTfeCurrent] {
        for (it, guarded) in [(platform(), true), (before_guarded_downloads(), false)] {
            assert!(through(client, &it, "warn").await.0, "{client:?}");
            let calls = it.platform.faults().calls();
            let redirected = calls.iter().any(|call| call.path.ends_with("/hosted_state") && call.status == 302);
            assert_eq!(redirected, guarded, "{client:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_outlives_the_token_that_it_began_with_and_the_platform_token_is_not_near_it() {
    let it = platform();
    let Some(terraform) = Terraform::find() else { return };
    let gateway = GatewayProcess::start(&it, "warn");
    let run = terraform.folder(&gateway.url, &gateway.local(), LONG);
    let child = begin(&run).await;
    let next = gateway.rotate(&it);
    let output = end(&run, child).await;
    assert!(output.status.success(), "{}\n{}", output_text(&output), gateway.output());
    assert!(!exists(&run, "errored.tfstate") && !locked(&it, "web").await);
    let (with, refused) = calls_with_token(&it, &next);
    assert!(
        with >= 3 && calls_with_token(&it, &it.first.id).0 > 5 && refused <= 1,
        "{with} {refused}: {:?}",
        it.platform.faults().calls()
    );
    assert_eq!(run.run_successfully(&["output", "-raw", "made"]).await, "made");
    for what in [it.token(), "atlasv1"] {
        assert!(!holds(run.folder.path(), what) && !output_text(&output).contains(what), "{what}");
    }
    assert!(!gateway.output().contains("atlasv1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_outlives_a_gap_between_its_token_and_the_next_one() {
    let it = platform();
    let Some(terraform) = Terraform::find() else {
        return;
    };
    let gateway = GatewayProcess::start(&it, "warn");
    let run = terraform.folder(&gateway.url, &gateway.local(), LONG);
    let child = begin(&run).await;
    assert!(it.platform.faults().revoke(&it.first.id));
    std::fs::write(run.folder.path().join("go"), "").unwrap();
    // The token is put there only once the run has met the gap.
    eventually(Duration::from_mins(1), || {
        let refused = it.platform.faults().calls().iter().any(|call| call.status == 401);
        refused.then_some(()).ok_or_else(|| "no call was refused".to_owned())
    });
    let next = it.platform.faults().mint("next");
    gateway.put(keyward_machine::secret_string::SecretString::expose_secret(&next.token));
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}\n{}", output_text(&output), gateway.output());
    assert!(!exists(&run, "errored.tfstate") && !locked(&it, "web").await && calls_with_token(&it, &next.id).0 >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_outlives_a_gateway_that_is_killed_and_started_again() {
    let it = platform();
    let Some(terraform) = Terraform::find() else {
        return;
    };
    let mut gateway = GatewayProcess::start(&it, "warn");
    let run = terraform.folder(&gateway.url, &gateway.local(), LONG);
    let child = begin(&run).await;
    gateway.restart();
    let next = gateway.rotate(&it);
    let output = end(&run, child).await;
    assert!(output.status.success(), "{}\n{}", output_text(&output), gateway.output());
    assert!(!exists(&run, "errored.tfstate") && !locked(&it, "web").await && calls_with_token(&it, &next).0 >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gateway_the_same_apply_loses_its_state_and_keeps_its_lock() {
    let it = platform();
    let Some(terraform) = Terraform::find() else {
        return;
    };
    let run = terraform.folder(it.platform.url(), it.token(), LONG);
    let child = begin(&run).await;
    it.platform.faults().mint("next");
    assert!(it.platform.faults().revoke(&it.first.id));
    let output = end(&run, child).await;
    assert!(!output.status.success() && output_text(&output).contains("unauthorized"), "{}", output_text(&output));
    assert!(exists(&run, "errored.tfstate") && locked(&it, "web").await);
}

/// Starts the change of state, and waits for its middle.
async fn change(address: &str, token: &str) -> Child {
    let mut command = Command::from(script("platform_rotation.py", address, token));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut middle = [0; 14];
    child.stdout.as_mut().unwrap().read_exact(&mut middle).await.unwrap();
    assert_eq!(&middle, b"in the middle\n");
    child
}

async fn continue_after_prompt(mut child: Child) -> Output {
    child.stdin.take().unwrap().write_all(b"\n").await.unwrap();
    child.wait_with_output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pytfe_outlives_the_token_that_it_began_with_and_a_gateway_that_is_started_again() {
    for restart in [false, true] {
        let it = platform();
        let mut gateway = GatewayProcess::start(&it, "warn");
        let child = change(&gateway.url, &gateway.local()).await;
        let next = gateway.rotate(&it);
        if restart {
            gateway.restart();
        }
        let output = continue_after_prompt(child).await;
        assert!(output.status.success(), "{}\n{}", output_text(&output), gateway.output());
        assert!(!locked(&it, "rotation").await && calls_with_token(&it, &next).0 == 2);
        it.platform.faults().forget_calls();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gateway_the_same_change_with_pytfe_keeps_its_lock() {
    let it = platform();
    let child = change(it.platform.url(), it.token()).await;
    it.platform.faults().mint("next");
    assert!(it.platform.faults().revoke(&it.first.id));
    let output = continue_after_prompt(child).await;
    assert!(!output.status.success() && output_text(&output).contains("AuthError"), "{}", output_text(&output));
    assert!(locked(&it, "rotation").await);
}
