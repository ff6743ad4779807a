//! A gateway without a listener of the agent's: the output of `status` and `check --online`. Real processes.

use std::time::Duration;

use serde_json::Value;

use crate::emulators::platform::clients::platform;
use crate::harness::binary::{eventually, run};
use crate::harness::gateway_process::GatewayProcess;
use crate::harness::world::{World, run_in_network_namespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_a_gateway_without_any_listener() {
    let it = platform();
    let gateway = GatewayProcess::start(&it, "warn");
    let config = gateway.config();
    let expected = format!("platform {}: HCP Terraform, API 2.6", it.platform.url().trim_end_matches('/'));
    let stdout = eventually(Duration::from_secs(30), || {
        let (code, stdout, stderr) = run(&["status", "--config", &config], &[]);
        let known = code == 0 && stdout.lines().any(|line| line == expected);
        known.then(|| stdout.clone()).ok_or_else(|| format!("{code} {stdout}{stderr}"))
    });
    assert!(stdout.lines().next().unwrap().contains(": OK, ready; up "), "{stdout}");
    let (code, stdout, stderr) = run(&["status", "--config", &config, "--format", "json"], &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let status: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&status["ready"], &status["components"]["gateway/token"]["ready"]), (&true.into(), &true.into()));
    assert!(!stdout.contains(it.token()) && !stdout.contains(&gateway.local()), "{stdout}");
    drop(gateway);
    let (code, stdout, _) = run(&["status", "--config", &config], &[]);
    assert!(code != 0 && stdout.is_empty(), "{code} {stdout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_and_healthcheck_report_a_gateway_without_any_listener() {
    let it = platform();
    let gateway = GatewayProcess::start(&it, "warn");
    let config = gateway.config();
    let check = |args: &[&str], expected: i32, says: &str| {
        let (code, stdout, stderr) = run(&[args, &["--config", &config]].concat(), &[]);
        assert!(code == expected && stdout.is_empty() && stderr.contains(says), "{args:?}: {code} {stdout}{stderr}");
    };
    check(&["wait", "--timeout", "30s"], 0, "");
    check(&["healthcheck"], 0, "");
    check(&["healthcheck", "--live"], 0, "");
    gateway.put("a-token-of-nobody");
    let account = format!("{}/api/v2/account/details", gateway.url);
    let mut state = String::new();
    for _ in 0..1000 {
        // The gateway learns from a call that the platform refuses the new token. It would keep the caller for a minute, in case
        // that another one is put there.
        let request = reqwest::Client::new().get(&account).timeout(Duration::from_millis(500));
        let _ = request.bearer_auth(gateway.local()).send().await;
        let (code, _, stderr) = run(&["healthcheck", "--config", &config], &[]);
        state = format!("{code} {stderr}");
        if code == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(state.starts_with("4 error: gateway/") && state.contains("[KW-1701]"), "{state}");
    check(&["wait", "--timeout", "2s"], 5, "the platform rejects the token");
    check(&["healthcheck", "--live"], 0, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_online_reports_product_and_token_owner() {
    let it = platform();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let configure = |upstream: &str| {
        let text = format!(
            "[gateway]\nupstream = \"{upstream}\"\nlisten = \"tcp://127.0.0.1:8800\"\ntoken_file = \"{}\"\n\
             local_token_file = \"{}\"\n",
            path("platform.token"),
            path("local.token")
        );
        std::fs::write(path("keyward.toml"), text).unwrap();
    };
    let online = |more: &[&str]| run(&[&["check", "--online", "--config", &path("keyward.toml")], more].concat(), &[]);
    configure(it.platform.url());
    std::fs::write(path("platform.token"), it.token()).unwrap();
    let (code, stdout, stderr) = online(&[]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let upstream = it.platform.url().trim_end_matches('/').to_owned();
    for expected in [
        "gateway: dns ok: 127.0.0.1",
        "gateway: tcp ok: connected to 127.0.0.1:",
        "gateway: clock ok: within ",
        &format!("gateway: platform ok: {upstream} answers 204; HCP Terraform, API 2.6"),
        "gateway: platform token ok: the token of user ",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
    assert!(!stdout.contains(it.token()));
    let (code, stdout, _) = online(&["--format", "json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let steps = report["online"].as_array().unwrap();
    assert!(code == 0 && steps.len() == 5 && steps.iter().all(|step| step["part"] == "gateway"), "{report}");

    let failed = |expected: &str, error_code: &str| {
        let (code, stdout, _) = online(&[]);
        let line = step_lines(&stdout).find(|line| line.contains("FAILED")).unwrap_or_default().to_owned();
        assert!(code == 2 && line.contains(expected) && !stdout.contains("canary"), "{expected}: {code} {stdout}");
        assert!(line.ends_with(&format!(" [{error_code}]")), "{error_code}: {line}");
    };
    std::fs::write(path("platform.token"), "canary-of-another-platform").unwrap();
    failed(&format!("gateway: platform token FAILED: {upstream} refuses the token"), "KW-1701");
    std::fs::remove_file(path("platform.token")).unwrap();
    failed("platform.token", "KW-1702");
    configure("http://127.0.0.1:9");
    failed("gateway: tcp FAILED: http://127.0.0.1:9: ", "KW-1703");
    configure("https://no-such-host.invalid");
    failed("gateway: dns FAILED: no-such-host.invalid", "KW-1202");
}

/// Lines of the steps, without the result that comes first.
fn step_lines(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| !line.starts_with("online: "))
}

#[test]
fn check_online_continues_with_the_gateway_when_the_server_of_a_session_fails() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let file = world.config(folder.path(), "");
        let token = folder.path().join("platform.token").display().to_string();
        std::fs::write(&token, world.platform.faults().mint("check").token.expose_secret()).unwrap();
        let platform = world.platform.url().trim_end_matches('/');
        let gateway = format!(
            "\n[gateway]\nupstream = \"{platform}\"\nlisten = \"tcp://127.0.0.1:8800\"\ntoken_file = \"{token}\"\n\
             local_token_file = \"{}/local.token\"\n",
            folder.path().display()
        );
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &gateway).unwrap();
        world.set_vault_offline(true);
        let (code, stdout, stderr) = run(&["check", "--online", "-c", &file], &[]);
        let server = world.secrets.url().trim_end_matches('/');
        let lines: Vec<&str> =
            step_lines(&stdout).filter(|line| line.contains(" ok: ") || line.contains(" FAILED: ")).collect();
        let expected = [
            "session web: dns ok: 127.0.0.1".to_owned(),
            format!("session web: tcp FAILED: {server}"),
            "gateway: dns ok: 127.0.0.1".to_owned(),
            "gateway: tcp ok: connected to ".to_owned(),
            format!("gateway: platform ok: {platform} answers 204; HCP Terraform, API 2.6"),
            "gateway: clock ok: ".to_owned(),
            "gateway: platform token ok: the token of user ".to_owned(),
        ];
        assert_eq!((code, stderr.as_str(), lines.len()), (2, "", expected.len()), "{stdout}");
        for (line, expected) in lines.iter().zip(&expected) {
            assert!(line.starts_with(expected), "{expected}: {stdout}");
        }
        let (code, stdout, stderr) = run(&["check", "--online", "-o", "json", "-c", &file], &[]);
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let found = report["online"].as_array().unwrap().iter();
        let found: Vec<_> = found
            .map(|step| {
                [&step["part"], &step["session"], &step["step"], &step["ok"]].map(ToString::to_string).join(" ")
            })
            .collect();
        let expected = [
            r#""session" "web" "dns" true"#,
            r#""session" "web" "tcp" false"#,
            r#""gateway" null "dns" true"#,
            r#""gateway" null "tcp" true"#,
            r#""gateway" null "platform" true"#,
            r#""gateway" null "clock" true"#,
            r#""gateway" null "platform token" true"#,
        ];
        assert_eq!((code, stderr.as_str(), &report["ok"]), (2, "", &Value::Bool(false)), "{report}");
        assert_eq!(found, expected, "{report}");
        assert!(!stdout.contains("atlasv1"), "{stdout}");
    });
}

#[test]
fn check_online_revokes_the_token_leased_for_the_check() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let file = world.config(folder.path(), "");
        let gateway = format!(
            "\n[gateway]\nupstream = \"{}\"\nlisten = \"tcp://127.0.0.1:8800\"\nlocal_token_file = \"{}/local.token\"\n\
             [gateway.secret]\npath = \"terraform/creds/deploy\"\n",
            world.platform.url(),
            folder.path().display()
        );
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &gateway).unwrap();
        let (code, stdout, stderr) = run(&["check", "--online", "--config", &file], &[]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        assert!(stdout.contains("gateway: platform token ok: the token of "), "{stdout}");
        assert!(stdout.contains("(terraform/creds/deploy)") && !stdout.contains("atlasv1"), "{stdout}");
        let faults = world.secrets.faults();
        assert_eq!((faults.leases(), faults.tokens(), faults.leases_issued()), (0, 0, 1), "{stdout}");
    });
}
