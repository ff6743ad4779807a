//! Logins at a provider that is not ours: `oidc-provider` of npm, with the real command, and a browser of redirects, cookies and
//! forms.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, Url};
use serde_json::json;

use super::command::{Page, Waiting, redirect};
use crate::acl::third_party_clients::clients;
use crate::harness::Acl;
use crate::harness::node::node;
use crate::harness::openid_provider::{OpenIdProvider, REDIRECT};

/// The provider; it ends with this.
struct Provider {
    process: Child,
    issuer: String,
}

impl Provider {
    fn start(redirect: &str) -> Self {
        let mut process = node("openid_provider.mjs")
            .arg(redirect)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut issuer = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut issuer).unwrap();
        assert!(issuer.starts_with("http://127.0.0.1:"), "{issuer:?}");
        Self { process, issuer: issuer.trim().to_owned() }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A browser of one tab: it keeps cookies, and follows redirects at the provider.
struct Tab {
    http: Client,
    cookies: BTreeMap<String, String>,
    at: Url,
}

/// Page of a tab.
enum Shown {
    /// A form of the provider.
    Form(String),
    /// An address elsewhere, to which the provider sends it.
    Elsewhere(Url),
}

impl Tab {
    fn new(url: &str) -> Self {
        let http = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { http, cookies: BTreeMap::new(), at: url.parse().unwrap() }
    }

    async fn open(&mut self) -> Shown {
        let response = self.http.get(self.at.clone()).header(COOKIE, self.cookies()).send().await.unwrap();
        self.follow(response).await
    }

    /// Sends the form of the page.
    async fn submit(&mut self, form: &[(&str, &str)]) -> Shown {
        let body = Url::parse_with_params("http://form/", form).unwrap().query().unwrap().to_owned();
        let post = self.http.post(self.at.clone()).header(COOKIE, self.cookies());
        let post = post.header("content-type", "application/x-www-form-urlencoded").body(body);
        let response = post.send().await.unwrap();
        self.follow(response).await
    }

