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
