//! `keyward acl login --oidc`: the real command, with the test as the browser.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use reqwest::{Response, Url};
use serde_json::json;

use super::World;
use crate::harness::Acl;
use crate::harness::binary::{Binary, eventually};
use crate::harness::credential_loader::{NOBODY, as_user};
use crate::harness::ports;

/// A login that waits for the browser.
pub(super) struct Waiting {
    pub(super) binary: Binary,
    /// Address that the command printed.
    pub(super) url: String,
    pub(super) redirect: String,
    folder: tempfile::TempDir,
}

/// A redirect URI with a port of its own.
pub(super) fn redirect() -> String {
    format!("http://localhost:{}/oidc/callback", ports::reserve().port())
}

/// Waits for something in another thread's or process's doing.
fn wait<T>(attempt: impl FnMut() -> Result<T, String>) -> T {
    tokio::task::block_in_place(|| eventually(Duration::from_secs(30), attempt))
}

impl Waiting {
    /// Starts the command, which writes its token to a file.
    pub(super) fn start(acl: &Acl, redirect: &str, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("token").display().to_string();
        let words = ["acl", "login", "--oidc", "--method", "people", "--redirect-uri", redirect, "--out", &out];
        let words = [&words[..], &["--address", &acl.url], more].concat();
        let binary = Binary::start(&words, variables, folder.path());
        let url = wait(|| {
            let output = binary.output();
            let line = output.lines().find(|line| line.starts_with("http") && line.contains("state="));
            line.map(str::to_owned).filter(|_| output.ends_with('\n')).ok_or(output)
        });
        Self { binary, url, redirect: redirect.to_owned(), folder }
    }

    /// Opens the address to which the browser returns, with this query.
    pub(super) async fn visit(&self, query: &[(&str, &str)]) -> Page {
        let url = Url::parse_with_params(&self.redirect, query).unwrap();
        Page::of(reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap()).await
    }

    /// Waits for the end of the command: its code, its output, and the token in its file.
    pub(super) fn end(mut self) -> (i32, String, Option<String>) {
        let status = tokio::task::block_in_place(|| self.binary.wait(Duration::from_secs(30)));
        let token = std::fs::read_to_string(self.folder.path().join("token")).ok();
        (status.code().unwrap(), self.binary.output(), token)
    }
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Page {
    pub(super) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for (name, value) in
            [("cache-control", "no-store"), ("referrer-policy", "no-referrer"), ("x-content-type-options", "nosniff")]
        {
            assert_eq!(headers[name], value);
        }
        assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        Self { status, text: response.text().await.unwrap() }
    }
}

