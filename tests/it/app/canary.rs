//! With all log levels on and many failures, secrets appear in the sink only.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

/// GHSA-444v-8vxr-p36h: rendered secrets on standard output.
#[test]
fn t22_no_secret_appears_in_a_log_an_error_a_metric_a_core_or_a_file_but_the_sink() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let seal_key = "canary-seal-key-0123456789-0123456789";
        std::fs::write(folder.path().join("seal.key"), seal_key).unwrap();
        std::fs::write(folder.path().join("local.key"), "canary-local-key-0123456789").unwrap();
        let more = format!(
            "[listener.loopback]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = \"{0}/local.key\"\n",
            folder.path().display()
        );
        let config = world.config(folder.path(), &more);
        let text = std::fs::read_to_string(&config).unwrap();
        let seal = format!(
            "mount = \"azure\"\nseal_key_file = \"{}/seal.key\"\ncheck_interval = \"10s\"",
            folder.path().display()
        );
        std::fs::write(&config, text.replace("mount = \"azure\"", &seal)).unwrap();

        let agent = Binary::start(&["--log-level", "trace", "run", "--config", &config], &[], folder.path());
        let socket = folder.path().join("api.sock");
        let mut secrets = vec![seal_key.to_owned(), "canary-local-key-0123456789".to_owned(), "eyJ".to_owned()];
        secrets.push(token(&socket));

        // Failures: the server echoes garbage, renewals and logins fail, the token is revoked, a reload is invalid.
        world.secrets.faults().garbage(true);
        ask(&socket, "POST", "/agent/v1/check").unwrap();
        world.secrets.faults().garbage(false);
        world.cloud.faults().fail_next_tokens(1, 500);
        world.secrets.faults().fail_next_login(1);
        world.secrets.faults().revoke_all();
        ask(&socket, "POST", "/agent/v1/check").unwrap();
        let first = secrets.last().unwrap().clone();
        eventually(Duration::from_secs(30), || match token_now(&socket) {
            Some(token) if token != first => {
                secrets.push(token);
                Ok(())
            }
            _ => Err(agent.output()),
        });
        let (code, stdout, stderr) = run(&["--log-level", "trace", "login", "--config", &config], &[]);
        assert_eq!(code, 0, "{stderr}");
        let good = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{good}\n[sink.token]\n")).unwrap();
        agent.signal(Signal::HUP);
        eventually(Duration::from_secs(30), || {
            let output = agent.output();
            if output.contains("config.reload.failed") { Ok(()) } else { Err(output) }
        });

        let limits = std::fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        let process = |file: &str| std::fs::read(format!("/proc/{}/{file}", agent.id())).unwrap();
        let outputs = [
            ("a login's output", stdout.into_bytes()),
            ("a login's log", stderr.into_bytes()),
            ("the command line", process("cmdline")),
            ("the environment", process("environ")),
            ("the status", ask(&socket, "GET", "/agent/v1/status").unwrap().1.into_bytes()),
            ("readiness", ask(&socket, "GET", "/readyz").unwrap().1.into_bytes()),
            ("the metrics", ask(&socket, "GET", "/metrics").unwrap().1.into_bytes()),
        ];
        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(output.contains("TRACE"), "everything was logged");
        let outputs = outputs.into_iter().chain([("the log", output.into_bytes())]);
        let state = files(&folder.path().join("state"));
        let outputs: Vec<(String, Vec<u8>)> =
            outputs.map(|(name, bytes)| (name.to_owned(), bytes)).chain(state).collect();
        assert!(outputs.len() > 8, "the state file was looked at");
        for secret in &secrets {
            for (name, bytes) in &outputs {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{name} holds a secret that begins with {}", &secret[..4.min(secret.len())]);
            }
        }
    });
}

fn token(socket: &Path) -> String {
    eventually(Duration::from_secs(30), || token_now(socket).ok_or_else(|| "no token".to_owned()))
}

fn token_now(socket: &Path) -> Option<String> {
    let (status, body) = ask(socket, "GET", "/agent/v1/token").ok()?;
    let body: serde_json::Value = serde_json::from_str(&body).ok()?;
    (status == 200).then(|| body["token"].as_str().unwrap().to_owned())
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect()
}
