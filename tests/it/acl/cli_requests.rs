//! `keyward acl` against a mock server: requests, output, secrets that stay hidden, and exit codes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use wiremock::matchers::{any, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::harness::binary::run_with_input;

const OLD: &str = "6a1253d2-1785-24fd-91c2-f8e78c745511";
const NEW: &str = "7b1253d2-1785-24fd-91c2-f8e78c745522";
const SECRET: &str = "45a3bd52-07c7-47a4-52fd-0745e0cfe967";
const NEW_SECRET: &str = "99999999-07c7-47a4-52fd-0745e0cfe967";

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

/// Runs `keyward acl WORDS` against a server, with a token in the environment; words are split at spaces.
pub(crate) async fn acl(url: &str, token: &str, words: &str, input: &str) -> CommandOutput {
    let args: Vec<String> = std::iter::once("acl").chain(words.split(' ')).map(str::to_owned).collect();
    let (url, token, input) = (url.to_owned(), token.to_owned(), input.to_owned());
    let ran = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut variables = vec![("KEYWARD_ACL_ADDR", url.as_str())];
        if !token.is_empty() {
            variables.push(("KEYWARD_ACL_TOKEN", &token));
        }
        run_with_input(&args, &variables, &input)
    });
    let (code, out, error) = ran.await.unwrap();
    CommandOutput { code, out, error }
}

fn token(accessor: &str, secret: &str) -> Value {
    json!({"AccessorID": accessor, "SecretID": secret, "Description": "web", "Local": false,
        "Policies": [{"ID": OLD, "Name": "web-read"}], "CreateTime": "2026-01-02T03:04:05Z"})
}

/// Mock server with the old token only.
async fn server() -> MockServer {
    let server = MockServer::start().await;
    on(&server, "GET", "/v1/acl/token/self", 200, token(OLD, SECRET).to_string()).await;
    on(&server, "GET", &format!("/v1/acl/token/{OLD}"), 200, token(OLD, SECRET).to_string()).await;
    on(&server, "GET", "/v1/acl/tokens", 200, json!([token(OLD, SECRET), token(NEW, "<hidden>")]).to_string()).await;
    server
}

async fn on(server: &MockServer, verb: &str, at: &str, status: u16, body: impl Into<String>) {
    let response = ResponseTemplate::new(status).set_body_string(body);
    Mock::given(method(verb)).and(path(at)).respond_with(response).mount(server).await;
}

/// Returns the method, path and token of each request that is no read.
async fn changes(server: &MockServer) -> Vec<String> {
    let requests = server.received_requests().await.unwrap();
    let changes = requests.iter().filter(|request| request.method.as_str() != "GET");
    let token = |request: &wiremock::Request| request.headers["x-service-token"].to_str().unwrap().to_owned();
    changes.map(|request| format!("{} {} {}", request.method, request.url.path(), token(request))).collect()
}

async fn last_body(server: &MockServer, verb: &str, at: &str) -> Value {
    let requests = server.received_requests().await.unwrap();
    let found = requests.iter().rev().find(|request| request.method.as_str() == verb && request.url.path() == at);
    found.unwrap_or_else(|| panic!("no {verb} {at}")).body_json().unwrap()
}

#[tokio::test]
async fn a_token_is_printed_without_its_secret_unless_requested() {
    let server = server().await;
    let run = async |words: &str| acl(&server.uri(), SECRET, words, "").await;
    let read = run("token read 6a12").await;
    assert_eq!((read.code, read.error.as_str()), (0, ""), "{read:?}");
    assert!(read.out.contains(OLD) && read.out.contains("web-read (") && !read.out.contains(SECRET), "{read:?}");
    let json: Value = serde_json::from_str(&run("token read 6a12 --format json").await.out).unwrap();
    assert_eq!((&json["AccessorID"], &json["SecretID"]), (&json!(OLD), &Value::Null));
    let output = run("token read 6a12 --show-secret").await;
    assert!(output.out.contains(SECRET), "{output:?}");
    let json: Value = serde_json::from_str(&run("token read --self --show-secret --format json").await.out).unwrap();
    assert_eq!(json["SecretID"], SECRET);
    for words in ["token list", "token list --format json", "whoami", "whoami --format json"] {
        let listed = run(words).await;
        assert!(listed.code == 0 && listed.out.contains(OLD) && !listed.out.contains(SECRET), "{words}: {listed:?}");
    }
    let table = run("token list").await.out;
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("AccessorID ") && lines[1].contains("policy web-read"), "{table}");
}

