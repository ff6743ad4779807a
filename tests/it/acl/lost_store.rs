//! A lost store whose key file remains never becomes a new one that anyone may bootstrap.

use std::path::Path;
use std::time::Duration;

use keyward_acl::store::{self, Batch, StoreOptions, Write};

use crate::acl::server_process::serve;
use crate::harness::Acl;
use crate::harness::binary::{Binary, assert_no_rights, eventually, run};
use crate::harness::ports;

/// Starts and stops a service with a store in `folder/access`, whose first token is in `folder/root.token`.
fn used(folder: &Path) {
    let (service, address) = serve(folder, "127.0.0.1:0", &[]);
    let root = folder.join("root.token").display().to_string();
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &root], &[]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
}

/// Starts a server that must fail, and returns its error.
fn refused(folder: &Path, more: &[&str]) -> String {
    let dir = folder.join("acl").display().to_string();
    let (code, _, error) = run(&[&["acl", "serve", "--dir", &dir, "--listen", "127.0.0.1:0"], more].concat(), &[]);
    assert_eq!(code, 1, "{error}");
    error
}

#[test]
fn a_missing_or_empty_store_beside_its_key_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let file = folder.path().join("acl/acl.redb");
    let saved = std::fs::read(&file).unwrap();

    std::fs::write(&file, "").unwrap();
    let output = refused(folder.path(), &[]);
    for expected in
        ["acl.redb is empty, but its key file", "--new-store", "restore a snapshot", "restore the store file"]
    {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "no new store is created");
    std::fs::remove_file(&file).unwrap();
    assert!(refused(folder.path(), &[]).contains("acl.redb is gone, but its key file"));
    assert!(!file.exists(), "no new store is created");

    // Putting the file back restores the server.
    std::fs::write(&file, &saved).unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let root = folder.path().join("root.token").display().to_string();
    let (code, _, error) = run(&["acl", "whoami", "--address", &address, "--token-file", &root], &[]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
    let output = refused(folder.path(), &["--new-store"]);
    assert!(output.contains("acl.redb holds records: start without --new-store"), "{output}");
}

#[test]
fn a_key_file_elsewhere_may_exist_before_the_first_start_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("seal.key"), "5a".repeat(32)).unwrap();
    std::fs::set_permissions(at("seal.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = format!(
        "[acl]\nlisten = \"unix://{}\"\ndata_dir = \"{}\"\nkey_file = \"{}\"\n",
        at("acl.sock"),
        at("acl"),
        at("seal.key"),
    );
    std::fs::write(at("keyward.toml"), config).unwrap();
    let config = at("keyward.toml");
    let args = ["run", "--config", &config];
    let service = Binary::start(&args, &[], folder.path());
    eventually(Duration::from_secs(30), || {
        std::os::unix::net::UnixStream::connect(at("acl.sock")).map_err(|_| service.output())
    });
    assert_eq!(service.stop().0.code(), Some(0));
    std::fs::remove_file(folder.path().join("acl/acl.redb")).unwrap();
    let (code, _, error) = run(&args, &[]);
    assert!(
        code == 1 && error.contains("acl.redb is gone, but its key file") && error.contains("[KW-1603]"),
        "{error}"
    );
}

#[test]
fn new_store_creates_a_store_that_accepts_a_snapshot_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (root, snapshot) = (at("root.token"), at("snapshot"));
    let by = ["--address", &address, "--token-file", &root];
    let (code, _, error) = run(&[&["acl", "backup", "--out", &snapshot], &by[..]].concat(), &[]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
    std::fs::remove_file(folder.path().join("acl/acl.redb")).unwrap();

    // By a configuration file, as the packaged unit starts it.
    let port = ports::reserve().port();
    let config = format!("[acl]\nlisten = \"tcp://127.0.0.1:{port}\"\ndata_dir = \"{}\"\n", at("acl"));
    std::fs::write(folder.path().join("keyward.toml"), config).unwrap();
    let (code, _, error) = run(&["run", "--config", &at("keyward.toml")], &[]);
    assert!(code == 1 && error.contains("--new-store"), "{error}");
    let answering = |args: &[&str]| {
        let service = Binary::start(args, &[], folder.path());
        eventually(Duration::from_secs(30), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|_| service.output())
        });
        service
    };
    let args = ["run", "--config", &at("keyward.toml"), "--new-store"];
    assert_eq!(answering(&args).stop().0.code(), Some(0));
    // By flags; no thread of the one that creates the store is outside the sandbox.
    std::fs::remove_file(folder.path().join("acl/acl.redb")).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let service = answering(&["acl", "serve", "--dir", &at("acl"), "--listen", &listen, "--new-store"]);
    assert_no_rights(service.id());
    let address = format!("http://127.0.0.1:{port}");
    let second = at("second.token");
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &second], &[]);
    assert_eq!(code, 0, "{error}");
    let args = ["acl", "restore", &snapshot, "--address", &address, "--token-file", &second];
    let (code, _, error) = run(&args, &[]);
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(&["acl", "whoami", "--address", &address, "--token-file", &root], &[]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(service.stop().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_interrupted_after_key_creation_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("acl");
    let store = store::open(&StoreOptions::Embedded { data_dir: data_dir.clone() }, "dc1").await.unwrap();
    let begun = Write::Put(store::Key::new(&["seal", "begun"]), b"{}".to_vec());
    store.commit(Batch { checks: Vec::new(), writes: vec![begun] }).await.unwrap();
    drop(store);
    let key = data_dir.join("seal.key");
    std::fs::write(&key, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let path = folder.path().to_owned();
    tokio::task::spawn_blocking(move || used(&path)).await.unwrap();
}

#[tokio::test]
async fn leftovers_of_interrupted_writes_beside_the_key_file_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [ours, another] = [path(".seal.key.0123456789abcdef"), path(".other.key.0123456789abcdef")];
    for file in [&ours, &another] {
        std::fs::write(file, "a key").unwrap();
    }
    let _acl = Acl::start_with(|options| options.key_file = Some(path("seal.key"))).await;
    assert!(path("seal.key").exists() && !ours.exists() && another.exists());
}
