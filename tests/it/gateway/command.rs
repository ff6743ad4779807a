//! `keyward gateway` as processes: output, state across a restart, secrecy and memory.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::harness::binary::{Binary, assert_no_rights, eventually, run, run_with_input};
use crate::harness::front::Platform;
use crate::harness::ports;
use crate::harness::scripted::reply;

/// A platform in this process, and a folder for a gateway in another.
pub(super) struct World {
    platform: Platform,
    upstream: String,
    folder: tempfile::TempDir,
    _servers: JoinSet<()>,
}

impl World {
    pub(super) fn start() -> Self {
        let (platform, mut servers) = (Platform::default(), JoinSet::new());
        platform.accept("canary-platform-token");
        let upstream = format!("http://{}", platform.serve(&mut servers));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("platform.token"), "canary-platform-token\n").unwrap();
        Self { platform, upstream, folder, _servers: servers }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&self, listen: &str) -> Binary {
        let (token, dir) = (self.path("platform.token"), self.path("state"));
        let args = ["--log-level", "trace", "gateway", "serve", "--upstream", &self.upstream, "--token-file", &token];
        Binary::start(
            &[&args[..], &["--listen", listen, "--dir", &dir, "--deprecated", "always"]].concat(),
            &[],
            self.folder.path(),
        )
    }

    /// Address of the gateway, once it answers.
    async fn address(&self, gateway: &Binary) -> String {
        let output = self.folder.path().join("output.txt");
        let printed = || {
            let text = std::fs::read_to_string(&output).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("serving "))?;
            Some(line.split_once(" on ")?.1.to_owned())
        };
        for _ in 0..1000 {
            if let Some(address) = printed()
                && reqwest::get(format!("{address}/.well-known/terraform.json")).await.is_ok()
            {
                return address;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no gateway: {}", gateway.output());
    }

    fn local_file(&self) -> PathBuf {
        let name = self.upstream.strip_prefix("http://").unwrap().replace(':', "-");
        self.folder.path().join("state").join(format!("{name}.token"))
    }
}

