//! Identity files that are deleted, and secret ids that are unwrapped: a reload keeps what was read of them.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_credentials::jwt::signing_input;
use keyward_emulators::secrets::{AppRoleMethod, LoginMethod, Operation, Role};
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json};

use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::world::{World, run_in_network_namespace};

fn jwt() -> String {
    format!("{}.c2ln", signing_input(&json!({ "alg": "none" }), &json!({ "exp": 4_102_444_800_u64 })))
}

/// A world whose server also has the methods `jwt` and `approle`.
fn world() -> World {
    let role = || Role { policies: vec!["web".to_owned()], ..Role::default() };
    let roles = BTreeMap::from(["web", "other"].map(|name| (name.to_owned(), role())));
    let jwt = LoginMethod::jwt(vec![SecretString::from(jwt())], roles);
    let approle = LoginMethod::AppRole(AppRoleMethod {
        name: "web".to_owned(),
        role_id: SecretString::from("role-1"),
        secret_ids: vec![SecretString::from("secret-1")],
        secret_id_ttl: Duration::from_hours(1),
        role: role(),
    });
    let methods = BTreeMap::from([("jwt".to_owned(), jwt), ("approle".to_owned(), approle)]);
    World::with(|_| (), |_, options| options.methods = methods)
}

/// Wraps the secret id.
fn wrapped(world: &World) -> String {
    let token = world.secrets.token(&Role::default());
    let response: Value = world.block_on(async {
        let request = reqwest::Client::new().post(format!("{}/v1/sys/wrapping/wrap", world.secrets.url()));
        let request = request.header("x-vault-token", token.expose_secret()).header("x-vault-wrap-ttl", "5m");
        request.json(&json!({ "secret_id": "secret-1" })).send().await.unwrap().json().await.unwrap()
    });
    response["wrap_info"]["token"].as_str().unwrap().to_owned()
}

/// Replaces the method of the session.
fn with_method(text: &str, mount: &str, method: &str) -> String {
    let (start, end) = (text.find("[session.web]").unwrap(), text.find("[sink.token]").unwrap());
    let text = format!("{}[session.web]\nmount = \"{mount}\"\n{method}\n{}", &text[..start], &text[end..]);
    text.replacen("[agent]\n", "[agent]\nsandbox = \"off\"\n", 1)
}

/// Changes a key of the server, which has the session log in again.
#[track_caller]
fn logs_in_after_a_reload(agent: &Agent) {
    let before = agent.sink("token");
    agent.edit(|text| text.replace("[server.main]\n", "[server.main]\nproxy = \"direct\"\n"));
    agent.reload("ok");
    eventually(Duration::from_secs(30), || match agent.sink("token") {
        new if new != before => Ok(()),
        _ => Err(agent.binary.output()),
    });
}

#[test]
fn a_reload_keeps_the_content_of_a_deleted_identity_file_for_the_same_role_only() {
    run_in_network_namespace(|| {
        let (world, folder) = (world(), tempfile::tempdir().unwrap());
        let file = folder.path().join("jwt");
        std::fs::write(&file, jwt()).unwrap();
        let method = format!("[session.web.jwt]\nrole = \"web\"\nfile = {file:?}\nremove_after_reading = true\n");
        let agent = Agent::ready(&world, &[], |text| with_method(&text, "jwt", &method));
        assert!(!file.exists());
        logs_in_after_a_reload(&agent);

        agent.edit(|text| text.replace("role = \"web\"", "role = \"other\""));
        agent.reload("ok");
        agent.logs("cannot read a secret from");
        let logins = || world.secrets.faults().counts().get(Operation::Login);
        assert_eq!(logins(), 2, "another role does not get what was read for this one");
        std::fs::write(&file, jwt()).unwrap();
        agent.reload("ok");
        eventually(Duration::from_secs(30), || match logins() {
            3 => Ok(()),
            other => Err(format!("{other} logins: {}", agent.binary.output())),
        });
    });
}

#[test]
fn a_reload_keeps_a_secret_id_that_was_unwrapped() {
    run_in_network_namespace(|| {
        let (world, folder) = (world(), tempfile::tempdir().unwrap());
        let (role_id, secret_id) = (folder.path().join("role"), folder.path().join("secret"));
        std::fs::write(&role_id, "role-1").unwrap();
        std::fs::write(&secret_id, wrapped(&world)).unwrap();
        let method = format!(
            "[session.web.approle]\nrole_id_file = {role_id:?}\nsecret_id_file = {secret_id:?}\n\
             secret_id_wrapping_path = \"sys/wrapping/wrap\"\n"
        );
        let agent = Agent::ready(&world, &[], |text| with_method(&text, "approle", &method));
        logs_in_after_a_reload(&agent);
        let counts = world.secrets.faults().counts();
        assert_eq!((counts.get(Operation::Unwrap), counts.get(Operation::Login)), (1, 2));
    });
}