    async fn follow(&mut self, mut response: Response) -> Shown {
        loop {
            for cookie in response.headers().get_all(SET_COOKIE) {
                let pair = cookie.to_str().unwrap().split(';').next().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                if value.is_empty() {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
            let Some(location) = response.headers().get(LOCATION) else {
                assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
                return Shown::Form(response.text().await.unwrap());
            };
            let next = self.at.join(location.to_str().unwrap()).unwrap();
            if next.origin() != self.at.origin() {
                return Shown::Elsewhere(next);
            }
            self.at = next;
            response = self.http.get(self.at.clone()).header(COOKIE, self.cookies()).send().await.unwrap();
        }
    }

    fn cookies(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }
}

async fn acl(provider: &Provider, redirect: &str) -> Acl {
    let acl = Acl::start().await;
    let config = json!({
        "OIDCDiscoveryURL": provider.issuer, "OIDCClientID": "keyward", "AllowedRedirectURIs": [redirect],
        "OIDCScopes": ["profile", "groups"], "ClaimMappings": {"name": "name"}, "ListClaimMappings": {"groups": "groups"},
    });
    acl.make("/v1/acl/auth-method", json!({"Name": "people", "Type": "oidc", "Config": config})).await;
    let rule = json!({
        "AuthMethod": "people", "BindType": "service", "BindName": "of-${value.name}", "Selector": "ops in list.groups",
    });
    acl.make("/v1/acl/binding-rule", rule).await;
    acl
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_logs_in_with_the_command_at_a_certified_provider() {
    let redirect = redirect();
    let provider = Provider::start(&redirect);
    let acl = acl(&provider, &redirect).await;
    for (person, expected) in [("alice", Ok("of-alice")), ("bob", Err("permission denied"))] {
        let login = Waiting::start(&acl, &redirect, &[], &[]);
        let mut tab = Tab::new(&login.url);
        let Shown::Form(form) = tab.open().await else { panic!("no form of a login") };
        assert!(form.contains("name=\"password\""), "{form}");
        let shown = tab.submit(&[("prompt", "login"), ("login", person), ("password", "x")]).await;
        let Shown::Form(consent) = shown else { panic!("no form of a consent") };
        assert!(consent.contains("value=\"consent\""), "{consent}");
        let Shown::Elsewhere(back) = tab.submit(&[("prompt", "consent")]).await else { panic!("no way back") };
        assert!(back.as_str().starts_with(&format!("{redirect}?code=")), "{back}");
        assert!(back.query_pairs().any(|(name, value)| name == "iss" && value == provider.issuer), "RFC 9207: {back}");
        let page = Page::of(tab.http.get(back.clone()).send().await.unwrap()).await;
        let (code, output, token) = login.end();
        match expected {
            Ok(service) => {
                assert_eq!((code, page.status), (0, 200), "{output} {page:?}");
                assert!(page.text.contains("You are logged in. You can close this tab."), "{page:?}");
                let own = acl.call("GET", "/v1/acl/token/self", token.as_deref(), None).await.json();
                assert_eq!(own["ServiceIdentities"], json!([{"ServiceName": service}]));
            }
            Err(text) => {
                assert_eq!((code, token), (6, None), "{output}");
                assert!(output.contains(text) && page.text.contains(text), "{output} {page:?}");
            }
        }
        // Nothing that the provider has sent is in the output.
        for (_, value) in back.query_pairs().filter(|(name, _)| name == "code") {
            assert!(!output.contains(&*value), "{output}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certified_provider_refuses_a_code_that_is_used_again_and_a_person_who_says_no() {
    let redirect = redirect();
    let provider = Provider::start(&redirect);
    let acl = acl(&provider, &redirect).await;
    let login = Waiting::start(&acl, &redirect, &[], &[]);
    let mut tab = Tab::new(&login.url);
    tab.open().await;
    tab.at = format!("{}/abort", tab.at).parse().unwrap();
    let Shown::Elsewhere(back) = tab.open().await else { panic!("no way back") };
    let page = Page::of(tab.http.get(back).send().await.unwrap()).await;
    assert!(page.text.contains("the provider refused the login: access_denied: "), "{page:?}");
    let (code, output, token) = login.end();
    assert_eq!((code, token), (6, None), "{output}");

    // By hand, to repeat the end of a login.
    let nonce = "0123456789abcdef0123456789abcdef";
    let begin = json!({"AuthMethod": "people", "RedirectURI": redirect, "ClientNonce": nonce});
    let begun = acl.call("POST", "/v1/acl/oidc/auth-url", None, Some(begin)).await.json();
    let mut tab = Tab::new(begun["AuthURL"].as_str().unwrap());
    tab.open().await;
    tab.submit(&[("prompt", "login"), ("login", "alice"), ("password", "x")]).await;
    let Shown::Elsewhere(back) = tab.submit(&[("prompt", "consent")]).await else { panic!("no way back") };
    let answer: BTreeMap<String, String> = back.query_pairs().into_owned().collect();
    let end = json!({"AuthMethod": "people", "ClientNonce": nonce, "State": answer["state"], "Code": answer["code"]});
    let first = acl.call("POST", "/v1/acl/oidc/callback", None, Some(end.clone())).await;
    assert_eq!(first.status, 200, "{first:?}");
    let again = acl.call("POST", "/v1/acl/oidc/callback", None, Some(end)).await;
    assert_eq!(again.status, 403, "{again:?}");
    assert!(again.text.starts_with("Permission denied: the provider refused the code: invalid_grant"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_consul_creates_an_oidc_method_and_logs_in_by_it() {
    let acl = Acl::start().await;
    let provider = OpenIdProvider::start();
    let mut client = Command::new(clients().join("bin/go-consul"))
        .args(["oidc", &provider.url, REDIRECT])
        .env_clear()
        .env("CONSUL_HTTP_ADDR", &acl.url)
        .env("CONSUL_HTTP_TOKEN", &acl.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let (provider_url, described) = tokio::task::block_in_place(|| {
        let mut lines = BufReader::new(output).lines();
        let url = lines.next().expect("an address").unwrap();
        let (code, state) = provider.authorize(&url);
        writeln!(input, "{state} {code}").unwrap();
        (url, lines.next().expect("a description").unwrap())
    });
    assert!(provider_url.starts_with(&provider.url), "{provider_url}");
    assert_eq!(described, "token created via login: {\"host\":\"laptop\"}");
    assert!(tokio::task::block_in_place(|| client.wait()).unwrap().success());
}
