//! The server client against servers that are hostile, broken, redirecting or untrusted.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use keyward_agent::login::{Login, LoginError};
use keyward_agent::server_client;
use keyward_agent::server_client::{CallError, ServerClient};
use keyward_agent::token::ClientToken;
use keyward_emulators::axum_service;
use keyward_emulators::secrets::{Role, Secrets, SecretsOptions};
use keyward_http::client;
use keyward_http::server::{Endpoint, Listener, ListenerLimits, UnixSocket};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::secrets::{at, login, login_options, options, proof};

fn token() -> ClientToken {
    ClientToken::parse(SecretString::from("hvs.canary-token")).unwrap()
}

/// Serves a router on a free loopback port.
fn serve(routes: Router, tasks: &mut TaskGroup) -> SocketAddr {
    let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.tcp_address().unwrap();
    let stop = tasks.stop_token();
    tasks.start("fake", async move {
        listener.serve(axum_service(routes), ListenerLimits::default(), stop).await;
        Ok(())
    });
    address
}

#[tokio::test]
async fn t27_a_redirect_is_refused_and_the_other_host_sees_nothing() {
    let mut tasks = TaskGroup::default();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let evil = serve(
        Router::new().fallback(async move || {
            counted.fetch_add(1, Ordering::SeqCst);
            StatusCode::OK
        }),
        &mut tasks,
    );
    for code in [301_u16, 302, 303, 307, 308] {
        let to = format!("http://{evil}/v1/auth/azure/login?jwt=canary");
        let status = StatusCode::from_u16(code).unwrap();
        let routes = Router::new().fallback(async move || (status, [("location", to)]));
        let upstream = ServerClient::build(&options(&format!("http://{}", serve(routes, &mut tasks)))).unwrap();
        let error = login(&upstream).login(&proof("canary-proof"), &Clock::System).await.unwrap_err();
        assert!(matches!(error, LoginError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("never followed"), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
        for error in [
            upstream.lookup_self(&token(), None).await.unwrap_err(),
            upstream.renew_self(&token(), None).await.unwrap_err(),
            upstream.revoke_self(&token(), None).await.unwrap_err(),
        ] {
            assert!(matches!(error, CallError::Status { status, .. } if status == code), "{error}");
        }
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_sends_the_servers_headers() {
    let mut tasks = TaskGroup::default();
    let routes = Router::new().fallback(async |headers: HeaderMap| {
        let header = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        let names = ["x-vault-token", "x-vault-namespace", "x-vault-request", "x-vault-wrap-ttl"];
        let text = names.map(header).join(" ");
        (StatusCode::IM_A_TEAPOT, axum::Json(serde_json::json!({ "errors": [text] })))
    });
    let upstream = ServerClient::build(&options(&format!("http://{}", serve(routes, &mut tasks)))).unwrap();
    let describe = |error: CallError| match error {
        CallError::Status { status: 418, errors, .. } => errors.join(""),
        error => panic!("{error}"),
    };
    let plain = ClientToken::parse(SecretString::from("tok")).unwrap();
    // The text holds our own token, which is redacted.
    assert_eq!(describe(upstream.lookup_self(&plain, Some("team/a")).await.unwrap_err()), "[redacted] team/a true -");
    assert_eq!(describe(upstream.renew_self(&plain, None).await.unwrap_err()), "[redacted] - true -");
    let jwt = SecretString::from("a.b.c");
    let body = server_client::LoginRequest {
        role: "r",
        jwt: &jwt,
        subscription_id: None,
        resource_group_name: None,
        vm_name: None,
        vmss_name: None,
        resource_id: None,
    };
    let wrapped = upstream.login("team/azure", Some("ns"), Some(Duration::from_mins(2)), &body).await;
    assert_eq!(describe(wrapped.unwrap_err()), "- ns true 120");
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let socket = UnixSocket { path: path.clone(), mode: 0o600, owner: None, group: None };
    let listener = Listener::bind(&Endpoint::Unix(socket)).unwrap();
    let mut tasks = TaskGroup::default();
    let stop = tasks.stop_token();
    let routes = Router::new().fallback(async || axum::Json(serde_json::json!({ "data": { "ttl": 60 } })));
    tasks.start("fake", async move {
        listener.serve(axum_service(routes), ListenerLimits::default(), stop).await;
        Ok(())
    });
    let upstream = ServerClient::build(&at(client::ServerAddress::Unix(path))).unwrap();
    assert_eq!(upstream.lookup_self(&token(), None).await.unwrap().lease.ttl, Duration::from_mins(1));
    let missing = ServerClient::build(&at(client::ServerAddress::Unix(folder.path().join("gone.sock")))).unwrap();
    let error = missing.lookup_self(&token(), None).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable { cause } if cause.contains("gone.sock")), "{error}");
}

/// Answers each connection with these bytes, and closes it.
async fn serve_bytes(bytes: Vec<u8>) -> (SocketAddr, tokio::task::JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(&bytes).await;
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn truncated_and_endless_responses_fail_with_distinct_errors() {
    let body = r#"{"auth":{"client_token":"hvs.canary-token","lease_duration":60}}"#;
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let check = async |bytes: &[u8], expected: &str| {
        let (address, _tasks) = serve_bytes(bytes.to_vec()).await;
        let upstream = ServerClient::build(&options(&format!("http://{address}"))).unwrap();
        let found = match login(&upstream).login(&proof("canary-proof"), &Clock::System).await {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                assert!(matches!(error, LoginError::Unavailable { .. }), "{error}");
                error.to_string()
            }
        };
        assert!(found.contains(expected), "{found}");
        assert!(!found.contains("canary"), "{found}");
    };
    check(whole.as_bytes(), "ok").await;
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        check(&whole.as_bytes()[..end], "failed: ").await;
    }
    check(b"SSH-2.0-OpenSSH_9.2\r\n", "failed: ").await;
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "[".repeat(2 * client::MAX_RESPONSE));
    check(endless.as_bytes(), "larger than 1048576 bytes").await;
}

