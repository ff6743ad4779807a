//! Sinks encrypted for one reader: a running agent, and the reader of the documentation.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use keyward_machine::tasks::TaskGroup;
use rustix::process::Signal;
use serde_json::Value;

use super::derived_tokens::{revoke_all, server, sink, start};
use crate::acl::third_party_clients::clients;
use crate::harness::binary::Binary;

/// Appended to the documented functions: writes a key, then decrypts each sink as soon as possible.
const READER: &str = r#"
import sys
import time

folder, wanted, deadline = sys.argv[1], sys.argv[2:], time.monotonic() + 90
private = make_key(folder + "/key.json")
opened = {}
while len(opened) < len(wanted):
    for name in wanted:
        derive_key, aad = not name.startswith("agreed"), "web" if name.endswith("bound") else ""
        try:
            opened[name] = open_sink(f"{folder}/{name}", private, derive_key, aad).decode()
        except Exception as error:
            if time.monotonic() > deadline:
                raise
    time.sleep(0.05)
print(json.dumps(opened))
"#;

/// Starts a reader of these sinks.
fn reader(folder: &Path, sinks: &[&str]) -> Child {
    let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md")).unwrap();
    let program = docs.split_once("```python\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    Command::new(clients().join("bin/python"))
        .args(["-c", &format!("{program}{READER}"), &folder.display().to_string()])
        .args(sinks)
        .env_clear()
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Content of each sink, as the reader decrypted it.
fn found(reader: Child, agent: &Binary) -> Value {
    let output = tokio::task::block_in_place(|| reader.wait_with_output().unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{}", agent.output());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_reader_opens_each_kind_of_sealed_sink_and_a_reload_takes_its_next_key() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let sealed = |name: &str, keys: &str, encrypt: &str| {
        format!(
            "[sink.{name}]\npath = \"FOLDER/{name}\"\n{keys}[sink.{name}.encrypt]\n\
             public_key_file = \"FOLDER/key.json\"\n{encrypt}"
        )
    };
    let sinks = [
        sealed("derived", "", ""),
        sealed("derived-bound", "mode = \"0644\"\n", "aad = \"web\"\n"),
        sealed("agreed", "", "derive_key = false\n"),
        sealed("agreed-bound", "", "derive_key = false\naad = \"web\"\n"),
        sealed("wrapped", "wrap_ttl = \"5m\"\nformat = \"json\"\n", ""),
    ];
    let names = ["derived", "derived-bound", "agreed", "agreed-bound", "wrapped"];
    let agent = start(&secrets, folder.path(), &sinks.concat());
    let token = sink(&agent, &folder.path().join("raw"), "");
    tokio::task::block_in_place(|| agent.logs("cannot read the reader's public key"));

    let tokens = found(reader(folder.path(), &names), &agent);
    for name in &names[..4] {
        assert_eq!(tokens[name], Value::String(token.clone()), "{name}");
        let envelope = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(!envelope.contains(&token), "{envelope}");
    }
    let wrapping: Value = serde_json::from_str(tokens["wrapped"].as_str().unwrap()).unwrap();
    assert_eq!((&wrapping["creation_path"], &wrapping["ttl"]), (&"sys/wrapping/wrap".into(), &300.into()));

    // Their content differs each time they are written: a deleted one comes back with the next token, a plain one at once.
    for name in ["agreed", "wrapped", "raw"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    assert_eq!(sink(&agent, &folder.path().join("raw"), ""), token);
    assert_eq!(["agreed", "wrapped"].map(|name| folder.path().join(name).exists()), [false, false]);

    // A new reader's key is used after a reload only: the next token is still sealed for the first reader.
    let before = std::fs::read_to_string(folder.path().join("derived")).unwrap();
    let key = std::fs::read_to_string(folder.path().join("key.json")).unwrap();
    let next = reader(folder.path(), &["derived"]);
    sink(&agent, &folder.path().join("key.json"), &key);
    revoke_all(&secrets, folder.path());
    let renewed = sink(&agent, &folder.path().join("raw"), &token);
    sink(&agent, &folder.path().join("derived"), &before);
    for name in ["agreed", "wrapped"] {
        sink(&agent, &folder.path().join(name), "");
    }
    assert_eq!(agent.output().matches("sink.restored").count(), 1);
    assert_eq!(agent.output().matches("sink.reader").count(), names.len());
    agent.signal(Signal::HUP);
    assert_eq!(found(next, &agent)["derived"], Value::String(renewed.clone()));

    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
    for secret in [&token, &renewed] {
        assert!(!output.contains(secret.as_str()), "a token stands in the log: {output}");
    }
}
