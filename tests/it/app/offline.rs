//! The real program, killed and started again while the server is unavailable.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::binary::{Binary, eventually, run, wait_until_token_saved};
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn a_killed_agent_serves_and_renders_saved_secrets_while_the_server_is_unavailable() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let config = config(&world, folder.path());
        let (code, stdout, stderr) = run(&["check", "--config", &config], &[]);
        assert_eq!(code, 0, "{stderr}");
        let persisted =
            ["persists them across restarts, encrypted, in", "keeps those secrets across restarts, encrypted, in"];
        assert!(persisted.iter().all(|text| stdout.contains(text)), "{stdout}");

        let (proxy, rendered) = (folder.path().join("vault.sock"), folder.path().join("greeting"));
        let agent = Binary::start(&["--log-level", "trace", "run", "--config", &config], &[], folder.path());
        let value = eventually(LIMIT, || answered(&proxy, "secret/data/example", "MISS"));
        let lease = eventually(LIMIT, || answered(&proxy, "terraform/creds/deploy", "MISS"));
        eventually(LIMIT, || std::fs::read_to_string(&rendered).map_err(|stderr| stderr.to_string()));
        let state = folder.path().join("state");
        wait_until_token_saved(&state.join("web.state"));
        for name in ["vault.cache", "web.secrets"] {
            eventually(LIMIT, || state.join(name).is_file().then_some(()).ok_or_else(|| agent.output()));
        }
        // A reload that changes the listener passes its cache on through the file.
        world.set_vault_offline(true);
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("stale_if_error = \"1h\"", "stale_if_error = \"2h\"")).unwrap();
        agent.signal(Signal::HUP);
        eventually(LIMIT, || agent.output().contains("config.reload.ok").then_some(()).ok_or_else(|| agent.output()));
        eventually(LIMIT, || agent.output().contains("cache.resumed").then_some(()).ok_or_else(|| agent.output()));
        eventually(LIMIT, || answered(&proxy, "secret/data/example", "STALE"));
        agent.signal(Signal::KILL);
        let first = agent.output();
        drop(agent);
        std::fs::remove_file(&rendered).unwrap();
        let greeting = "hello from the emulated Vault";
        let token = field(&lease, "token");
        for file in std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()) {
            let bytes = std::fs::read(&file).unwrap();
            for secret in [greeting, token.as_str()] {
                let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{} shows a secret", file.display());
            }
        }
        assert!(!first.contains(greeting) && !first.contains(&token), "the log shows a secret");

        let agent = Binary::start(&["--log-level", "trace", "run", "--config", &config], &[], folder.path());
        let stale = eventually(LIMIT, || {
            answered(&proxy, "secret/data/example", "STALE").map_err(|stderr| stderr + &agent.output())
        });
        assert_eq!(stale.trim(), value.trim());
        let text = eventually(LIMIT, || std::fs::read_to_string(&rendered).map_err(|_| agent.output()));
        assert_eq!(text, greeting);
        world.set_vault_offline(false);
        eventually(LIMIT, || answered(&proxy, "secret/data/example", "MISS"));
        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(output.contains("cache.resumed") && output.contains("secrets.resumed"), "{output}");
        assert!(!output.contains(greeting) && !output.contains(&token), "the log shows a secret");
    });
}

/// The body of a response of the proxy that was got so.
fn answered(proxy: &Path, path: &str, how: &str) -> Result<String, String> {
    let (head, body) = fetch_body(proxy, path)?;
    if head.starts_with("HTTP/1.1 200 ") && head.contains(&format!("x-cache: {how}\r\n")) {
        Ok(body)
    } else {
        Err(head)
    }
}

fn fetch_body(proxy: &Path, path: &str) -> Result<(String, String), String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(proxy).map_err(|stderr| stderr.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
    write!(stream, "GET /v1/{path} HTTP/1.1\r\n{head}").map_err(|stderr| stderr.to_string())?;
    let mut response = String::new();
    stream.read_to_string(&mut response).map_err(|stderr| stderr.to_string())?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok((format!("{head}\r\n"), body.to_owned()))
}

fn field(body: &str, name: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["data"][name].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
}

fn config(world: &World, folder: &Path) -> String {
    std::fs::write(folder.join("seal.key"), "0123456789-0123456789-0123456789-0123456789").unwrap();
    let more = format!(
        r#"
[listener.vault]
kind = "api_proxy"
address = "unix://{0}/vault.sock"

[listener.vault.cache]
persist = true
max_age = "0s"
stale_if_error = "1h"

[templates]
persist = true

[template.greeting]
destination = "{0}/greeting"
contents = "{{{{ with secret \"secret/data/example\" }}}}{{{{ .Data.data.greeting }}}}{{{{ end }}}}"
"#,
        folder.display()
    );
    let config = world.config(folder, &more);
    let text = std::fs::read_to_string(&config).unwrap();
    let seal = format!("mount = \"azure\"\nseal_key_file = \"{}/seal.key\"", folder.display());
    std::fs::write(&config, text.replace("mount = \"azure\"", &seal)).unwrap();
    config
}