/// Starts a proxy that records each `CONNECT` request and connects it to `to`.
async fn proxy(to: SocketAddr) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>, tokio::task::JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap();
            head.truncate(length);
            sender.send(String::from_utf8(head).unwrap().lines().next().unwrap_or_default().to_owned()).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
        }
    });
    (address, requests, tasks)
}

#[tokio::test]
async fn a_configured_proxy_sees_an_encrypted_tunnel_only() {
    let ours = Authority::new();
    let mut tasks = TaskGroup::default();
    let tls = Some(ours.server(&["vault.example"], None));
    let settings = SecretsOptions { tls, ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) };
    let secrets = Secrets::start(settings, &mut tasks).unwrap();
    let server = secrets.url().strip_prefix("https://").unwrap().parse().unwrap();
    let (address, mut requests, _proxy) = proxy(server).await;
    let mut options = options("https://vault.example:8200");
    options.client.tls = trusting(&ours.ca_file());
    options.client.proxy = client::ProxyMode::Through(format!("http://{address}").parse().unwrap());
    let upstream = ServerClient::build(&options).unwrap();
    login(&upstream).login(&proof("a.b.c"), &Clock::System).await.unwrap();
    assert_eq!(requests.recv().await.unwrap(), "CONNECT vault.example:8200 HTTP/1.1");
}

/// A certificate authority and its certificates, as files.
#[derive(Debug)]
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = Self { folder: tempfile::tempdir().unwrap(), params, key };
        let certificate = authority.params.self_signed(&authority.key).unwrap();
        authority.write("ca.pem", &certificate.pem());
        authority
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn leaf(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap(), key)
    }

    /// Returns the TLS configuration of a server with these names; `clients` signs the client certificates that it requests.
    pub(crate) fn server(&self, names: &[&str], clients: Option<&Self>) -> Arc<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (leaf, key) = self.leaf(names);
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(clients.params.self_signed(&clients.key).unwrap().der().clone()).unwrap();
                let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Arc::new(builder.with_single_cert(vec![leaf.der().clone()], key).unwrap())
    }
}

async fn log_in_over(tls: Arc<rustls::ServerConfig>, trust: client::TlsOptions) -> Result<(), String> {
    let mut tasks = TaskGroup::default();
    let settings =
        SecretsOptions { tls: Some(tls), ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) };
    let secrets = Secrets::start(settings, &mut tasks).unwrap();
    let mut options = options(secrets.url());
    options.client.tls = trust;
    let upstream = ServerClient::build(&options).map_err(|error| error.to_string())?;
    let login = Login::new(upstream, login_options());
    login.login(&proof("canary"), &Clock::System).await.map(|_| ()).map_err(|error| error.to_string())
}