async fn world(redirect: &str) -> World {
    let world = World::start().await;
    world.method(json!({ "AllowedRedirectURIs": [redirect] })).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_only_the_answer_of_this_login_counts_and_it_counts_once() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let login = Waiting::start(&world.acl, &redirect, &["--meta", "host=laptop"], &[]);
    let (code, state) = world.provider.authorize(&login.url);

    let stranger = login.visit(&[("code", "evil"), ("state", "another")]).await;
    assert!(stranger.status == 400 && stranger.text.contains("not the answer of the login"), "{stranger:?}");
    for query in [
        &[][..],
        &[("code", code.as_str())],
        &[("state", state.as_str())],
        &[("error", "access_denied")],
        &[("code", code.as_str()), ("state", &state[1..])],
        &[("code", code.as_str()), ("state", state.as_str()), ("state", state.as_str())],
    ] {
        assert_eq!(login.visit(query).await.status, 400, "{query:?}");
    }
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let base = redirect.trim_end_matches("/oidc/callback");
    for path in ["/", "/favicon.ico", "/oidc/callback/"] {
        let page = http.get(format!("{base}{path}?code={code}&state={state}")).send().await.unwrap();
        assert_eq!(page.status(), 404, "{path}");
    }
    let posted = http.post(format!("{redirect}?code={code}&state={state}")).send().await.unwrap();
    assert_eq!(posted.status(), 404);
    assert!(world.provider.faults.exchanges.lock().is_empty(), "the server was asked");

    let page = login.visit(&[("code", &code), ("state", &state), ("session_state", "x")]).await;
    assert!(page.status == 200 && page.text.contains("You can close this tab"), "{page:?}");
    let (code_of_end, output, token) = login.end();
    assert_eq!(code_of_end, 0, "{output}");
    let token = token.unwrap();
    let own = world.acl.call("GET", "/v1/acl/token/self", Some(&token), None).await.json();
    assert_eq!(own["Description"], "token created via login: {\"host\":\"laptop\"}");
    assert!(output.contains("SecretID:") && !output.contains(&token) && !output.contains(&code), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_the_first_counts() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (code, state) = world.provider.authorize(&login.url);
    *world.provider.faults.answer.lock() = crate::harness::openid_provider::TokenAnswer::Never;
    let answer = [("code", code.as_str()), ("state", state.as_str())];
    let first = login.visit(&answer);
    let second = async {
        // The first one has arrived, and waits for the provider.
        while world.provider.faults.exchanges.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        login.visit(&[("code", "another"), ("state", &state)]).await
    };
    let (first, second) = tokio::join!(first, second);
    assert!(second.status == 409 && second.text.contains("was answered before"), "{second:?}");
    assert!(first.status == 200 && first.text.contains("<h1>Login failed</h1>"), "{first:?}");
    assert!(first.text.contains("no response from") && first.text.contains("You can close this tab."), "{first:?}");
    let (code, output, token) = login.end();
    assert_eq!((code, token), (75, None), "{output}");
    assert!(output.contains("the token endpoint of the provider cannot be used"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_provider_and_server_are_shown_on_the_page_and_in_the_terminal() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (_, state) = world.provider.authorize(&login.url);
    let description = "<b>No</b>\n\u{1b}[2J";
    let page = login.visit(&[("error", "access_denied"), ("error_description", description), ("state", &state)]).await;
    let text = "the provider refused the login: access_denied: &lt;b&gt;No&lt;/b&gt;\\n\\u{1b}[2J";
    assert!(page.status == 200 && page.text.contains(text), "{page:?}");
    let (code, output, token) = login.end();
    assert_eq!((code, token), (6, None), "{output}");
    let text = "error: the provider refused the login: access_denied: <b>No</b>\\n\\u{1b}[2J";
    assert!(output.contains(text) && !output.contains('\u{1b}'), "{output}");

    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (code, state) = world.provider.authorize(&login.url);
    let page = login.visit(&[("code", &code), ("state", &state), ("iss", "https://another.example")]).await;
    assert!(page.text.contains("the answer is of the issuer &quot;https://another.example&quot;"), "{page:?}");
    assert_eq!(login.end().0, 6);

    world.provider.faults.claims.lock().insert("nonce", json!("another"));
    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (code, state) = world.provider.authorize(&login.url);
    let page = login.visit(&[("code", &code), ("state", &state), ("iss", &world.provider.url)]).await;
    assert!(page.text.contains("the nonce of the ID token is not the one of this login"), "{page:?}");
    let (code, output, token) = login.end();
    assert_eq!((code, token), (6, None), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_browser_of_the_environment_is_opened_unless_forbidden_and_gets_no_secret() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("browser");
    let seen = folder.path().join("seen");
    let text = format!("#!/bin/sh\n{{ echo \"$@\"; env; }} > {0}.new && mv {0}.new {0}\n", seen.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let browser = format!("/nonexistent/browser:{}", script.display());
    let variables = [("BROWSER", browser.as_str()), ("KEYWARD_ACL_TOKEN", "canary"), ("PATH", "/usr/bin:/bin")];

    let forbidden = Waiting::start(&world.acl, &redirect, &["--no-browser"], &variables);
    let (code, state) = world.provider.authorize(&forbidden.url);
    assert_eq!(forbidden.visit(&[("code", &code), ("state", &state)]).await.status, 200);
    assert_eq!(forbidden.end().0, 0);
    assert!(!seen.exists());
    let login = Waiting::start(&world.acl, &redirect, &[], &variables);
    let opened = wait(|| std::fs::read_to_string(&seen).map_err(|error| error.to_string()));
    let start = opened.lines().next().unwrap();
    assert!(start.starts_with(&redirect.replace("/oidc/callback", "/start/")), "{start}");
    let (_, state) = world.provider.authorize(&login.url);
    assert!(!opened.contains("canary") && !opened.contains(&state), "{opened}");
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let led = http.get(start).send().await.unwrap();
    let to = led.headers()["location"].to_str().unwrap();
    assert_eq!((led.status().as_u16(), to), (302, login.url.as_str()));
    assert!(led.headers()["cache-control"] == "no-store" && led.headers()["referrer-policy"] == "no-referrer");
    assert_eq!(http.get(format!("{start}x")).send().await.unwrap().status(), 404);
    let (code, state) = world.provider.authorize(&login.url);
    assert_eq!(login.visit(&[("code", &code), ("state", &state)]).await.status, 200);
    assert_eq!(login.end().0, 0);
}

/// Sends a request as the user `nobody`, and returns the answer if it waits for that.
fn ask_as_nobody(url: &Url, waits: bool) -> String {
    let target = format!("{}{}", url.path(), url.query().map(|query| format!("?{query}")).unwrap_or_default());
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    tokio::task::block_in_place(|| {
        as_user(NOBODY, NOBODY, || {
            let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            if waits {
                stream.read_to_string(&mut answer).unwrap();
            }
            answer
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_another_user_of_the_machine_neither_sees_the_address_of_a_login_nor_ends_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let redirect = redirect();
    let world = world(&redirect).await;
    let folder = tempfile::tempdir().unwrap();
    let (script, seen) = (folder.path().join("browser"), folder.path().join("seen"));
    std::fs::write(&script, format!("#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}\n", seen.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let browser = script.display().to_string();
    let login = Waiting::start(&world.acl, &redirect, &[], &[("BROWSER", &browser), ("PATH", "/usr/bin:/bin")]);
    let start = wait(|| std::fs::read_to_string(&seen).map_err(|error| error.to_string()));
    let (code, state) = world.provider.authorize(&login.url);
    let answer = Url::parse_with_params(&redirect, [("code", &code), ("state", &state)]).unwrap();
    for url in [&start.trim().parse().unwrap(), &answer] {
        let refused = ask_as_nobody(url, true);
        assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("of another user"), "{refused}");
        assert!(!refused.contains("location:") && !refused.contains(&world.provider.url), "{refused}");
        // Nor if it leaves before anybody asks who it was.
        ask_as_nobody(url, false);
    }
    let page = login.visit(&[("code", &code), ("state", &state)]).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!((login.end().0, world.provider.faults.exchanges.lock().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_an_answer_without_an_issuer_is_refused_if_the_provider_names_it_in_each() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let supported = "authorization_response_iss_parameter_supported";
    world.provider.faults.discovery.lock().insert(supported, json!(true));
    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (code, state) = world.provider.authorize(&login.url);
    let page = login.visit(&[("code", &code), ("state", &state)]).await;
    assert!(page.text.contains("the answer names no issuer"), "{page:?}");
    assert_eq!(login.end().0, 6);
    assert!(world.provider.faults.exchanges.lock().is_empty(), "the server was asked");
    let login = Waiting::start(&world.acl, &redirect, &[], &[]);
    let (code, state) = world.provider.authorize(&login.url);
    let page = login.visit(&[("code", &code), ("state", &state), ("iss", &world.provider.url)]).await;
    assert_eq!((page.status, login.end().0), (200, 0), "{page:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_cannot_begin_says_why() {
    let redirect = redirect();
    let world = world(&redirect).await;
    let run = async |words: &str| crate::acl::cli_requests::acl(&world.acl.url, "", words, "").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("http://localhost:{}/oidc/callback", port.local_addr().unwrap().port());
    for (words, code, expected) in [
        (format!("login --oidc --method people --redirect-uri {taken}"), 1, "pass another --redirect-uri"),
        (format!("login --oidc --method people --redirect-uri {}", self::redirect()), 2, "AllowedRedirectURIs"),
        (format!("login --oidc --method nobody --redirect-uri {redirect}"), 8, "auth method \"nobody\" not found"),
        (
            "login --oidc --method people --redirect-uri https://people.example/".to_owned(),
            1,
            "an address on this machine",
        ),
        ("login --oidc --method people --bearer-token-file a".to_owned(), 1, "cannot be used with"),
        ("login --method people".to_owned(), 1, "--bearer-token-file <FILE>"),
        ("login --method people --no-browser --bearer-token-file a".to_owned(), 1, "cannot be used with"),
    ] {
        let output = run(&words).await;
        assert_eq!((output.code, output.error.contains(expected)), (code, true), "{words}: {output:?}");
        assert_eq!(output.out, "", "{words}");
    }
}
