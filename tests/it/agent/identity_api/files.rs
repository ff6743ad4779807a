//! Token files, and the variables by which programs find an identity.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_credentials::jwt::UnverifiedClaims;

use super::{ARM, KEY, Scene};
use crate::harness::binary::{eventually, run};
use crate::harness::world::run_in_network_namespace;

#[test]
fn a_program_of_exec_and_the_process_get_the_variables_of_an_identity_and_its_file_is_there() {
    run_in_network_namespace(|| {
        let more = format!(
            "[sink.federated]\nidentity = \"azure\"\nresource = \"{ARM}\"\npath = \"FOLDER/federated.token\"\n\
             [process]\ncommand = [\"/bin/sh\", \"-c\", \"env > FOLDER/env.new; mv FOLDER/env.new FOLDER/env; sleep 60\"]\n\
             identity = \"azure\"\n"
        );
        let scene = Scene::start(Duration::from_hours(1), &more, "");
        let file = scene.agent.path("federated.token");
        let token = scene.agent.sink("federated.token");
        assert_eq!(UnverifiedClaims::decode(&token).unwrap().aud, [ARM]);
        let expected = BTreeMap::from([
            ("IDENTITY_ENDPOINT", scene.url("azure", "app-service")),
            ("IDENTITY_HEADER", KEY.to_owned()),
            ("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string()),
            ("ARM_OIDC_TOKEN_FILE_PATH", file.display().to_string()),
        ]);
        let check = |text: &str| {
            for (name, value) in &expected {
                assert!(text.lines().any(|line| line == format!("{name}={value}")), "{name}: {text}");
            }
            assert!(!text.contains("AWS_"), "{text}");
        };
        let environment = scene.agent.path("env");
        check(&eventually(Duration::from_secs(20), || {
            std::fs::read_to_string(&environment).map_err(|error| error.to_string())
        }));
        let config = scene.agent.config.display().to_string();
        let (code, out, error) = run(&["exec", "--config", &config, "--identity", "azure", "--", "/usr/bin/env"], &[]);
        assert_eq!(code, 0, "{error}");
        check(&out);
        let (code, _, error) = run(&["exec", "--config", &config, "--identity", "other", "--", "/usr/bin/env"], &[]);
        assert!(code != 0 && error.contains("has no [identity.other]"), "{error}");
        let (status, log) = scene.agent.binary.stop();
        assert!(!log.contains("canary") && !log.contains("eyJ"), "{status} {log}");
    });
}

#[test]
fn azures_sdk_finds_a_token_in_the_file_that_has_not_expired() {
    run_in_network_namespace(|| {
        let sink = format!(
            "[sink.federated]\nidentity = \"azure\"\nresource = \"{ARM}\"\npath = \"FOLDER/federated.token\"\n"
        );
        // An hour is eight seconds here.
        let scene = Scene::start(Duration::from_secs(8), &sink, "");
        scene.agent.sink("federated.token");
        let file = scene.agent.path("federated.token").display().to_string();
        let variables = [
            ("AZURE_FEDERATED_TOKEN_FILE", file.as_str()),
            ("AZURE_TENANT_ID", "72f988bf-0000-0000-0000-000000000000"),
            ("AZURE_CLIENT_ID", "6b3a3a7c-0000-0000-0000-000000000000"),
            ("PATH", "/usr/bin:/bin"),
        ];
        let before = scene.upstream_calls();
        let text = scene.python_sdk(&["workload-identity", "25"], &variables);
        let calls = scene.upstream_calls() - before;
        let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [requests, tokens] = numbers.as_slice() else { panic!("{text}") };
        assert!(*requests > 20 && (3..=6).contains(tokens), "{requests} requests, {tokens} tokens");
        // The file is replaced while the program starts and ends, too.
        assert!(calls <= tokens + 2, "{calls} calls for {tokens} tokens");
    });
}
