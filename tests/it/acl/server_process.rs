//! `keyward acl serve` and its operator commands, as processes.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wiremock::matchers::{body_json, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::harness::binary::{Binary, assert_no_rights, eventually, run};
use crate::harness::world::run_in_network_namespace;

/// Starts a server; returns it with the address that it printed.
pub(crate) fn serve(folder: &Path, listen: &str, variables: &[(&str, &str)]) -> (Binary, String) {
    let dir = folder.join("acl").display().to_string();
    let service = Binary::start(&["acl", "serve", "--dir", &dir, "--listen", listen], variables, folder);
    let address = eventually(Duration::from_secs(30), || {
        let output = service.output();
        let after = output.split_once("keyward acl bootstrap --address ");
        after.and_then(|(_, rest)| Some(rest.split_once(' ')?.0.to_owned())).ok_or(output)
    });
    (service, address)
}

#[test]
fn serve_starts_with_a_folder_only_prints_first_steps_and_keeps_records() {
    let folder = tempfile::tempdir().unwrap();
    let notify = folder.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let variables = [("NOTIFY_SOCKET", notify.to_str().unwrap())];
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &variables);
    let mut message = [0; 4096];
    loop {
        let length = manager.recv(&mut message).expect("READY in time");
        if message[..length].starts_with(b"READY=1") {
            break;
        }
    }
    let root = folder.path().join("root.token").display().to_string();
    let (code, out, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &root], &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.contains("global-management"), "{out}");
    let secret = std::fs::read_to_string(&root).unwrap();
    let whoami = |address: &str| run(&["acl", "whoami", "--address", address, "--token-file", &root], &[]);
    let (code, out, error) = whoami(&address);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.contains("Remaining life:  without end"), "{out}");
    // It serves and writes inside the sandbox.
    assert_no_rights(service.id());
    let (status, output) = service.stop();
    assert!(output.contains("event=\"sandbox."), "{output}");
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(!output.contains(&secret) && output.contains("agent.stopped"), "{output}");

    let (service, again) = serve(folder.path(), "127.0.0.1:0", &[]);
    let (code, _, error) = whoami(&again);
    assert_eq!(code, 0, "the token outlives the process: {error}");
    let other = folder.path().join("other.token").display().to_string();
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &again, "--out", &other], &[]);
    assert!(code == 6 && error.contains("no longer allowed") && error.contains("[KW-1610]"), "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
}

#[test]
fn bootstrap_works_while_the_token_file_variable_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let root = folder.path().join("root.token").display().to_string();
    let variables = [("KEYWARD_ACL_TOKEN_FILE", root.as_str()), ("KEYWARD_ACL_ADDR", address.as_str())];
    let (code, out, error) = run(&["acl", "bootstrap", "--out", &root], &variables);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    let (code, out, error) = run(&["acl", "whoami"], &variables);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    // A file that the flag names is read.
    let flag = format!("{root}.none");
    let (code, _, error) = run(&["acl", "bootstrap", "--token-file", &flag], &variables);
    assert!(code == 1 && error.contains(&flag), "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
}

#[test]
fn bootstrap_waits_for_a_server_on_this_machine_that_starts_later() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/acl.sock", folder.path().display());
    let root = folder.path().join("root.token").display().to_string();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&["acl", "bootstrap", "--address", &socket, "--out", &root], &[]));
        // The secret is written before the first call.
        eventually(Duration::from_secs(10), || if Path::new(&root).exists() { Ok(()) } else { Err(root.clone()) });
        let (service, _) = serve(folder.path(), &socket, &[]);
        let (code, out, error) = waiting.join().unwrap();
        assert_eq!(code, 0, "{out}{error}");
        let (code, _, error) = run(&["acl", "whoami", "--address", &socket, "--token-file", &root], &[]);
        assert_eq!(code, 0, "{error}");
        assert_eq!(service.stop().0.code(), Some(0));
    });
}

#[test]
fn serve_listens_in_plain_text_on_loopback_and_unix_sockets_only() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/acl.sock", folder.path().display());
    let (service, address) = serve(folder.path(), &socket, &[]);
    assert_eq!(address, socket);
    let (code, out, error) = run(&["acl", "bootstrap"], &[("KEYWARD_ACL_ADDR", &socket)]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert_eq!(service.stop().0.code(), Some(0));

    let dir = folder.path().join("acl").display().to_string();
    let check = |args: &[&str], expected: &str| {
        let (code, _, error) = run(&[&["acl", "serve"], args].concat(), &[]);
        assert!(code == 1 && error.contains(expected), "{args:?}: {error}");
    };
    let advice =
        "error: --listen: would take and give unencrypted tokens; write --tls-cert-file and --tls-key-file, or";
    check(&["--dir", &dir, "--listen", "0.0.0.0:8500"], advice);
    let missing = ["--dir", &dir, "--tls-cert-file", "no.pem", "--tls-key-file", "no.pem"];
    check(&missing, "error: --tls-cert-file: the file ");
    check(&missing, "error: --tls-key-file: the file ");
    check(&["--dir", &dir, "--listen", "localhost:8500"], "is not a TCP address");
    check(&["--dir", "/no/such/folder"], "does not exist");
    check(&["--dir", &dir, "--tls-cert-file", "cert.pem"], "--tls-key-file");
    check(&[], "--dir");
}

