//! Identities for tools: the real agent with an emulated Azure, its identity listener, and unmodified SDKs as its callers.

mod app_service;
mod aws;
mod files;
mod gcp;
mod kube;
mod oauth;

use std::process::Command;
use std::time::Duration;

use keyward_emulators::cloud::FaultTarget;
use serde_json::Value;

use crate::acl::third_party_clients::clients;
use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::node::node;
use crate::harness::ports;
use crate::harness::world::World;

const ARM: &str = "https://management.azure.com/";
const KEY: &str = "canary-0123456789abcdef";

/// An agent with the identity `azure` for two resources, and nothing else.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) agent: Agent,
    pub(super) port: u16,
}

/// Response of the identity listener.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<u64>,
    pub(super) body: Value,
}

impl Scene {
    /// Starts it with tokens of this life, and `more` in its configuration. Its listener asks for [`KEY`] unless `callers` are given.
    pub(super) fn start(life: Duration, more: &str, callers: &str) -> Self {
        Self::start_after(life, more, callers, ":")
    }

    /// The same, after a shell has run `setup`.
    pub(super) fn start_after(life: Duration, more: &str, callers: &str, setup: &str) -> Self {
        let world = World::start();
        world.cloud.faults().token_life(life);
        let port = ports::reserve().port();
        let key = if callers.is_empty() { "key_file = \"FOLDER/identity.key\"\n" } else { "" };
        let text = format!(
            "[agent]\nstate_dir = \"FOLDER/state\"\n[listener.local]\naddress = \"unix://FOLDER/api.sock\"\n\
             [identity.azure]\nresources = [\"{ARM}\", \"https://vault.azure.net\"]\n[identity.azure.cloud]\n\
             [listener.tools]\nkind = \"identity\"\naddress = \"tcp://127.0.0.1:{port}\"\n{key}{callers}{more}"
        );
        let write_key = "umask 077; printf %s \"$KEY\" > \"$(dirname \"$3\")/identity.key\"";
        let setup = format!("{setup}; {}", write_key.replace("$KEY", KEY));
        let agent = Agent::ready_after(&world, &setup, |_| text);
        Self { world, agent, port }
    }

    /// URL of a form's endpoint.
    pub(super) fn url(&self, identity: &str, form: &str) -> String {
        format!("http://127.0.0.1:{}/identity/v1/{identity}/{form}", self.port)
    }

    /// Asks an endpoint, with these headers.
    pub(super) fn ask(&self, url: &str, headers: &[(&str, &str)]) -> Answer {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.world.block_on(async {
            let response = request.send().await.unwrap();
            let header = response.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
            let status = response.status().as_u16();
            let body = response.bytes().await.unwrap();
            Answer { status, retry_after: header, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }
        })
    }

    /// Number of requests for tokens to the metadata service.
    pub(super) fn upstream_calls(&self) -> u64 {
        self.world.cloud.faults().requests(FaultTarget::Metadata)
    }

    /// A program on the SDKs for Go, built by `tests/clients/install`, with only these variables.
    pub(super) fn go_sdk(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(clients().join("bin/go-identity"));
        self.run_sdk(command.args(arguments).env_clear().envs(variables.iter().copied()))
    }

    /// The programs on the SDKs for Go and for Python, at the same time.
    pub(super) fn sdks(&self, arguments: &[&str], variables: &[(&str, &str)]) -> [String; 2] {
        std::thread::scope(|scope| {
            let python = scope.spawn(|| self.python_sdk(arguments, variables));
            [self.go_sdk(arguments, variables), python.join().unwrap()]
        })
    }

    /// The program on the SDKs for Python, with only these variables.
    pub(super) fn python_sdk(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(clients().join("bin/python"));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/identity_sdks.py");
        // The SDKs look for files below the home.
        let variables = [("HOME", self.agent.path("home").display().to_string())]
            .into_iter()
            .chain(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.run_sdk(command.arg(script).args(arguments).env_clear().envs(variables))
    }

    /// Azure's SDK for JavaScript, for 25 seconds.
    pub(super) fn javascript_sdk(&self, resource: &str, variables: &[(&str, &str)]) -> String {
        let home = ("HOME", self.agent.path("home"));
        let mut command = node("azure_identity.mjs");
        self.run_sdk(command.args([resource, "25"]).env_clear().envs([home]).envs(variables.iter().copied()))
    }

    fn run_sdk(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{text}\n--- the agent:\n{}", self.agent.binary.output());
        text
    }

    /// Has SDKs ask for three lives; asserts that each cost one of `calls` for each of `resources`, and that all tokens were seen.
    pub(super) fn assert_one_call_a_life<const N: usize>(
        &self,
        resources: u64,
        calls: impl Fn(&Self) -> u64,
        sdks: impl FnOnce(&Self) -> [String; N],
    ) {
        let before = calls(self);
        let texts = sdks(self);
        let calls = calls(self) - before;
        for text in texts {
            let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let [requests, tokens] = numbers.as_slice() else { panic!("{text}") };
            assert!(*requests > 20 && (3..=5).contains(tokens), "{requests} requests, {tokens} tokens");
            // The SDKs begin and end at different times.
            assert!(calls <= resources * (tokens + 1), "{calls} calls for {tokens} tokens of each resource");
        }
    }
}

/// Runs `edit` and waits for the reload.
fn reload(scene: &Scene, edit: impl FnOnce(String) -> String) {
    scene.agent.edit(edit);
    scene.agent.reload("ok");
    eventually(Duration::from_secs(10), || {
        let ready = scene.agent.components()["identity/azure"]["ready"].clone();
        if ready == true { Ok(()) } else { Err(ready.to_string()) }
    });
}