fn trusting(ca_file: &Path) -> client::TlsOptions {
    client::TlsOptions { ca_file: Some(ca_file.to_owned()), ..client::TlsOptions::default() }
}

#[tokio::test]
async fn t28_a_server_is_trusted_only_by_the_configured_authority_and_its_name() {
    let (ours, other) = (Authority::new(), Authority::new());
    let check = |found: Result<(), String>, expected: &str| {
        let error = found.unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    log_in_over(ours.server(&["127.0.0.1"], None), trusting(&ours.ca_file())).await.unwrap();
    check(log_in_over(ours.server(&["127.0.0.1"], None), trusting(&other.ca_file())).await, "certificate");
    check(log_in_over(ours.server(&["127.0.0.1"], None), client::TlsOptions::default()).await, "certificate");
    check(log_in_over(ours.server(&["vault.example"], None), trusting(&ours.ca_file())).await, "not valid for name");

    let renamed = |name: &str| client::TlsOptions { server_name: Some(name.to_owned()), ..trusting(&ours.ca_file()) };
    log_in_over(ours.server(&["vault.example"], None), renamed("vault.example")).await.unwrap();
    check(log_in_over(ours.server(&["127.0.0.1"], None), renamed("vault.example")).await, "not valid for name");

    let folder = client::TlsOptions { ca_dir: Some(ours.folder.path().to_owned()), ..client::TlsOptions::default() };
    log_in_over(ours.server(&["127.0.0.1"], None), folder).await.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_reported_as_expired() {
    let ours = Authority::new();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &Issuer::from_params(&ours.params, &ours.key)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    let error = log_in_over(Arc::new(tls), trusting(&ours.ca_file())).await.unwrap_err();
    assert!(error.contains("expired"), "{error}");
}

#[tokio::test]
async fn a_configured_client_certificate_is_sent() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let server = || ours.server(&["127.0.0.1"], Some(&clients));
    assert!(log_in_over(server(), trusting(&ours.ca_file())).await.is_err());
    let (certificate, key) = clients.leaf(&["agent"]);
    let identity = client::ClientCertificate {
        certificate: clients.write("agent.pem", &certificate.pem()),
        key: clients.write("agent.key", &key.serialize_pem()),
        is_awaited: false,
    };
    let options = client::TlsOptions { identity: Some(identity.clone()), ..trusting(&ours.ca_file()) };
    log_in_over(server(), options).await.unwrap();
    let broken = client::ClientCertificate { key: clients.write("broken.key", "no key"), ..identity };
    let broken = client::TlsOptions { identity: Some(broken), ..trusting(&ours.ca_file()) };
    let error = log_in_over(server(), broken).await.unwrap_err();
    assert!(error.contains("broken.key holds no PEM private key"), "{error}");
}

#[test]
fn options_that_would_leak_or_cannot_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let check = |url: &str, change: &dyn Fn(&mut client::ClientOptions), expected: &str| {
        let mut options = options(url).client;
        change(&mut options);
        let error = options.build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    };
    let through: client::ProxyMode = client::ProxyMode::Through("http://user:hunter2@proxy:3128".parse().unwrap());
    check("http://vault.example:8200", &|_| {}, "in the clear");
    check("ftp://127.0.0.1", &|_| {}, "in the clear");
    let socks = client::ProxyMode::Through("socks5://proxy:1080".parse().unwrap());
    check("https://vault.example", &|options| options.proxy = socks.clone(), "is not an http or https URL");
    check("http://127.0.0.1:8200", &|options| options.proxy = through.clone(), "in the clear");
    check("https://user:hunter2@vault.example", &|_| {}, "may only have scheme, host, port and path");
    check("https://vault.example/?token=hunter2", &|_| {}, "may only have scheme, host, port and path");
    check(
        "https://vault.example",
        &|options| (options.proxy, options.tls.server_name) = (through.clone(), Some("a".to_owned())),
        "cannot be combined",
    );
    check("https://vault.example", &|options| options.tls.server_name = Some("a b".to_owned()), "is not a host name");
    check("https://vault.example", &|options| options.tls.ca_file = Some(empty.clone()), "holds no PEM certificate");
    check("https://vault.example", &|options| options.tls.ca_file = Some("/nowhere".into()), "cannot read /nowhere");
    let none = folder.path().join("none");
    std::fs::create_dir(&none).unwrap();
    check("https://vault.example", &|options| options.tls.ca_dir = Some(none.clone()), "holds no PEM certificate");
}
