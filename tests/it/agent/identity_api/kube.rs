//! `keyward kube-token`, with the client of Kubernetes for Go.

use std::time::Duration;

use serde_json::Value;

use super::{ARM, Scene};
use crate::harness::binary::run;
use crate::harness::world::run_in_network_namespace;

const COMMANDS: &str = "[listener.commands]\nkind = \"identity\"\naddress = \"unix://FOLDER/tools.sock\"\n";

#[test]
fn the_client_of_kubernetes_gets_no_expired_token_in_three_hours_and_each_life_costs_one_call() {
    run_in_network_namespace(|| {
        // An hour is eight seconds here.
        let scene = Scene::start(Duration::from_secs(8), COMMANDS, "");
        let config = scene.agent.config.display().to_string();
        let command = ["kube-token", "--identity", "azure", "--config", &config, "--resource"];
        scene.assert_one_call_a_life(2, Scene::upstream_calls, |scene| {
            let kube = ["kube", "25", env!("CARGO_BIN_EXE_keyward")];
            [scene.go_sdk(&[&kube[..], &command, &[ARM]].concat(), &[("HOME", "/nonexistent")])]
        });
        let info = r#"{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}"#;
        let (code, out, error) = run(&[&command[..], &[ARM]].concat(), &[("KUBERNETES_EXEC_INFO", info)]);
        let credential: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &credential["apiVersion"]), (0, &"client.authentication.k8s.io/v1beta1".into()), "{error}");
        assert!(credential["status"]["expirationTimestamp"].as_str().unwrap().ends_with('Z'), "{credential}");
        let (code, out, error) = run(&[&command[..], &["other"]].concat(), &[]);
        assert!(code != 0 && out.is_empty() && error.contains("is not listed"), "{code} {out} {error}");
    });
}
