//! One error for each exit code of the command line, as docs/reference/exit-codes.md lists them.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::Transcript;
use super::redact::Redactions;
use crate::harness::Acl;
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::ports;

/// A signed token that ends in 2100: the header `{"alg":"RS256"}`, the claims `{"exp":4102444800}`, no real signature.
const SIGNED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjQxMDI0NDQ4MDB9.c2ln";

/// The configuration `FOLDER/NAME.toml`: a session that presents [`SIGNED`] to a server.
fn configuration(folder: &Path, name: &str, server: &str, more: &str) -> String {
    let (path, place) = (folder.join(format!("{name}.toml")), folder.display());
    std::fs::write(folder.join("jwt"), SIGNED).unwrap();
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"{server}\"\n[session.ci.jwt]\nrole = \"ci\"\nfile = \"{place}/jwt\"\n\
         [agent]\nstate_dir = \"{place}\"\n[listener.local]\n{more}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_for_each_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let port = ports::reserve().port();
    let refusing = MockServer::start().await;
    let refused = ResponseTemplate::new(403).set_body_json(json!({"errors": ["permission denied"]}));
    Mock::given(any()).respond_with(refused).mount(&refusing).await;
    let acl = Acl::start().await;
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/agents");
    let redactions = Redactions::default()
        .text(fixtures, "FIXTURES")
        .text(&place, "FOLDER")
        .text(&refusing.uri(), "http://SERVER")
        .text(&acl.url, "http://ACL")
        .text(&format!("127.0.0.1:{port}"), "127.0.0.1:PORT");
    let mut transcript = Transcript::new(redactions);
    let mut add = |expected: i32, args: &[&str], variables: &[(&str, &str)]| {
        let code = transcript.add_command(&format!("keyward {}", args.join(" ")), args, variables);
        assert_eq!(code, expected, "{args:?}");
    };

    let unix = format!("address = \"unix://{place}/api.sock\"");
    let unreachable = configuration(folder.path(), "unreachable", "http://127.0.0.1:9", &unix);
    let denied = configuration(folder.path(), "denied", &refusing.uri(), &unix);
    let invalid = configuration(folder.path(), "invalid", "http://secrets.example.com", &unix);
    add(1, &["check", "--colour"], &[]);
    add(1, &["fly"], &[]);
    add(1, &["--log-level", "loud", "check"], &[]);
    add(2, &["login", "--config", &denied], &[]);
    add(3, &["login", "--config", &invalid], &[]);
    add(75, &["login", "--config", &unreachable], &[]);
    add(78, &["run", "--config", &invalid], &[]);
    add(7, &["status", "--config", &unreachable], &[]);
    add(5, &["wait", "--timeout", "200ms", "--config", &unreachable], &[]);

    let key = folder.path().join("local.key");
    std::fs::write(&key, "the-key-that-the-agent-read").unwrap();
    let tcp = format!("address = \"tcp://127.0.0.1:{port}\"\nkey_file = \"{}\"", key.display());
    let keyed = configuration(folder.path(), "keyed", &refusing.uri(), &tcp);
    let agent = Binary::start(&["run", "--config", &keyed], &[], folder.path());
    eventually(Duration::from_secs(30), || match run(&["token", "--config", &keyed], &[]) {
        (4, _, error) if error.contains("permission denied") => Ok(()),
        other => Err(format!("{other:?} {}", agent.output())),
    });
    add(4, &["token", "--config", &keyed], &[]);
    add(4, &["healthcheck", "--config", &keyed], &[]);
    std::fs::write(&key, "another-key-of-this-length").unwrap();
    add(6, &["token", "--config", &keyed], &[]);
    drop(agent);

    let with = |token: &'static str| [("KEYWARD_ACL_ADDR", acl.url.as_str()), ("KEYWARD_ACL_TOKEN", token)];
    add(6, &["acl", "token", "list"], &with("45a3bd52-07c7-47a4-52fd-0745e0cfe967"));
    let root = [("KEYWARD_ACL_ADDR", acl.url.as_str()), ("KEYWARD_ACL_TOKEN", acl.root.as_str())];
    acl.make("/v1/acl/policy", json!({"Name": "web"})).await;
    add(8, &["acl", "policy", "read", "none"], &root);
    add(9, &["acl", "policy", "create", "web"], &root);
    add(7, &["acl", "whoami"], &[("KEYWARD_ACL_ADDR", "http://127.0.0.1:9"), ("KEYWARD_ACL_TOKEN", &acl.root)]);

    add(10, &["migrate", &format!("{fixtures}/token-file.hcl")], &[]);

    // The exit code of the program is passed on.
    let proxy = format!("[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://{place}/proxy.sock\"");
    let variable = format!("{unix}\n{proxy}\n[env_template.MODE]\ncontents = \"fast\"\n");
    let program = configuration(folder.path(), "program", "http://127.0.0.1:9", &variable);
    let args = ["exec", "--config", &program, "--", "/bin/sh", "-c", "echo $MODE; exit 42"];
    add(42, &args, &[("PATH", "/usr/bin:/bin")]);
    transcript.compare("exit_codes");
}