#[tokio::test]
async fn an_update_keeps_the_fields_that_no_option_changes() {
    let server = server().await;
    let at = format!("/v1/acl/token/{OLD}");
    on(&server, "PUT", &at, 200, token(OLD, SECRET).to_string()).await;
    let linked = json!({"ID": OLD, "Name": "web-read"});
    for (words, expected) in [
        ("--description new", json!({"Description": "new", "Local": false, "Policies": [linked]})),
        (
            "--policy-name b --merge --templated-policy builtin/service --var name:web",
            json!({"Description": "web", "Local": false, "Policies": [linked, {"Name": "b"}],
                "TemplatedPolicies": [{"TemplateName": "builtin/service", "TemplateVariables": {"name": "web"}}]}),
        ),
        (
            "--policy-name b --role-name r --service-identity web:dc1,dc2 --node-identity n1:dc1",
            json!({"Description": "web", "Local": false, "Policies": [{"Name": "b"}], "Roles": [{"Name": "r"}],
                "ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc1", "dc2"]}],
                "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}]}),
        ),
        ("--no-policies", json!({"Description": "web", "Local": false})),
    ] {
        let ended = acl(&server.uri(), SECRET, &format!("token update {OLD} {words}"), "").await;
        assert_eq!(ended.code, 0, "{words}: {ended:?}");
        assert_eq!(last_body(&server, "PUT", &at).await, expected, "{words}");
        assert!(!ended.out.contains(SECRET), "{ended:?}");
    }
}

#[tokio::test]
async fn a_new_secret_is_printed_once_or_written_to_a_private_file() {
    let server = server().await;
    on(&server, "PUT", "/v1/acl/token", 200, token(NEW, NEW_SECRET).to_string()).await;
    on(&server, "DELETE", &format!("/v1/acl/token/{NEW}"), 200, "true").await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(folder.path().join("given"), format!("{NEW_SECRET}\n")).unwrap();
    let printed =
        acl(&server.uri(), SECRET, &format!("token create --ttl 90m --secret-file {}", file("given")), "").await;
    assert!(printed.code == 0 && printed.out.matches(NEW_SECRET).count() == 1, "{printed:?}");
    let body = last_body(&server, "PUT", "/v1/acl/token").await;
    assert_eq!((&body["ExpirationTTL"], &body["SecretID"]), (&json!("5400s"), &json!(NEW_SECRET)));
    let piped = acl(&server.uri(), SECRET, "token create --local --secret-file -", NEW_SECRET).await;
    assert_eq!(piped.code, 0, "{piped:?}");
    assert_eq!(last_body(&server, "PUT", "/v1/acl/token").await["SecretID"], NEW_SECRET);
    let filed = acl(&server.uri(), SECRET, &format!("token create --out {}", file("out")), "").await;
    assert!(filed.code == 0 && !filed.out.contains(NEW_SECRET) && !filed.error.contains(NEW_SECRET), "{filed:?}");
    assert_eq!(std::fs::read_to_string(file("out")).unwrap(), NEW_SECRET);
    assert_eq!(std::fs::metadata(file("out")).unwrap().permissions().mode() & 0o777, 0o600);
    let lost = acl(&server.uri(), SECRET, &format!("token create --out {}", file("no/such/folder")), "").await;
    assert!(
        lost.code == 1 && lost.error.contains("the new token was deleted") && !lost.error.contains(NEW_SECRET),
        "{lost:?}"
    );
    let deleted = format!("DELETE /v1/acl/token/{NEW} {SECRET}");
    assert_eq!(changes(&server).await.last(), Some(&deleted));
}

