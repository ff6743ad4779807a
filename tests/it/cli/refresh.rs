//! `keyward refresh`, and the request behind it: the secrets of templates are read again at once.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use serde_json::{Value, json};

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

const TEMPLATE: &str = r#"
[template.app]
contents = '{{ with secret "secret/data/app" }}{{ .Data.data.password }}{{ end }}'
destination = "FOLDER/app.conf"

[templates]
interval = "1d"
"#;

fn key_value(password: &str) -> CannedResponse {
    CannedResponse::new(
        200,
        json!({ "data": { "data": { "password": password }, "metadata": { "version": 1 } } }).to_string(),
    )
}

#[test]
fn refresh_reads_secrets_again_and_tells_which_have_changed() {
    run_in_network_namespace(|| {
        let world = World::start();
        let respond = |response| world.secrets.faults().respond_always(Operation::Secret, Some(response));
        let reads = || world.secrets.faults().counts().get(Operation::Secret);
        respond(key_value("p1"));
        let agent = Agent::ready(&world, &[], |text| text + TEMPLATE);
        let config = agent.config.display().to_string();
        let refresh = |words: &[&str]| run(&[&["refresh"], words, &["--config", &config]].concat(), &[]);
        assert_eq!(agent.sink("app.conf"), "p1");
        let before = reads();

        let (code, output, error) = refresh(&[]);
        assert_eq!((code, output.as_str()), (0, "secret/data/app: unchanged\n"), "{error}");
        respond(key_value("p2"));
        let (code, output, error) = refresh(&["secret/data"]);
        assert_eq!((code, output.as_str()), (0, "secret/data/app: changed\n"), "{error}");
        eventually(Duration::from_secs(10), || match agent.sink("app.conf") {
            text if text == "p2" => Ok(()),
            text => Err(text),
        });
        respond(CannedResponse::error(403, "permission denied"));
        let (code, _, error) = refresh(&[]);
        assert!(code == 1 && error.contains("secret/data/app: ") && error.contains("403"), "{code} {error}");
        assert_eq!(agent.sink("app.conf"), "p2", "it stays");
        assert_eq!(reads(), before + 3);

        let (code, _, error) = refresh(&[]);
        assert!(code == 1 && error.contains("read on request too often"), "{code} {error}");
        assert_eq!(reads(), before + 3, "the request budget is kept");
        let (code, _, error) = refresh(&["secret/dat"]);
        assert!(
            code == 1 && error.contains("no template of this session uses a secret at secret/dat"),
            "{code} {error}"
        );
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/refresh").unwrap().0, 405);
        assert_eq!(ask(&agent.socket(), "POST", "/agent/v1/refresh?session=other").unwrap().0, 404);
    });
}

#[test]
fn refresh_makes_another_password_only_with_force() {
    run_in_network_namespace(|| {
        let world = World::start();
        let lease = |number: u32| {
            let body = json!({ "lease_id": format!("database/creds/app/{number}"), "lease_duration": 3600, "renewable": true,
                               "data": { "data": { "password": format!("p{number}") } } });
            world.secrets.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, body.to_string())));
        };
        lease(1);
        let agent = Agent::ready(&world, &[], |text| text + &TEMPLATE.replace("secret/data/app", "database/creds/app"));
        let refresh = |query: &str| {
            let (status, body) = ask(&agent.socket(), "POST", &format!("/agent/v1/refresh{query}")).unwrap();
            assert_eq!(status, 200, "{body}");
            serde_json::from_str::<Value>(&body).unwrap()["secrets"].clone()
        };
        lease(2);
        assert_eq!(refresh(""), json!([{ "path": "database/creds/app", "outcome": "kept" }]));
        assert_eq!(agent.sink("app.conf"), "p1");
        assert_eq!(refresh("?force=true"), json!([{ "path": "database/creds/app", "outcome": "changed" }]));
        eventually(Duration::from_secs(10), || match agent.sink("app.conf") {
            text if text == "p2" => Ok(()),
            text => Err(text),
        });
    });
}
