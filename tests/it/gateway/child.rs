//! The gateway's variables in the environment of the child process, and its restart when a token is replaced. Real processes.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::harness::binary::{Binary, eventually};
use crate::harness::front::Platform;
use crate::harness::program::write_script;

const LIMIT: Duration = Duration::from_secs(40);

/// A platform in this process, and an agent with a gateway to it and a child process that records its environment.
struct World {
    platform: Platform,
    upstream: String,
    folder: tempfile::TempDir,
    _servers: JoinSet<()>,
}

impl World {
    fn start(tokens: &[&str]) -> Self {
        let (platform, mut servers) = (Platform::default(), JoinSet::new());
        for token in tokens {
            platform.accept(token);
        }
        let upstream = format!("http://{}", platform.serve(&mut servers));
        let world = Self { platform, upstream, folder: tempfile::tempdir().unwrap(), _servers: servers };
        world.put("platform.token", tokens[0]);
        write_script(
            &world.folder.path().join("child.sh"),
            "trap 'echo told >> told' HUP\nenv | grep ^TF | sort > found.new\n\
             echo PID=$$ >> found.new\nmv found.new found\nwhile :; do sleep 1; done",
        );
        world
    }

    /// Replaces a file as a whole.
    fn put(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn configure(&self, gateway: &str, child: &str) {
        let text = format!(
            "[agent]\nstate_dir = \"FOLDER\"\n[gateway]\nupstream = \"{}\"\nlisten = \"tcp://127.0.0.1:0\"\n\
             token_file = \"FOLDER/platform.token\"\nhost = \"app.terraform.io\"\n{gateway}\n\
             [process]\ncommand = [\"/bin/sh\", \"-c\", \"cd FOLDER && exec ./child.sh\"]\ndebounce = \"100ms\"\n{child}\n",
            self.upstream
        );
        self.put("keyward.toml", &text.replace("FOLDER", &self.folder.path().display().to_string()));
    }

    fn run(&self) -> Binary {
        let config = self.folder.path().join("keyward.toml").display().to_string();
        Binary::start(&["run", "--config", &config], &[("PATH", "/usr/bin:/bin")], self.folder.path())
    }

    /// Variables of the child process, once they differ from `before`.
    async fn found(&self, agent: &Binary, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let path = self.folder.path().join("found");
        let (mut wait, mut text) = (tokio::time::interval(Duration::from_millis(20)), String::new());
        for _ in 0..2000 {
            wait.tick().await;
            text = std::fs::read_to_string(&path).unwrap_or_default();
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            let found: BTreeMap<_, _> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            if found.contains_key("PID") && found != *before {
                return found;
            }
        }
        panic!("{text} {}", agent.output());
    }
}

async fn stop(agent: Binary, secrets: &[&str]) {
    let (ended, output) = tokio::task::spawn_blocking(|| agent.stop()).await.unwrap();
    assert!(ended.success(), "{output}");
    for secret in secrets {
        assert!(!output.contains(secret), "{output}");
    }
}

#[tokio::test]
async fn a_child_uses_the_gateway_and_notices_no_rotation() {
    let world = World::start(&["canary-one", "canary-two"]);
    world.configure("process_token = \"local_token\"", "");
    let agent = world.run();
    let found = world.found(&agent, &BTreeMap::new()).await;
    let local = std::fs::read_to_string(world.folder.path().join("gateway.token")).unwrap().trim().to_owned();
    assert_eq!((found["TFE_TOKEN"].as_str(), found["TFE_HOSTNAME"].as_str()), (local.as_str(), "app.terraform.io"));
    assert_eq!(found["TF_TOKEN_app_terraform_io"], local);
    let call = async || {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("{}/api/v2/ping", found["TFE_ADDRESS"])).bearer_auth(&found["TFE_TOKEN"]);
        request.send().await.map_or(0, |response| response.status().as_u16())
    };
    assert_eq!(call().await, 200);
    let last = || world.platform.requests().last().unwrap().bearer().to_owned();
    assert_eq!(last(), "canary-one");

    world.put("platform.token", "canary-two");
    for _ in 0..1000 {
        assert_eq!(call().await, 200);
        if last() == "canary-two" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(last(), "canary-two");
    // A reload that rebuilds the gateway does not affect it either.
    world.configure("process_token = \"local_token\"\nconnections = 100", "");
    agent.signal(Signal::HUP);
    let reloaded = || agent.output().contains("config.reload");
    for _ in 0..2000 {
        if reloaded() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(reloaded(), "{}", agent.output());
    assert_eq!(world.found(&agent, &BTreeMap::new()).await["PID"], found["PID"]);
    assert!(!agent.output().contains("process.restarting"), "{}", agent.output());
    stop(agent, &["canary", &local]).await;
}

#[tokio::test]
async fn a_child_with_the_platform_token_is_restarted_or_signalled_on_rotation() {
    let world = World::start(&["canary-one"]);
    world.configure("process_token = \"platform_token\"", "");
    let agent = world.run();
    let first = world.found(&agent, &BTreeMap::new()).await;
    assert_eq!((first["TFE_TOKEN"].as_str(), &first["TFE_ADDRESS"]), ("canary-one", &world.upstream));
    world.put("platform.token", "canary-two");
    let second = world.found(&agent, &first).await;
    assert_eq!(second["TFE_TOKEN"], "canary-two");
    assert_ne!(second["PID"], first["PID"]);

    // The reloaded section applies: the child gets a signal and keeps its environment.
    world.configure("process_token = \"platform_token\"", "on_change = \"signal\"");
    agent.signal(Signal::HUP);
    let third = world.found(&agent, &second).await;
    assert_eq!(third["TFE_TOKEN"], "canary-two");
    world.put("platform.token", "canary-three");
    let marker = world.folder.path().join("told");
    let agent = tokio::task::spawn_blocking(move || {
        eventually(LIMIT, || if marker.exists() { Ok(()) } else { Err(agent.output()) });
        agent
    });
    let agent = agent.await.unwrap();
    assert_eq!(world.found(&agent, &BTreeMap::new()).await, third);
    stop(agent, &["canary"]).await;
}

#[tokio::test]
async fn a_child_starts_once_its_terraform_file_can_be_written() {
    let world = World::start(&["canary-one"]);
    world.put("mine.tfrc", "{");
    world.configure("process_token = \"local_token\"", "pass_env = [\"TF_CLI_CONFIG_FILE\"]");
    let config = world.folder.path().join("keyward.toml").display().to_string();
    let mine = world.folder.path().join("mine.tfrc").display().to_string();
    let variables = [("PATH", "/usr/bin:/bin"), ("TF_CLI_CONFIG_FILE", &*mine)];
    let agent = Binary::start(&["run", "--config", &config], &variables, world.folder.path());
    let reader = tokio::task::spawn_blocking(move || {
        eventually(LIMIT, || if agent.output().contains("is not valid JSON") { Ok(()) } else { Err(agent.output()) });
        agent
    });
    let agent = reader.await.unwrap();
    assert!(!world.folder.path().join("found").exists());
    world.put("mine.tfrc", "{}");
    let found = world.found(&agent, &BTreeMap::new()).await;
    assert_eq!(found["TFE_HOSTNAME"], "app.terraform.io");
    stop(agent, &["canary"]).await;
}