#[tokio::test]
async fn a_file_that_exists_gets_a_new_secret_by_force_alone() {
    let server = server().await;
    on(&server, "PUT", "/v1/acl/token", 200, token(NEW, NEW_SECRET).to_string()).await;
    on(&server, "PUT", &format!("/v1/acl/token/{OLD}/clone"), 200, token(NEW, NEW_SECRET).to_string()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("root.token");
    for (index, words) in ["token create".to_owned(), format!("token clone {OLD}")].iter().enumerate() {
        std::fs::write(&file, SECRET).unwrap();
        let refused = acl(&server.uri(), SECRET, &format!("{words} --out {}", file.display()), "").await;
        assert!(refused.code == 1 && refused.error.contains("exists already"), "{words}: {refused:?}");
        assert!(refused.error.contains("--force"), "{words}: {refused:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), SECRET, "{words}");
        assert_eq!(changes(&server).await.len(), index, "{words}: no token is made");
        let forced = acl(&server.uri(), SECRET, &format!("{words} --out {} --force", file.display()), "").await;
        assert_eq!(forced.code, 0, "{words}: {forced:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), NEW_SECRET, "{words}");
    }
    let unused = acl(&server.uri(), SECRET, "token create --force", "").await;
    assert!(unused.code == 1 && unused.error.contains("--out"), "{unused:?}");
}

#[tokio::test]
async fn a_denied_command_names_the_permission_and_has_its_own_exit_code() {
    let check = async |status: u16, text: &str, words: &str, code: i32, expected: &str| {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(status).set_body_string(text)).mount(&server).await;
        let ended = acl(&server.uri(), SECRET, words, "").await;
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{words}: {ended:?}");
        assert!(ended.error.starts_with("error: ") && ended.error.contains(expected), "{words}: {ended:?}");
        assert!(ended.error.lines().count() == 1 && !ended.error.contains(SECRET), "{ended:?}");
    };
    let denied = format!("Permission denied: token with AccessorID '{OLD}' lacks permission 'acl:read'");
    check(403, &denied, "token list", 6, &format!("the token with accessor {OLD} lacks acl:read")).await;
    check(403, "ACL not found", "token list", 6, "wrong, expired or deleted").await;
    check(404, "Requested token does not exist: ACL not found", &format!("token read {OLD}"), 8, "does not exist")
        .await;
    check(404, "Cannot find token to delete", &format!("token delete {OLD}"), 8, "no token ").await;
    check(200, "false", &format!("token delete {OLD}"), 8, "nothing was deleted").await;
    check(
        404,
        "Requested role does not exist: ACL not found",
        "role read web",
        8,
        "no role has the name or id \"web\"",
    )
    .await;
    check(409, "Invalid Role: A Role with Name \"web\" already exists", "role create web", 9, "already exists").await;
    check(400, "Role decoding failed: EOF", "role create web", 2, "Role decoding failed").await;
    check(429, "", "token list", 75, "the server rate-limited the call").await;
    check(503, "sealed", "token list", 75, "the server is unavailable (503): sealed").await;
    check(200, "<html>", "token list", 2, "unexpected response").await;
    check(307, "", "token list", 2, "unexpected response").await;
    let old = "Invalid URL path: not a recognized HTTP API endpoint";
    check(404, old, "namespace list", 2, "it needs 1.7.0 or later").await;
    check(404, old, "role list", 2, "it needs 1.5.0 or later").await;
    let field = "Token decoding failed: json: unknown field \"NodeIdentities\"";
    check(400, field, "token create --node-identity n1:dc1", 2, "the field NodeIdentities: it needs 1.8.1").await;

    let server = MockServer::start().await;
    on(&server, "GET", "/v1/acl/token/self", 404, "Supplied token does not exist").await;
    let ended = acl(&server.uri(), "", "whoami", "").await;
    assert!(ended.code == 6 && ended.error.contains("KEYWARD_ACL_TOKEN_FILE"), "{ended:?}");
    let unreachable = acl("http://127.0.0.1:9", SECRET, "whoami", "").await;
    assert!(unreachable.code == 7 && unreachable.error.contains("--address"), "{unreachable:?}");
    for (address, reason) in [("http://10.0.0.1:8500", "unencrypted"), ("http://127.0.0.1:8500/v1", "ends with /v1")] {
        let ended = acl(address, SECRET, "whoami", "").await;
        assert!(ended.code == 1 && ended.error.contains(reason), "{ended:?}");
    }
}

/// Mock server on which the old token, which all commands use, can be cloned.
async fn clonable() -> MockServer {
    let server = MockServer::start().await;
    let of = |secret: &str| wiremock::matchers::header("x-service-token", secret);
    for (secret, accessor) in [(SECRET, OLD), (NEW_SECRET, NEW)] {
        let response = ResponseTemplate::new(200).set_body_string(token(accessor, secret).to_string());
        let own = Mock::given(method("GET")).and(path("/v1/acl/token/self")).and(of(secret));
        own.respond_with(response).mount(&server).await;
    }
    on(&server, "GET", &format!("/v1/acl/token/{OLD}"), 200, token(OLD, SECRET).to_string()).await;
    on(&server, "PUT", &format!("/v1/acl/token/{OLD}/clone"), 200, token(NEW, NEW_SECRET).to_string()).await;
    server
}

fn clone_by(secret: &str) -> String {
    format!("PUT /v1/acl/token/{OLD}/clone {secret}")
}

fn delete_by(accessor: &str, secret: &str) -> String {
    format!("DELETE /v1/acl/token/{accessor} {secret}")
}

#[tokio::test]
async fn a_token_that_rotates_itself_is_deleted_by_the_new_one() {
    let server = clonable().await;
    on(&server, "DELETE", &format!("/v1/acl/token/{OLD}"), 200, "true").await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("token");
    std::fs::write(&out, SECRET).unwrap();
    let words = format!("token rotate --self --grace 100ms --token-file {0} --out {0}", out.display());
    let ended = acl(&server.uri(), "", &words, "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), NEW_SECRET);
    assert_eq!(changes(&server).await, [clone_by(SECRET), delete_by(OLD, NEW_SECRET)]);
    let output = format!("{}{}", ended.out, ended.error);
    assert!(!output.contains(SECRET) && !output.contains(NEW_SECRET) && output.contains(NEW), "{ended:?}");
}

#[tokio::test]
async fn a_rotation_prints_the_command_that_deletes_the_remaining_old_token() {
    let server = clonable().await;
    let ended = acl(&server.uri(), SECRET, &format!("token rotate {OLD} --leave-old"), "").await;
    assert!(ended.code == 0 && ended.out.contains(NEW_SECRET), "{ended:?}");
    assert_eq!(changes(&server).await, [clone_by(SECRET)]);
    let (_, command) = ended.error.split_once("delete it by: keyward acl ").unwrap();
    on(&server, "DELETE", &format!("/v1/acl/token/{OLD}"), 200, "true").await;
    let deleted = acl("http://127.0.0.1:9", NEW_SECRET, command.trim(), "").await;
    assert_eq!(deleted.code, 0, "{command} {deleted:?}");
    assert_eq!(changes(&server).await.last(), Some(&delete_by(OLD, NEW_SECRET)));
}

#[tokio::test]
async fn a_failed_rotation_changes_nothing_or_reports_the_exact_state() {
    let folder = tempfile::tempdir().unwrap();
    let rotate = async |server: &MockServer, more: &str| {
        acl(&server.uri(), SECRET, &format!("token rotate {OLD} --grace 0s{more}"), "").await
    };
    // The file cannot be written: the new token is deleted, the old one stays.
    let server = clonable().await;
    on(&server, "DELETE", &format!("/v1/acl/token/{NEW}"), 200, "true").await;
    let ended = rotate(&server, &format!(" --out {}/no/such", folder.path().display())).await;
    assert!(
        ended.code == 1 && ended.error.contains("the new token was deleted; the old token still works"),
        "{ended:?}"
    );
    assert_eq!(changes(&server).await, [clone_by(SECRET), delete_by(NEW, SECRET)]);

    // The new token is refused.
    let server = MockServer::start().await;
    let own = Mock::given(method("GET")).and(path("/v1/acl/token/self"));
    let known = own.and(wiremock::matchers::header("x-service-token", SECRET));
    known.respond_with(ResponseTemplate::new(200).set_body_string(token(OLD, SECRET).to_string())).mount(&server).await;
    on(&server, "GET", "/v1/acl/token/self", 404, "Supplied token does not exist").await;
    on(&server, "GET", &format!("/v1/acl/token/{OLD}"), 200, token(OLD, SECRET).to_string()).await;
    on(&server, "PUT", &format!("/v1/acl/token/{OLD}/clone"), 200, token(NEW, NEW_SECRET).to_string()).await;
    let stuck = Mock::given(method("DELETE")).and(path(format!("/v1/acl/token/{NEW}")));
    stuck.respond_with(ResponseTemplate::new(503)).up_to_n_times(1).mount(&server).await;
    let ended = rotate(&server, "").await;
    let state = format!("both tokens exist, the old one {OLD} and the new one {NEW}");
    assert!(ended.error.contains(&state) && ended.out.is_empty(), "{ended:?}");
    on(&server, "DELETE", &format!("/v1/acl/token/{NEW}"), 200, "true").await;
    let ended = rotate(&server, "").await;
    assert!(ended.error.contains("the new token was deleted; the old one still works"), "{ended:?}");
    assert_eq!(ended.code, 6);

    // The old token cannot be deleted.
    let server = clonable().await;
    let denied = format!("Permission denied: token with AccessorID '{OLD}' lacks permission 'acl:write'");
    on(&server, "DELETE", &format!("/v1/acl/token/{OLD}"), 403, denied).await;
    let ended = rotate(&server, "").await;
    assert!(ended.code == 6 && ended.out.contains(NEW_SECRET), "{ended:?}");
    let state = format!("the new token {NEW} works, but the old token {OLD}");
    assert!(
        ended.error.contains(&state) && ended.error.contains("delete it with: keyward acl token delete"),
        "{ended:?}"
    );

    // It is uncertain that the clone was created, or certain that it was not.
    for (status, body, state) in [
        (502, "", "the new token may have been created"),
        (400, "ExpirationTime cannot be less than 1m0s in the future (was 59s)", "; nothing was changed"),
    ] {
        let server = MockServer::start().await;
        on(&server, "GET", "/v1/acl/token/self", 200, token(OLD, SECRET).to_string()).await;
        on(&server, "GET", &format!("/v1/acl/token/{OLD}"), 200, token(OLD, SECRET).to_string()).await;
        on(&server, "PUT", &format!("/v1/acl/token/{OLD}/clone"), status, body).await;
        let ended = rotate(&server, "").await;
        assert!(ended.code != 0 && ended.error.contains(state), "{ended:?}");
        assert_eq!(changes(&server).await, [clone_by(SECRET)]);
    }

    // A login's token cannot be cloned; no request is sent.
    let server = MockServer::start().await;
    let mut by_login = token(OLD, SECRET);
    by_login["AuthMethod"] = "cloud".into();
    on(&server, "GET", &format!("/v1/acl/token/{OLD}"), 200, by_login.to_string()).await;
    let ended = rotate(&server, "").await;
    assert!(ended.code == 2 && ended.error.contains("log in again"), "{ended:?}");
    assert!(changes(&server).await.is_empty());
}

#[tokio::test]
async fn a_rotation_stopped_while_it_waits_reports_that_both_tokens_work() {
    let server = clonable().await;
    let folder = tempfile::tempdir().unwrap();
    let (uri, path) = (server.uri(), folder.path().to_owned());
    let (status, output) = tokio::task::spawn_blocking(move || stopped_rotation(&uri, &path)).await.unwrap();
    assert_eq!(status, Some(1), "{output}");
    let state = format!("interrupted: the new token {NEW} was delivered, and the old token {OLD} still works");
    assert!(output.contains(&state), "{output}");
    assert_eq!(changes(&server).await, [clone_by(SECRET)]);
}

fn stopped_rotation(uri: &str, folder: &Path) -> (Option<i32>, String) {
    use crate::harness::binary::{Binary, eventually};
    let args = ["acl", "token", "rotate", OLD, "--grace", "1h", "--address", uri];
    let rotation = Binary::start(&args, &[("KEYWARD_ACL_TOKEN", SECRET)], folder);
    eventually(std::time::Duration::from_secs(20), || {
        let output = rotation.output();
        if output.contains("is deleted in 60 min") { Ok(()) } else { Err(output) }
    });
    let (status, output) = rotation.stop();
    (status.code(), output)
}

#[tokio::test]
async fn the_bootstrap_secret_is_on_disk_before_the_server_creates_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("root.token");
    let words = format!("bootstrap --out {}", out.display());
    let server = MockServer::start().await;
    let taken = "Permission denied: ACL bootstrap no longer allowed (reset index: 13)";
    on(&server, "PUT", "/v1/acl/bootstrap", 403, taken).await;
    let ended = acl(&server.uri(), "", &words, "").await;
    assert!(ended.code == 6 && ended.error.contains("reset index: 13"), "{ended:?}");
    assert!(!out.exists(), "what opens nothing is not left");

    let server = MockServer::start().await;
    on(&server, "PUT", "/v1/acl/bootstrap", 200, token(NEW, NEW_SECRET).to_string()).await;
    let ended = acl(&server.uri(), "", &words, "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let secret = std::fs::read_to_string(&out).unwrap();
    assert_eq!(last_body(&server, "PUT", "/v1/acl/bootstrap").await, json!({"BootstrapSecret": secret}));
    let again = acl(&server.uri(), "", &words, "").await;
    assert!(again.code == 1 && again.error.contains("exists already"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), secret);

    let server = MockServer::start().await;
    on(&server, "PUT", "/v1/acl/bootstrap", 503, "later").await;
    let unsure = folder.path().join("unsure.token");
    let ended = acl(&server.uri(), "", &format!("bootstrap --out {}", unsure.display()), "").await;
    assert!(ended.code == 75 && ended.error.contains("the token may exist anyway") && unsure.exists(), "{ended:?}");
}

#[tokio::test]
async fn terminal_escapes_in_server_texts_are_sanitized() {
    let server = MockServer::start().await;
    let mut hostile = token(OLD, SECRET);
    hostile["Description"] = "one\u{1b}[2Jtwo\nthree\u{202e}".into();
    on(&server, "GET", "/v1/acl/tokens", 200, json!([hostile]).to_string()).await;
    on(&server, "GET", "/v1/acl/token/self", 200, hostile.to_string()).await;
    for words in ["token list", "token read --self", "whoami"] {
        let ended = acl(&server.uri(), SECRET, words, "").await;
        assert!(ended.out.contains("one\\u{1b}[2Jtwo") && !ended.out.contains(['\u{1b}', '\u{202e}']), "{ended:?}");
    }
}

#[tokio::test]
async fn only_one_argument_may_read_standard_input() {
    let server = server().await;
    let ended = acl(&server.uri(), "", "policy create p --rules - --token-file -", SECRET).await;
    assert!(ended.code == 1 && ended.error.contains("for only one argument"), "{ended:?}");
    assert!(changes(&server).await.is_empty());
}
