//! The real binary in a network namespace, with the metadata service at its real address and no override.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

/// Azure identity: the instance's credentials authenticate the agent to Vault; no secret
/// is written in the configuration.
#[test]
fn the_real_binary_logs_in_with_the_identity_of_its_machine() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let config = world.config(folder.path(), "");
        let proxy =
            [("HTTP_PROXY", "http://127.0.0.1:9"), ("http_proxy", "http://127.0.0.1:9"), ("NO_PROXY", "127.0.0.1")];
        let agent = Binary::start(&["run", "--config", &config], &proxy, folder.path());

        let sink = folder.path().join("token");
        let written = eventually(Duration::from_secs(30), || match std::fs::read_to_string(&sink) {
            Ok(token) => Ok(token),
            Err(error) => Err(format!("{error}: {}", agent.output())),
        });
        assert!(written.len() > 10, "{written}");
        assert_eq!(std::fs::metadata(&sink).unwrap().permissions().mode() & 0o777, 0o640);

        let socket = folder.path().join("api.sock");
        let (status, body) = ask(&socket, "GET", "/agent/v1/token").unwrap();
        assert_eq!(status, 200, "{body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["token"], written);
        // The file appears a moment before the sink reports that it is synced.
        eventually(Duration::from_secs(30), || match ask(&socket, "GET", "/readyz")? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("{status}: {body}")),
        });

        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(!output.contains(&written), "the token stands in the log");
        assert!(!output.contains("eyJ"), "a signed token stands in the log: {output}");
        assert!(!socket.exists(), "the socket is removed at the end");
    });
}

#[test]
fn metrics_have_the_time_at_which_the_process_started() {
    run_in_network_namespace(|| {
        let world = World::start();
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let before = now();
        let agent = Agent::ready(&world, &[], |text| text);
        let started = agent.metric("process_start_time_seconds");
        assert!((before..=now()).contains(&started), "{started} is not between {before} and now");
    });
}