#[tokio::test]
async fn serve_says_at_once_that_its_token_file_is_missing_and_serves_once_it_is_there() {
    let world = World::start();
    let file = world.path("platform.token");
    std::fs::remove_file(&file).unwrap();
    let gateway = world.serve("127.0.0.1:0");
    let address = world.address(&gateway).await;
    let warning = format!("warning: --token-file {file}: ");
    let output = gateway.output();
    let (before, after) = output.split_once("serving http").unwrap();
    assert!(before.contains(&warning) && before.contains("calls get 503") && before.contains("[KW-1702]"), "{output}");
    assert!(!after.contains(&warning), "{output}");
    std::fs::write(&file, "canary-platform-token\n").unwrap();
    let local = std::fs::read_to_string(world.local_file()).unwrap();
    let call = || async {
        let request = client().get(format!("{address}/api/v2/account/details")).bearer_auth(local.trim());
        request.send().await.unwrap().status().as_u16()
    };
    for _ in 0..1000 {
        if call().await == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{}: {}", call().await, gateway.output());
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Runs the binary while this test's runtime serves the platform.
pub(super) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn a_token_file_that_others_may_read_is_a_warning() {
    let world = World::start();
    let warning = "warning: --token-file: other users can access this file (mode 0644); set mode 0600";
    for (mode, warns) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(world.path("platform.token"), Permissions::from_mode(mode)).unwrap();
        let gateway = world.serve("127.0.0.1:0");
        world.address(&gateway).await;
        let output = gateway.output();
        assert_eq!(output.contains(warning), warns, "{mode:o}: {output}");
        std::fs::remove_file(world.path("output.txt")).unwrap();
    }
}

#[tokio::test]
async fn two_gateways_to_one_platform_with_tokens_of_their_own_do_not_share_a_local_token() {
    let world = World::start();
    let gateway = world.serve("127.0.0.1:0");
    world.address(&gateway).await;
    let before = std::fs::read_to_string(world.local_file()).unwrap();
    let other = world.path("other.token");
    std::fs::write(&other, "canary-other-token").unwrap();
    let (upstream, dir) = (world.upstream.clone(), world.path("state"));
    let (code, _, error) = offload(move || {
        let args = ["gateway", "serve", "--upstream", &upstream, "--token-file", &other, "--listen", "127.0.0.1:0"];
        run(&[&args[..], &["--dir", &dir]].concat(), &[])
    })
    .await;
    let file = world.local_file().display().to_string();
    assert_ne!(code, 0, "{error}");
    assert!(error.contains(&format!("{file} is the local token of another gateway")), "{error}");
    assert!(error.contains("configure another file") && !error.contains("canary"), "{error}");
    assert_eq!(std::fs::read_to_string(world.local_file()).unwrap(), before);
    // The same gateway once more is no other.
    drop(gateway);
    let again = world.serve("127.0.0.1:0");
    world.address(&again).await;
    assert_eq!(std::fs::read_to_string(world.local_file()).unwrap(), before);
}

#[tokio::test]
async fn a_gateway_removes_what_a_killed_one_left_beside_its_local_token() {
    let world = World::start();
    let local = world.local_file();
    let name = local.file_name().unwrap().to_string_lossy().into_owned();
    let state = local.parent().unwrap();
    std::fs::create_dir(state).unwrap();
    std::fs::set_permissions(state, Permissions::from_mode(0o700)).unwrap();
    // A process that was killed while it wrote the token, the one before it, or the name of their owner.
    for written in ["", ".previous", ".owner"] {
        std::fs::write(state.join(format!(".{name}{written}.0123456789abcdef")), "canary").unwrap();
    }
    let gateway = world.serve("127.0.0.1:0");
    world.address(&gateway).await;
    let left = |of: &str| {
        let found = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut found: Vec<_> = found.filter(|found| found.contains(of)).collect();
        found.sort();
        found
    };
    assert_eq!(left(&name), [name.clone(), format!("{name}.owner")], "{}", gateway.output());
    let owner = std::fs::metadata(state.join(format!("{name}.owner"))).unwrap();
    assert_eq!(owner.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_missing_token_file_is_reported_once_by_a_gateway_that_serves_and_so_is_its_arrival() {
    let world = World::start();
    std::fs::remove_file(world.path("platform.token")).unwrap();
    let gateway = world.serve("127.0.0.1:0");
    world.address(&gateway).await;
    let count = |event: &str| {
        let output = std::fs::read_to_string(world.path("output.txt")).unwrap();
        output.lines().filter(|line| line.contains(event)).count()
    };
    let until = async |event: &str| {
        for _ in 0..3000 {
            if count(event) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {event}: {}", gateway.output());
    };
    until("gateway.token.missing").await;
    std::fs::write(world.path("next"), "canary-platform-token\n").unwrap();
    std::fs::rename(world.path("next"), world.path("platform.token")).unwrap();
    until("gateway.token.recovered").await;
    assert_eq!((count("gateway.token.missing"), count("gateway.token.recovered")), (1, 1), "{}", gateway.output());
    assert!(
        gateway.output().contains("was=\"missing\"") || gateway.output().contains("was=missing"),
        "{}",
        gateway.output()
    );
}

#[tokio::test]
async fn a_trial_prints_the_variables_to_set_and_its_local_token_survives_a_restart() {
    let world = World::start();
    let gateway = world.serve("127.0.0.1:0");
    let address = world.address(&gateway).await;
    gateway.logs("clients send the local token in ");
    let output = gateway.output();
    assert_no_rights(gateway.id());
    let file = world.local_file().display().to_string();
    assert!(output.contains(&format!("clients send the local token in {file}")), "{output}");
    assert!(output.contains(&format!("\"tfe.v2.2\" = \"{address}/api/v2/\"")), "{output}");
    assert!(output.contains("host \"localterraform.com\" {"), "{output}");
    let local = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(!output.contains(&local), "{output}");

    let at = ["--address", &address, "--local-token-file", &file, "--host", "app.terraform.io"].map(str::to_owned);
    let ask = |command: &'static str, more: Vec<String>| {
        let args = [vec!["gateway".to_owned(), command.to_owned()], at.to_vec(), more].concat();
        offload(move || run(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[]))
    };
    let (code, out, error) = ask("env", vec![]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], format!("export TFE_ADDRESS='{address}'"));
    assert_eq!(lines[3], format!("export TF_TOKEN_app_terraform_io='{local}'"));
    assert_eq!(lines[4..], ["export NO_PROXY='127.0.0.1'", "export no_proxy='127.0.0.1'"]);

    let get = async |address: &str| {
        client().get(format!("{address}/api/v2/ping")).bearer_auth(&local).send().await.unwrap().status().as_u16()
    };
    assert_eq!(get(&address).await, 200);
    assert_eq!(world.platform.requests()[0].bearer(), "canary-platform-token");
    let (code, out, error) = ask("tokens", vec![]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.contains(&format!("platform token  for {} from file ", world.upstream)), "{out}");
    assert!(!out.contains(&local) && !out.contains("canary"), "{out}");
    let (_, out, _) = ask("tokens", vec!["--format".to_owned(), "json".to_owned()]).await;
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["platform_token"]["serving"], true);

    world.platform.answers(|request| {
        let last = request.target.contains("page%5Bnumber%5D=2");
        let (id, next) = if last { ("at-2", Value::Null) } else { ("at-1", json!(2)) };
        let ends = if last { Value::Null } else { json!("2027-01-01T00:00:00.000Z") };
        let attributes = json!({"created-at": "2026-01-01T00:00:00.000Z", "last-used-at": null, "expired-at": ends});
        let token = json!({"id": id, "attributes": attributes, "relationships": {"team": {"data": {"id": "team-7"}}}});
        let page = json!({"data": [token], "meta": {"pagination": {"next-page": next}}});
        reply(200, &[("content-type", "application/vnd.api+json")], page.to_string())
    });
    let (code, out, error) = ask("tokens", vec!["--organization".to_owned(), "my org".to_owned()]).await;
    assert!(code == 0 && error.contains("1 of them never expire"), "{error}");
    assert!(out.contains("team-7  at-1") && out.contains("team-7  at-2"), "{out}");
    assert!(world.platform.requests().pop().unwrap().target.starts_with("/api/v2/organizations/my%20org/team-tokens?"));

    world.platform.answers(|request| reply(if request.method == "POST" { 201 } else { 200 }, &[], "{}"));
    let old = client().post(format!("{address}/api/v2/registry-modules/o/n/p/versions")).bearer_auth(&local);
    assert_eq!(old.send().await.unwrap().status(), 201);
    let sent = world.platform.requests().pop().unwrap().target;
    assert_eq!(sent, "/api/v2/organizations/o/registry-modules/private/o/n/p/versions", "--deprecated always");

    // In the midst of a run: the same port, the same token.
    let port = address.strip_prefix("http://").unwrap().to_owned();
    gateway.signal(Signal::KILL);
    drop(gateway);
    let gateway = world.serve(&port);
    assert_eq!(world.address(&gateway).await, address);
    assert_eq!(get(&address).await, 200);
    let (status, output) = offload(move || gateway.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    let (code, _, error) = ask("tokens", vec![]).await;
    assert!(code == 7 && error.contains("no gateway answers"), "{code} {error}");
}

#[tokio::test]
async fn the_platform_token_is_in_no_file_argument_variable_or_log() {
    let world = World::start();
    world.platform.answers(|request| match request.target.as_str() {
        "/api/v2/blob" => reply(302, &[("location", "https://archivist.example.com/v1/object/canary-blob")], ""),
        _ => reply(200, &[("content-type", "application/json")], r#"{"links":{},"token":"canary-answer"}"#),
    });
    let gateway = world.serve("127.0.0.1:0");
    let address = world.address(&gateway).await;
    let local = std::fs::read_to_string(world.local_file()).unwrap().trim().to_owned();
    let call = |method: reqwest::Method, path: &str| {
        client().request(method, format!("{address}{path}")).bearer_auth(&local).body("canary-body").send()
    };
    call(reqwest::Method::POST, "/api/v2/a?q=canary-query").await.unwrap();
    let _ = call(reqwest::Method::GET, "/api/v2/blob").await;
    world.platform.revoke("canary-platform-token");
    world.platform.accept("canary-second-token");
    std::fs::write(world.path("next"), "canary-second-token").unwrap();
    std::fs::rename(world.path("next"), world.path("platform.token")).unwrap();
    assert_eq!(call(reqwest::Method::GET, "/api/v2/a").await.unwrap().status(), 200);
    client().get(format!("{address}/api/v2/a")).bearer_auth("canary-presented").send().await.unwrap();
    std::fs::write(world.path("platform.token"), "canary broken").unwrap();
    call(reqwest::Method::GET, "/v1/platform/tokens").await.unwrap();
    world.platform.revoke("canary-second-token");
    // Too large to wait for another token.
    let large = client().post(format!("{address}/api/v2/a")).bearer_auth(&local).body(vec![b'x'; 2 << 20]);
    assert_eq!(large.send().await.unwrap().status(), 503);

    let process = |file: &str| std::fs::read(format!("/proc/{}/{file}", gateway.id())).unwrap();
    let mut outputs =
        vec![("the command line".to_owned(), process("cmdline")), ("the environment".to_owned(), process("environ"))];
    let state = std::fs::read_dir(world.path("state")).unwrap().map(|entry| entry.unwrap().path());
    outputs.extend(state.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())));
    assert!(outputs.len() > 2, "the state folder was looked at");
    let (status, output) = offload(move || gateway.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("gateway.forwarded") && output.contains("gateway.token.loaded"), "everything was logged");
    assert!(!output.contains(&local), "the local token is in the log");
    outputs.push(("the log".to_owned(), output.into_bytes()));
    for (name, bytes) in outputs {
        assert!(!bytes.windows(6).any(|window| window == b"canary"), "{name}: {}", String::from_utf8_lossy(&bytes));
    }
}

#[tokio::test]
async fn a_hundred_large_bodies_stream_at_once_in_bounded_memory() {
    let world = World::start();
    let gateway = world.serve("127.0.0.1:0");
    let address = world.address(&gateway).await;
    let local = std::fs::read_to_string(world.local_file()).unwrap().trim().to_owned();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let client = client();
    let before = resident();
    let downloads = (0..100).map(|_| {
        let call = client.get(format!("{address}/api/v2/download/10")).bearer_auth(&local);
        async move {
            let mut response = call.send().await.unwrap();
            let mut bytes = 0;
            while let Some(chunk) = response.chunk().await.unwrap() {
                bytes += chunk.len();
            }
            bytes
        }
    });
    for bytes in join_all(downloads).await {
        assert_eq!(bytes, 10 * 1024 * 1024);
    }
    let after = resident();
    // A thousand MiB have passed.
    assert!(after < before + 100, "{before} MiB have become {after}");
}

#[tokio::test]
async fn the_executable_works_as_terraforms_credentials_helper() {
    let world = World::start();
    let gateway = world.serve("127.0.0.1:0");
    let address = world.address(&gateway).await;
    let program = world.folder.path().join("terraform-credentials-keyward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keyward"), &program).unwrap();
    let file = world.local_file().display().to_string();
    let local = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let ask = |verb: &str, host: &str, file: &str| {
        let output = Command::new(&program)
            .args(["--address", &address, "--local-token-file", file, "--host", "app.terraform.io", verb, host])
            .env_clear()
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, out, error) = ask("get", "app.terraform.io", &file);
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({ "token": local }));
    assert_eq!(ask("get", "tfe.example.com", &file), (0, "{}\n".to_owned(), String::new()));
    assert_eq!(ask("forget", "app.terraform.io", &file), (0, String::new(), String::new()));
    for (verb, host, file, expected) in [
        ("store", "app.terraform.io", file.as_str(), "is managed by keyward"),
        ("store", "tfe.example.com", &file, "no token is stored here"),
        ("get", "app.terraform.io", "/nowhere/gateway.token", "has no local token yet"),
        ("list", "app.terraform.io", &file, "get, store or forget"),
    ] {
        let (code, out, error) = ask(verb, host, file);
        assert_eq!((code, out.as_str(), error.lines().count()), (1, "", 1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    // The commands print the same text.
    let (_, _, helper) = ask("get", "app.terraform.io", "/nowhere/gateway.token");
    for command in ["env", "tokens", "report"] {
        let at = ["--address", &address, "--local-token-file", "/nowhere/gateway.token"].map(str::to_owned);
        let outcome =
            offload(move || run(&[&["gateway", command], &at.each_ref().map(String::as_str)[..]].concat(), &[])).await;
        assert_eq!(outcome, (1, String::new(), helper.clone()), "{command}");
    }
    let more = ["--local-token-file", &file, "--host", "tfe.example.com:8443"].map(str::to_owned);
    let at =
        [vec!["gateway".to_owned(), "env".to_owned(), "--address".to_owned(), address.clone()], more.to_vec()].concat();
    let (code, out, error) = offload(move || run(&at.iter().map(String::as_str).collect::<Vec<_>>(), &[])).await;
    assert!(
        code == 0 && !out.contains("TF_TOKEN") && error.contains("no environment variable's name can contain it"),
        "{error}"
    );
    // Under its own name, the executable is keyward.
    let (code, _, _) = offload(|| run_with_input(&["get", "app.terraform.io"], &[], "")).await;
    assert_eq!(code, 1);
    drop(gateway);
}

/// A configuration with a gateway and a drop-in file, and the file of another that is the user's own.
fn config(world: &World, listen: &str, more: &str) -> String {
    config_with_token_kind(world, listen, more, "")
}

pub(super) fn config_with_token_kind(world: &World, listen: &str, more: &str, token_kind: &str) -> String {
    let folder = world.folder.path();
    let home = folder.join("terraform.d");
    std::fs::create_dir_all(&home).unwrap();
    let state = folder.join("state");
    std::fs::create_dir_all(&state).unwrap();
    let text = format!(
        "[agent]\nstate_dir = \"{}\"\n[gateway]\nupstream = \"{}\"\nlisten = \"{listen}\"\ntoken_file = \"{}\"\nhost = \"app.terraform.io\"\n{more}\n\
         [gateway.terraform_config_file]\npath = \"{}/zz-keyward.tfrc.json\"\n{token_kind}\n",
        state.display(),
        world.upstream,
        world.path("platform.token"),
        home.display()
    );
    let path = folder.join("keyward.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The head of a response, in lower case; its body, which is short, is read too.
pub(super) async fn head(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse::<usize>().unwrap() {
                return head.to_owned();
            }
        }
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await.unwrap();
        assert_ne!(length, 0, "it was cut: {text}");
        bytes.extend_from_slice(&piece[..length]);
    }
}

pub(super) fn terraform_config_file(folder: &Path) -> Value {
    let file = folder.join("terraform.d/zz-keyward.tfrc.json");
    eventually(Duration::from_secs(30), || {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_the_listener_and_the_local_token_and_the_users_own_files_stay_as_they_are() {
    let world = World::start();
    let free = ports::reserve();
    let path = config(&world, &format!("tcp://{free}"), "");
    let folder = world.folder.path();
    let own = folder.join("terraform.d/credentials.tfrc.json");
    std::fs::write(&own, "{\"credentials\":{\"other.example.com\":{\"token\":\"mine\"}}}\n").unwrap();
    let before = (std::fs::read(&own).unwrap(), std::fs::metadata(&own).unwrap().modified().unwrap());
    let agent = Binary::start(&["run", "--config", &path], &[], folder);
    let written = terraform_config_file(folder);
    let local = written["credentials"]["app.terraform.io"]["token"].as_str().unwrap().to_owned();
    let services = &written["host"]["app.terraform.io"]["services"];
    assert_eq!(services["tfe.v2"], format!("http://{free}/api/v2/"));
    let call = |client: &reqwest::Client| client.get(format!("http://{free}/api/v2/ping")).bearer_auth(&local).send();
    // Callers that never pause: each call has its own connection.
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    assert_eq!(call(&client).await.unwrap().status(), 200);
    let request = format!("GET /api/v2/ping HTTP/1.1\r\nHost: {free}\r\nAuthorization: Bearer {local}\r\n\r\n");
    let mut idle: Vec<_> = (0..4).map(|_| tokio::net::TcpStream::connect(free)).collect();
    let mut streams = Vec::new();
    for connecting in idle.drain(..) {
        let mut stream = connecting.await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with("http/1.1 200") && !head.contains("connection: close"), "{head}");
        streams.push(stream);
    }
    for round in 1..=5 {
        config(&world, &format!("tcp://{free}"), &format!("requests_per_second = {}", 1000 + round));
        agent.signal(Signal::HUP);
        let reloaded = || agent.output().matches("config.reload.ok").count() >= round;
        while !reloaded() {
            let response = client.get(format!("http://{free}/api/v2/ping")).bearer_auth(&local).send().await;
            assert_eq!(response.unwrap().status(), 200);
        }
        assert_eq!(call(&client).await.unwrap().status(), 200);
        if round == 1 {
            // Idle connections get a response, the last one with `connection: close`. The first may come before the stop.
            for stream in &mut streams {
                loop {
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let head = head(stream).await;
                    assert!(head.starts_with("http/1.1 200"), "{head}");
                    if head.contains("connection: close") {
                        break;
                    }
                }
                assert_eq!(stream.read(&mut [0; 1024]).await.unwrap(), 0, "it is closed");
            }
        }
    }
    let (code, out, error) = offload(move || run(&["gateway", "tokens", "--config", &path], &[])).await;
    assert_eq!(code, 0, "{error}");
    let calls = out.lines().find(|line| line.contains("unknown  ")).unwrap();
    let count: u64 = calls.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(count > 5, "the counts outlive a reload: {out}");
    assert_eq!(terraform_config_file(folder), written);
    assert_eq!((std::fs::read(&own).unwrap(), std::fs::metadata(&own).unwrap().modified().unwrap()), before);
    let (status, output) = offload(move || agent.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
}

#[tokio::test]
async fn a_file_that_could_not_be_written_is_written_once_it_can_be() {
    let world = World::start();
    let path = config(&world, "tcp://127.0.0.1:0", "");
    let file = world.folder.path().join("terraform.d/zz-keyward.tfrc.json");
    std::fs::write(&file, "{\"credentials\":{}}").unwrap();
    let agent = Binary::start(&["run", "--config", &path], &[], world.folder.path());
    offload(move || {
        eventually(Duration::from_secs(30), || {
            let warned = agent.output().contains("was not written by keyward");
            warned.then_some(()).ok_or_else(|| agent.output())
        });
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"credentials\":{}}");
        std::fs::remove_file(&file).unwrap();
        eventually(Duration::from_secs(90), || file.exists().then_some(()).ok_or_else(|| agent.output()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_get_the_platform_token_if_configured_until_it_ends() {
    let world = World::start();
    let path = config_with_token_kind(&world, "tcp://127.0.0.1:0", "", "token_kind = \"platform_token\"");
    let folder = world.folder.path();
    let agent = Binary::start(&["run", "--config", &path], &[], folder);
    let token = |written: &Value| written["credentials"]["app.terraform.io"]["token"].as_str().unwrap().to_owned();
    let written = terraform_config_file(folder);
    let platform = std::fs::read_to_string(world.path("platform.token")).unwrap();
    assert_eq!((token(&written).as_str(), &written["host"]), (platform.trim(), &Value::Null));

    let (code, out, error) = offload({
        let path = path.clone();
        move || run(&["gateway", "env", "--config", &path, "--host", "app.terraform.io"], &[])
    })
    .await;
    assert_eq!((code, error.as_str()), (0, ""));
    for line in [
        format!("export TFE_ADDRESS='{}'", world.upstream),
        format!("export TF_TOKEN_app_terraform_io='{}'", platform.trim()),
    ] {
        assert!(out.lines().any(|found| found == line), "{out}");
    }
    assert!(!out.contains("NO_PROXY"), "the platform itself may be behind the proxy: {out}");

    std::fs::write(world.path("platform.token"), "the-next-token-of-the-platform\n").unwrap();
    eventually(Duration::from_secs(30), || {
        let now = token(&terraform_config_file(folder));
        if now == "the-next-token-of-the-platform" { Ok(()) } else { Err(now) }
    });
    let (status, output) = offload(move || agent.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(!output.contains(platform.trim()) && !output.contains("the-next-token"), "{output}");
    assert!(!folder.join("terraform.d/zz-keyward.tfrc.json").exists());
}
