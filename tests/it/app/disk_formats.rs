//! Files in the formats of version 1: each later version opens them. `tests/it/fixtures/on_disk/README.md` describes them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::acl::server_process::serve;
use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::world::{RESOURCE, run_in_network_namespace};

const LIMIT: Duration = Duration::from_mins(1);

/// The address of the server that the agent's files are bound to; nothing listens there.
const SERVER: &str = "127.0.0.1:1";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/on_disk").join(name)
}

/// The time at which the agent's files were new, in seconds since 1970: leases last 32 days at most.
const WALL_CLOCK: &str = "1795957230";

/// A library that moves the wall clock of the process that preloads it to `WALL_CLOCK_START`; its other clocks stay.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct timespec began;
__attribute__((constructor)) static void begin(void) { syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    const char *start = getenv("WALL_CLOCK_START");
    if (clock != CLOCK_REALTIME || !start) return syscall(SYS_clock_gettime, clock, now);
    int result = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now);
    now->tv_sec += atol(start) - began.tv_sec;
    return result;
}
"#;

/// Builds the library; the C compiler is one that the build of the program needs too.
fn shifted_clock(folder: &Path) -> String {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, SHIFTED_CLOCK).unwrap();
    let arguments = [Path::new("-shared"), Path::new("-fPIC"), Path::new("-o"), &library, &source];
    assert!(Command::new("cc").args(arguments).status().unwrap().success(), "the C compiler failed");
    library.display().to_string()
}

/// A copy of a fixture's folder that the test may change, with modes that git does not keep.
fn copy(name: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let mut pending = vec![(fixture(name), folder.path().to_owned())];
    while let Some((from, to)) = pending.pop() {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                std::fs::create_dir(&target).unwrap();
                std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o700)).unwrap();
                pending.push((entry.path(), target));
            } else {
                std::fs::copy(entry.path(), &target).unwrap();
                std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
    }
    folder
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

fn agent_configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"
[server.main]
kind = "vault"
address = "http://{SERVER}"

[session.web]
mount = "azure"
seal_key_file = "{folder}/seal.key"

[session.web.cloud]
role = "web"
resource = "{RESOURCE}"

[sink.token]
path = "{folder}/token"

[listener.local]
address = "unix://{folder}/api.sock"

[listener.vault]
kind = "api_proxy"
address = "unix://{folder}/vault.sock"

[listener.vault.cache]
persist = true
max_age = "1h"
stale_if_error = "7d"

[templates]
persist = true
stale_if_error = "30d"

[template.login]
destination = "{folder}/login"
contents = "{{{{ with secret \"database/creds/web\" }}}}{{{{ .Data.username }}}}:{{{{ .Data.password }}}}{{{{ end }}}}"

[agent]
state_dir = "{folder}/state"
"#
    )
}

#[test]
fn an_agent_takes_up_the_token_the_responses_and_the_secrets_of_version_1() {
    run_in_network_namespace(|| {
        let (folder, expected) = (copy("agent"), expected("agent"));
        let config = folder.path().join("keyward.toml").display().to_string();
        std::fs::write(&config, agent_configuration(folder.path())).unwrap();
        let library = shifted_clock(folder.path());
        let variables = [("LD_PRELOAD", library.as_str()), ("WALL_CLOCK_START", WALL_CLOCK)];
        let agent = Binary::start(&["run", "--config", &config], &variables, folder.path());
        let token =
            eventually(LIMIT, || std::fs::read_to_string(folder.path().join("token")).map_err(|_| agent.output()));
        assert_eq!(token, expected["token"].as_str().unwrap(), "the session's token");
        let login =
            eventually(LIMIT, || std::fs::read_to_string(folder.path().join("login")).map_err(|_| agent.output()));
        assert_eq!(login, expected["template"].as_str().unwrap(), "a secret that a template uses");
        let body =
            eventually(LIMIT, || match ask(&folder.path().join("vault.sock"), "GET", "/v1/database/creds/proxy") {
                Ok((200, body)) => Ok(body),
                other => Err(format!("{other:?}\n{}", agent.output())),
            });
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["data"], expected["answer"], "a response that the API proxy has cached");
        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(output.starts_with("2026-11-29T13:0"), "the wall clock is not the shifted one: {output}");
    });
}

#[test]
fn an_acl_server_opens_the_store_and_restores_the_snapshot_of_version_1() {
    let (folder, expected) = (copy("acl"), expected("acl"));
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let root = file("root.token");
    let run_ok = |arguments: &[&str]| {
        let all = [arguments, &["--address", &address, "--token-file", &root]].concat();
        let (code, out, error) = run(&all, &[]);
        assert_eq!(code, 0, "{arguments:?}: {error}");
        out
    };
    let check_records = || {
        for (command, texts) in expected["shows"].as_object().unwrap() {
            let out = run_ok(&command.split(' ').collect::<Vec<_>>());
            for text in texts.as_array().unwrap() {
                let text = text.as_str().unwrap();
                assert!(out.contains(text), "{command} does not show {text}: {out}");
            }
        }
        let web = file("web.token");
        let (code, out, error) = run(&["acl", "whoami", "--address", &address, "--token-file", &web], &[]);
        assert!(code == 0 && out.contains("web-read"), "{out}{error}");
    };
    check_records();
    run_ok(&["acl", "policy", "delete", "web-read"]);
    run_ok(&["acl", "restore", &file("snapshot")]);
    check_records();
    let (status, output) = service.stop();
    assert_eq!(status.code(), Some(0), "{output}");
}

#[test]
fn an_audit_of_version_1_is_verified_with_its_checkpoint() {
    let folder = copy("audit");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (audit, key, checkpoint) = (file("audit.jsonl"), file("audit.key"), file("checkpoint.json"));
    let (code, out, error) = run(&["audit", "verify", &audit, "--key-file", &key, "--checkpoint", &checkpoint], &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
}

#[test]
fn a_gateway_accepts_the_local_tokens_of_version_1() {
    let folder = copy("gateway");
    let path = folder.path().display();
    let owner = folder.path().join("local.token.owner");
    let text = std::fs::read_to_string(&owner).unwrap();
    std::fs::write(&owner, text.replace("FOLDER", &path.to_string())).unwrap();
    std::fs::write(folder.path().join("platform.token"), "the platform token\n").unwrap();
    let config = format!(
        "[gateway]\nupstream = \"http://{SERVER}\"\nlisten = \"unix://{path}/gateway.sock\"\ntoken_file = \"{path}/platform.token\"\n\
         local_token_file = \"{path}/local.token\"\n"
    );
    std::fs::write(folder.path().join("keyward.toml"), config).unwrap();
    let gateway = Binary::start(&["run", "--config", &format!("{path}/keyward.toml")], &[], folder.path());
    let status = |token: &str| {
        let mut stream = UnixStream::connect(folder.path().join("gateway.sock")).map_err(|error| error.to_string())?;
        let head = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
        write!(stream, "GET /api/v2/ping HTTP/1.1\r\n{head}").map_err(|error| error.to_string())?;
        let mut response = String::new();
        stream.read_to_string(&mut response).map_err(|error| error.to_string())?;
        response.split(' ').nth(1).map(str::to_owned).ok_or(response)
    };
    assert_eq!(eventually(LIMIT, || status("another").map_err(|error| error + &gateway.output())), "401");
    for name in ["local.token", "local.token.previous"] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        // Nothing listens at the upstream's address.
        assert_eq!(status(text.split_whitespace().next().unwrap()).unwrap(), "503", "{name}");
    }
    assert_eq!(gateway.stop().0.code(), Some(0));
}
