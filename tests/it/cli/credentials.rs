//! Credentials for Docker and git from the executable's other names, through the real agent and the real git.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use keyward_emulators::secrets::{Operation, Role};
use serde_json::{Value, json};

use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::world::{World, run_in_network_namespace};

const CREDENTIALS: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n\
    [credential.registry]\nhosts = [\"Registry.example.com:5000\", \"index.docker.io\"]\npath = \"secret/data/registry\"\n\
    [credential.git]\nhosts = [\"git.example.com\"]\npath = \"secret/data/git\"\nusername = \"ci\"\npassword_field = \"token\"\n\
    [credential.gone]\nhosts = [\"gone.example.com\"]\npath = \"secret/data/nowhere\"\n";

const LENT: &str = "[credential.lent]\nhosts = [\"lent.example.com\"]\npath = \"terraform/creds/deploy\"\nusername = \"ci\"\n\
    password_field = \"token\"\n";

fn start(world: &World) -> Agent {
    start_with(world, "")
}

fn start_with(world: &World, more: &str) -> Agent {
    let token = world.secrets.token(&Role::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (path, fields) in [
        ("registry", json!({ "username": "puller", "password": "canary-registry" })),
        ("git", json!({ "token": "canary-git" })),
    ] {
        let url = format!("{}/v1/secret/data/{path}", world.secrets.url());
        let request = reqwest::Client::new().post(url).header("x-vault-token", token.expose_secret());
        let response = runtime.block_on(request.json(&json!({ "data": fields })).send());
        assert!(response.unwrap().status().is_success());
    }
    let agent = Agent::ready(world, &[], |text| text + CREDENTIALS + more);
    eventually(Duration::from_secs(20), || {
        if agent.path("proxy.sock").exists() { Ok(()) } else { Err(agent.binary.output()) }
    });
    agent
}

/// The executable by another name.
fn link(agent: &Agent, name: &str) -> PathBuf {
    let link = agent.path(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keyward"), &link).unwrap();
    link
}

fn run_helper(command: &mut Command, input: &str) -> (i32, String, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that does not read its input has ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn docker_gets_the_credentials_of_a_registry_from_its_secret() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world);
        let program = link(&agent, "docker-credential-keyward");
        let ask = |verb: &str, input: &str| {
            run_helper(Command::new(&program).arg(verb).env_clear().env("KEYWARD_CONFIG", &agent.config), input)
        };
        for server in
            ["registry.example.com:5000", "https://REGISTRY.example.com:5000/v2/", "https://index.docker.io/v1/\n"]
        {
            let (code, out, error) = ask("get", server);
            assert_eq!((code, error.as_str()), (0, ""), "{server}");
            let expected = json!({ "ServerURL": server.trim(), "Username": "puller", "Secret": "canary-registry" });
            assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
        }
        let none = (1, "credentials not found in native keychain\n".to_owned(), String::new());
        for stranger in ["registry.example.com", "http://index.docker.io/v1/", "evil.example.com", ""] {
            assert_eq!(ask("get", stranger), none, "{stranger}");
        }
        let (code, out, error) = ask("get", "gone.example.com");
        assert!(
            code == 1 && out.is_empty() && error.contains("secret/data/nowhere cannot be read: HTTP 404"),
            "{error}"
        );
        let (code, out, error) = ask("list", "");
        let all =
            json!({ "registry.example.com:5000": "puller", "index.docker.io": "puller", "git.example.com": "ci" });
        assert_eq!((code, serde_json::from_str::<Value>(&out).unwrap()), (0, all), "{error}");
        let login = json!({ "ServerURL": "index.docker.io", "Username": "me", "Secret": "canary-mine" }).to_string();
        let (code, out, _) = ask("store", &login);
        assert!(code == 1 && out.starts_with("keyward stores nothing"), "{out}");
        assert_eq!(ask("erase", "index.docker.io"), (0, String::new(), String::new()));
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1, "all is read through the agent");

        let (status, log) = agent.binary.stop();
        assert!(status.success() && !log.contains("canary"), "{log}");
        let (code, out, error) = ask("get", "index.docker.io");
        assert_eq!((code, out.as_str()), (7, ""), "{error}");
    });
}

