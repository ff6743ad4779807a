//! Failures of the ACL server's store: their beginning is logged, and their end with its length.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::harness::binary::{Binary, eventually, run};

const LIMIT: Duration = Duration::from_mins(2);

/// Starts `keyward run` with an ACL server on a socket. Returns both, with the server's address.
fn serve(folder: &Path, section: &str) -> (Binary, String) {
    let (config, address) = (folder.join("keyward.toml"), format!("unix://{}/acl.sock", folder.display()));
    std::fs::write(&config, format!("[acl]\nlisten = \"{address}\"\n{section}")).unwrap();
    // The signal of a file that exceeds its limit would end the process.
    let server = Binary::start_after("trap '' XFSZ", &["run", "--config", config.to_str().unwrap()], &[], folder);
    logged(&server, "agent.ready");
    (server, address)
}

/// Waits for an event in the log, and returns its line.
fn logged(server: &Binary, event: &str) -> String {
    let event = format!("event=\"{event}\"");
    eventually(LIMIT, || {
        let output = server.output();
        output.lines().find(|line| line.contains(&event)).map(str::to_owned).ok_or(format!("no {event}: {output}"))
    })
}

/// Returns the duration of a failure from the log line about its end.
fn lasted_seconds(line: &str) -> f64 {
    let value = line.split_once(" lasted_seconds=").and_then(|(_, rest)| rest.split(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_store_that_cannot_be_written_is_logged_and_its_recovery_with_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("acl");
    let (server, address) = serve(folder.path(), &format!("data_dir = \"{}\"\n", data.display()));
    let root = folder.path().join("root.token").display().to_string();
    let (code, _, error) = run(&["acl", "bootstrap", "--address", &address, "--out", &root], &[]);
    assert_eq!(code, 0, "{error}");
    let acl = |args: &[&str]| run(&[&["acl"], args, &["--address", &address, "--token-file", &root]].concat(), &[]);
    // A limit on the size of files simulates a full disk. The log's file stays below it.
    let limit = |bytes: Option<u64>| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let id = Pid::from_raw(server.id().cast_signed());
        prlimit(id, Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
    };
    limit(Some(16 * 1024));
    let (code, _, _) = acl(&["policy", "create", "refused"]);
    assert_ne!(code, 0);
    let failed = logged(&server, "acl.store.failed");
    assert!(failed.contains(" code=\"KW-16") && failed.contains(" error=\""), "{failed}");
    let (code, _, error) = acl(&["policy", "list"]);
    assert_eq!(code, 0, "reads go on: {error}");
    assert!(!server.output().contains("acl.store.recovered"), "{}", server.output());
    limit(None);
    eventually(LIMIT, || {
        let (code, _, error) = acl(&["policy", "create", "accepted"]);
        if code == 0 { Ok(()) } else { Err(error) }
    });
    let recovered = logged(&server, "acl.store.recovered");
    assert!(lasted_seconds(&recovered) > 0.0, "{recovered}");
    let (status, output) = server.stop();
    assert!(status.success(), "{output}");
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_watch_of_etcd_is_logged_and_its_recovery_with_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let mut etcd = super::store::etcd_process::Server::start();
    etcd.ready().await;
    let key = folder.path().join("seal.key");
    std::fs::write(&key, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let endpoint = etcd.endpoint("http");
    let endpoint = endpoint.as_str().trim_end_matches('/');
    let section = format!("key_file = \"{}\"\n[acl.etcd]\nendpoints = [\"{endpoint}\"]\n", key.display());
    tokio::task::block_in_place(|| {
        let (server, _) = serve(folder.path(), &section);
        etcd.kill();
        let lost = logged(&server, "acl.store.watch_lost");
        assert!(lost.contains(" error=\""), "{lost}");
        assert!(!server.output().contains("acl.store.watch_recovered"), "{}", server.output());
        etcd.run();
        let recovered = logged(&server, "acl.store.watch_recovered");
        assert!(recovered.contains(&format!(" etcd=\"{endpoint}\" ")), "{recovered}");
        assert!(lasted_seconds(&recovered) > 0.0, "{recovered}");
        let (status, output) = server.stop();
        assert!(status.success(), "{output}");
    });
}
