//! Certificate files: every client and server refuses invalid ones, and uses new ones for the next connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_emulators::axum_service;
use keyward_http::client::{ClientCertificate, ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_http::reverse_proxy::UpstreamTarget;
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_http::tls::{ClientAuthorities, ServerCertificate, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Files `ca.pem`, `cert.pem` and `key.pem` of a new authority and a server at 127.0.0.1.
pub(crate) fn certificates(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("cert.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn options(url: &str, tls: TlsOptions) -> ClientOptions {
    let (connect_timeout, response_timeout) = (Duration::from_secs(20), Duration::from_secs(20));
    ClientOptions {
        address: ServerAddress::Url(url.parse().unwrap()),
        tls,
        proxy: ProxyMode::Direct,
        connect_timeout,
        response_timeout,
    }
}

fn chain(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

/// Errors of every client and server about these files; each must refuse them.
fn refusals(tls: &TlsOptions) -> Vec<String> {
    let options = options("https://vault.example.com", tls.clone());
    vec![chain(options.build().unwrap_err()), chain(UpstreamTarget::resolve(&options).unwrap_err())]
}

#[test]
fn a_bad_block_among_good_ones_is_refused_with_its_file_its_number_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let put = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let good = read("ca.pem");
    let bad = [
        ("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n", "is not a valid X.509 certificate"),
        ("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "is not valid base64"),
        ("-----BEGIN CERTIFICATE-----\naGVsbG8=\n", "has no END line"),
    ];
    for (block, problem) in bad {
        let bundle = put("bundle.pem", &format!("# ours\n{good}{block}"));
        let expected = format!("PEM block 2 of {} {problem}", bundle.display());
        let inner = put("authorities/b.crt", &format!("{good}{block}"));
        put("authorities/a.pem", &good);
        let cases = [
            (TlsOptions { ca_file: Some(bundle.clone()), ..TlsOptions::default() }, expected.clone()),
            (
                TlsOptions { ca_dir: Some(folder.path().join("authorities")), ..TlsOptions::default() },
                format!("PEM block 2 of {} {problem}", inner.display()),
            ),
            (
                TlsOptions { ca_pem: Some(format!("{good}{good}{block}")), ..TlsOptions::default() },
                format!("PEM block 3 of the setting of the CA certificates to trust {problem}"),
            ),
            (
                TlsOptions {
                    ca_file: Some(folder.path().join("ca.pem")),
                    identity: Some(ClientCertificate {
                        certificate: bundle.clone(),
                        key: folder.path().join("key.pem"),
                        is_awaited: false,
                    }),
                    ..TlsOptions::default()
                },
                expected.clone(),
            ),
        ];
        for (tls, expected) in cases {
            for message in refusals(&tls) {
                assert!(
                    message.contains(&expected) && message.contains("replace or remove that block"),
                    "{message} for {expected}"
                );
            }
        }
        let served = put("served.pem", &format!("{}{block}", read("cert.pem")));
        let pair = ServerCertificate {
            certificate: served,
            key: folder.path().join("key.pem"),
            is_awaited: false,
            client_ca: None,
        };
        let message = chain(pair.server().unwrap_err());
        assert!(message.contains("PEM block 2 of") && message.contains(problem), "{message}");
    }
    let both =
        TlsOptions { ca_file: Some(put("both.pem", &format!("Größe\n{good}\n{good}"))), ..TlsOptions::default() };
    options("https://vault.example.com", both.clone()).build().unwrap();
    UpstreamTarget::resolve(&options("https://vault.example.com", both)).unwrap();
}

/// Serves the text `here` over TLS. Returns the URL, and the server, which ends when it is dropped.
fn serve_here(tls: ServerTls) -> (String, JoinSet<()>) {
    let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let url = format!("https://{}", listener.tcp_address().unwrap());
    let mut servers = JoinSet::new();
    let app = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
    let limits = ListenerLimits { tls: Some(tls), ..ListenerLimits::default() };
    servers.spawn(listener.serve(axum_service(app), limits, CancellationToken::new()));
    (url, servers)
}

#[tokio::test]
async fn a_client_and_a_server_use_new_files_for_the_next_connection_and_keep_old_ones_for_bad_ones() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(ours.path());
    certificates(theirs.path());
    let file = |name: &str| ours.path().join(name);
    let tls = ServerTls::new(&ServerCertificate {
        certificate: file("cert.pem"),
        key: file("key.pem"),
        is_awaited: false,
        client_ca: None,
    })
    .unwrap();
    let (url, _servers) = serve_here(tls);

    let client = options(&url, TlsOptions { ca_file: Some(file("ca.pem")), ..TlsOptions::default() }).build().unwrap();
    let call = async || match client.send(client.request(http::Method::GET, "")).await {
        Ok(response) => String::from_utf8(response.body).unwrap(),
        Err(error) => error.to_string(),
    };
    assert_eq!(call().await, "here");
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(theirs.path().join(name), file(name)).unwrap();
    }
    let message = call().await;
    assert!(message.contains("certificate"), "the server has another authority now: {message}");
    std::fs::copy(theirs.path().join("ca.pem"), file("ca.pem")).unwrap();
    assert_eq!(call().await, "here", "the client has it, too");
    std::fs::write(file("ca.pem"), "damaged").unwrap();
    std::fs::remove_file(file("key.pem")).unwrap();
    assert_eq!(call().await, "here", "what cannot be used is not used");
}

#[tokio::test]
async fn a_server_with_authorities_for_clients_admits_theirs_alone_and_follows_the_file() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(ours.path());
    certificates(theirs.path());
    let file = |name: &str| ours.path().join(name);
    let awaited = file("clients.pem");
    let client_ca = Some(ClientAuthorities { file: awaited.clone(), is_awaited: true });
    let served =
        ServerCertificate { certificate: file("cert.pem"), key: file("key.pem"), is_awaited: false, client_ca };
    let tls = ServerTls::new(&served).unwrap();
    let (url, _servers) = serve_here(tls);
    let is_served = async |folder: Option<&Path>| {
        let identity = folder.map(|folder| ClientCertificate {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            is_awaited: false,
        });
        let tls = TlsOptions { ca_file: Some(file("ca.pem")), identity, ..TlsOptions::default() };
        let client = options(&url, tls).build().unwrap();
        client.send(client.request(http::Method::GET, "")).await.is_ok()
    };
    assert!(!is_served(Some(ours.path())).await, "nobody is let in before there are authorities");
    for (folder, other) in [(ours.path(), theirs.path()), (theirs.path(), ours.path())] {
        std::fs::copy(folder.join("ca.pem"), &awaited).unwrap();
        assert!(is_served(Some(folder)).await);
        assert!(!is_served(Some(other)).await);
        assert!(!is_served(None).await);
    }
    for text in ["", "no certificate"] {
        std::fs::write(&awaited, text).unwrap();
        assert!(is_served(Some(theirs.path())).await, "a file that cannot be used changes nothing");
        assert!(!is_served(None).await);
    }
}