#[test]
fn the_kubelet_gets_the_credentials_of_an_images_registry_and_none_for_others() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world);
        let program = link(&agent, "kubelet-credential-keyward");
        let ask = |verb: &str, request: &Value| {
            let mut command = Command::new(&program);
            run_helper(command.arg(verb).env_clear().env("KEYWARD_CONFIG", &agent.config), &request.to_string())
        };
        let request = |version: &str, image: &str| json!({ "apiVersion": format!("credentialprovider.kubelet.k8s.io/{version}"), "kind": "CredentialProviderRequest", "image": image });
        let login = json!({ "username": "puller", "password": "canary-registry" });
        for (image, expected) in [
            ("registry.example.com:5000/team/app:1", json!({ "registry.example.com:5000": login })),
            ("docker.io/library/nginx", json!({ "docker.io": login })),
            ("evil.example.com/registry.example.com:5000/app", json!({})),
        ] {
            let (code, out, error) = ask("get", &request("v1", image));
            let response: Value = serde_json::from_str(&out).unwrap();
            assert_eq!((code, error.as_str(), &response["auth"]), (0, "", &expected), "{image}");
            let fixed = ["kind", "cacheKeyType", "cacheDuration"].map(|key| response[key].as_str().unwrap());
            assert_eq!(fixed, ["CredentialProviderResponse", "Registry", "300s"]);
        }
        let (code, out, error) = ask("get", &request("v1alpha1", "registry.example.com:5000/a"));
        assert!(code == 1 && out.is_empty() && error.contains("another version"), "{error}");
        let (code, out, _) = ask("store", &request("v1", "registry.example.com:5000/a"));
        assert!(code == 1 && out.is_empty());
    });
}

#[test]
fn git_gets_credentials_for_configured_hosts_and_an_empty_answer_for_others() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start_with(&world, LENT);
        let program = link(&agent, "git-credential-keyward");
        let fill = |expected: &str| {
            let helper = format!("credential.helper={} --config {}", program.display(), agent.config.display());
            let next = "credential.helper=!f() { echo username=other; echo password=other; }; f";
            run_helper(
                Command::new("git")
                    .args(["-c", "credential.helper=", "-c", &helper, "-c", next, "credential", "fill"])
                    .env_clear()
                    .env("PATH", "/usr/bin:/bin")
                    .env("HOME", "/nonexistent")
                    .env("GIT_CONFIG_NOSYSTEM", "1")
                    .env("GIT_TERMINAL_PROMPT", "0"),
                expected,
            )
        };
        let (code, out, error) = fill("protocol=https\nhost=git.example.com\npath=team/repo.git\n\n");
        assert_eq!(code, 0, "{error}");
        assert!(out.contains("\nusername=ci\npassword=canary-git\n"), "{out} {error}");
        for other in ["protocol=https\nhost=other.example.com\n\n", "protocol=http\nhost=git.example.com\n\n"] {
            let (code, out, error) = fill(other);
            assert_eq!(code, 0, "{error}");
            assert!(out.contains("password=other\n") && !out.contains("canary"), "{out}");
        }
        let ask = |verb: &str, input: &str| {
            run_helper(Command::new(&program).arg("-c").arg(&agent.config).arg(verb).env_clear(), input)
        };
        let expected = "protocol=https\nhost=git.example.com\nusername=someone\n\n";
        assert_eq!(ask("get", expected), (0, String::new(), String::new()), "it is somebody else's");
        // A leased credential is printed with its expiry; git before 2.40 ignores that line.
        let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let (code, out, error) = ask("get", "protocol=https\nhost=lent.example.com\n\n");
        assert_eq!((code, error.as_str()), (0, ""));
        let ends: u64 =
            out.lines().find_map(|line| line.strip_prefix("password_expiry_utc=")).unwrap().parse().unwrap();
        assert!((before..before + 24 * 3600).contains(&ends), "{before} {ends}");
        let (code, out, error) = fill("protocol=https\nhost=lent.example.com\n\n");
        assert!(code == 0 && out.contains("\nusername=ci\npassword="), "{error}");
        let (_, out, _) = ask("get", "protocol=https\nhost=git.example.com\n\n");
        assert_eq!(out, "username=ci\npassword=canary-git\n", "what stays has no end");
        for verb in ["store", "erase", "what-comes-next"] {
            assert_eq!(ask(verb, expected), (0, String::new(), String::new()), "{verb}");
        }
    });
}