#[test]
fn rekey_moves_tokens_and_the_old_key_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let root = folder.path().join("root.token").display().to_string();
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &root], &[]);
    assert_eq!(code, 0, "{error}");
    let rekey = |more: &[&str]| {
        let to = ["acl", "rekey", "--address", &address, "--token-file", &root];
        run(&[&to[..], more].concat(), &[])
    };
    let (code, out, error) = rekey(&["--generate"]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("2 tokens were moved to the key ") && out.contains("other lines"), "{out}");
    let (code, out, _) = rekey(&["--format", "json"]);
    let response: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &response["Rewritten"], &response["Done"]), (0, &0.into(), &true.into()), "{out}");
    let (code, _, error) = run(&["acl", "rekey", "--address", &address], &[]);
    assert!(code == 6 && error.contains("operator:write"), "{error}");
    assert_eq!(service.stop().0.code(), Some(0));

    let file = folder.path().join("acl/seal.key");
    let keys = std::fs::read_to_string(&file).unwrap();
    let (new, old) = keys.split_once('\n').unwrap();
    std::fs::write(&file, new).unwrap();
    let (service, again) = serve(folder.path(), "127.0.0.1:0", &[]);
    let (code, _, error) = run(&["acl", "whoami", "--address", &again, "--token-file", &root], &[]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
    std::fs::write(&file, old).unwrap();
    let dir = folder.path().join("acl").display().to_string();
    let (code, _, error) = run(&["acl", "serve", "--dir", &dir, "--listen", "127.0.0.1:0"], &[]);
    assert!(code == 1 && error.contains("but the store requires"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rekey_repeats_calls_until_all_tokens_are_moved() {
    let server = MockServer::start().await;
    let response = |body: Value| ResponseTemplate::new(200).set_body_string(body.to_string());
    let call = || Mock::given(method("PUT")).and(path("/v1/operator/rekey"));
    let first = json!({"KeyID": "k1", "Rewritten": 3, "Done": false});
    call().and(body_json(json!({"Generate": true}))).respond_with(response(first)).expect(1).mount(&server).await;
    let more = || call().and(body_json(json!({"Generate": false})));
    let second = json!({"KeyID": "k1", "Rewritten": 4, "Done": false});
    more().respond_with(response(second)).up_to_n_times(1).mount(&server).await;
    let last = json!({"KeyID": "k1", "Rewritten": 5, "Done": true});
    more().respond_with(response(last)).up_to_n_times(1).mount(&server).await;
    let stuck = json!({"KeyID": "k1", "Rewritten": 0, "Done": false, "Unreadable": ["token/default/x"]});
    more().respond_with(response(stuck)).mount(&server).await;
    let rekey = async |generate: bool| {
        let uri = server.uri();
        let args = move || {
            let words: &[&str] = if generate { &["acl", "rekey", "--generate"] } else { &["acl", "rekey"] };
            run(words, &[("KEYWARD_ACL_ADDR", &uri), ("KEYWARD_ACL_TOKEN", "secret")])
        };
        tokio::task::spawn_blocking(args).await.unwrap()
    };
    let (code, out, error) = rekey(true).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("12 tokens were moved to the key k1\nall tokens use this key"), "{out}");
    assert_eq!(error.lines().count(), 2, "{error}");
    let (code, out, error) = rekey(false).await;
    assert!(code == 1 && error.contains("token/default/x"), "{error}");
    assert!(!out.contains("may go"), "{out}");
}

#[test]
fn the_commands_of_the_readme_work() {
    run_in_network_namespace(|| {
        let readme = include_str!("../../../README.md");
        let (_, section) = readme.split_once("([tutorial](docs/tutorials/acl-server.md)):\n\n").unwrap();
        let (lines, _) = section.split_once("\n\n").unwrap();
        let lines: Vec<_> = lines.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        let folder = tempfile::tempdir().unwrap();
        // An operator types the second line after the server is up, and looks at the token at last.
        let up = "trap 'kill %1' EXIT; until keyward acl whoami 2> /dev/null; [ $? = 6 ]; do sleep 0.05; done";
        let whoami = "keyward acl whoami --token-file web.token";
        let script = [&lines[..1], &[up], &lines[1..], &[whoami]].concat().join("\n");
        let binary = Path::new(env!("CARGO_BIN_EXE_keyward")).parent().unwrap().display();
        let shell = std::process::Command::new("bash")
            .args(["-e", "-m", "-c", &script])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", format!("{binary}:{}", std::env::var_os("PATH").unwrap().display()))
            .output()
            .unwrap();
        let (out, error) = (String::from_utf8_lossy(&shell.stdout), String::from_utf8_lossy(&shell.stderr));
        assert!(shell.status.success(), "{out}\n{error}");
        let (_, whoami) = out.rsplit_once("Server:").unwrap();
        assert!(whoami.contains("web-read ("), "{out}");
        let (_, left) = whoami.split_once("Remaining life:  ").unwrap();
        // Seconds pass.
        assert!(left.starts_with("8 h\n") || left.starts_with("7 h 59 min\n"), "{out}");
        for file in ["root.token", "web.token"] {
            let secret = std::fs::read_to_string(folder.path().join(file)).unwrap();
            assert!(!out.contains(&secret) && !error.contains(&secret), "{file} is printed");
        }
    });
}
