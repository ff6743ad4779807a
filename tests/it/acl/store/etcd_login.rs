//! Store on etcd with authentication: TLS client certificate, and user with password.

use std::path::PathBuf;

use etcd_client::{Certificate, Client, ConnectOptions, Permission, TlsOptions};
use keyward_acl::store::etcd::{EtcdLogin, EtcdOptions};
use keyward_acl::store::{Etcd, Freshness, Store};
use keyward_http::client::ClientCertificate;
use keyward_telemetry::error_chain::format_chain;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::etcd_process::{Server, host, options};
use super::{get, key, put, soon, value};
use crate::harness::log;

/// Directory with a CA, a server and a client certificate.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn generate(host: &str) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        made.renew(host);
        made
    }

    /// Replaces them by certificates of another CA.
    fn renew(&self, host: &str) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        self.write("ca.pem", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::from_params(&params, &key);
        let client = "a-client.example";
        for (name, host, user) in [
            ("server", host, "etcd"),
            ("client", client, "by-name"),
            ("by-name", client, "by-name"),
            ("stranger", client, "stranger"),
        ] {
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, user);
            let key = KeyPair::generate().unwrap();
            self.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
            self.write(&format!("{name}.key"), &key.serialize_pem());
        }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Replaces the client's certificate by another one of the same CA.
    fn present(&self, name: &str) {
        for kind in ["pem", "key"] {
            std::fs::copy(self.path(&format!("{name}.{kind}")), self.path(&format!("client.{kind}"))).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

const PASSWORD: &str = "correct-horse-battery";
const OTHER_PASSWORD: &str = "staple-of-another-kind";
const ROOT: &str = "root-of-all";

/// Users: root, one with a password, and one by certificate name; both may use one prefix.
async fn set_up(admin: &mut Client, prefix: &str) {
    admin.role_add("store").await.unwrap();
    let permission = Permission::read_write(prefix).with_prefix();
    admin.role_grant_permission("store", permission).await.unwrap();
    for (user, password, role) in [("root", ROOT, "root"), ("keyward", PASSWORD, "store"), ("by-name", ROOT, "store")] {
        admin.user_add(user, password, None).await.unwrap();
        if role == "root" {
            admin.role_add("root").await.unwrap();
        }
        admin.user_grant_role(user, role).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
    admin.update_user(Some(("root".to_owned(), ROOT.to_owned()))).await.unwrap();
}

async fn refused(options: &EtcdOptions, expected: &[&str]) {
    let error = Etcd::open(options, "dc1").await.map(drop).unwrap_err();
    let error = format!("{} {error:?}", format_chain(&error));
    for expected in expected {
        assert!(error.contains(expected), "{expected} is not in {error}");
    }
    for secret in [PASSWORD, OTHER_PASSWORD] {
        assert!(!error.contains(secret), "{error}");
    }
}

#[tokio::test]
async fn client_certificate_and_user_of_etcd_can_be_rotated() {
    log::keep();
    let host = host();
    let files = Certificates::generate(&host);
    let mut server = Server::start_with(host.clone(), files.0.path());
    files.write("password", PASSWORD);
    let certified = EtcdOptions {
        ca_file: Some(files.path("ca.pem")),
        identity: Some(ClientCertificate {
            certificate: files.path("client.pem"),
            key: files.path("client.key"),
            is_awaited: false,
        }),
        ..options([server.endpoint("https")])
    };
    let login = EtcdLogin { user: "keyward".into(), password_file: files.path("password") };
    let known = EtcdOptions { login: Some(login.clone()), ..certified.clone() };

    // Before authentication is enabled, any user name is accepted.
    files.present("stranger");
    let early = Etcd::open(&known, "dc1").await.unwrap_or_else(|error| panic!("{}", format_chain(&error)));
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(files.read("ca.pem")))
        .identity(etcd_client::Identity::from_pem(files.read("client.pem"), files.read("client.key")));
    let way = ConnectOptions::new().with_tls(tls);
    let mut admin = Client::connect([server.endpoint("https").as_str()], Some(way)).await.unwrap();
    set_up(&mut admin, &known.prefix).await;

    // The certificate's user may do nothing, so the store that was open before has to log in.
    early.commit(put("early", "0")).await.unwrap();
    assert_eq!(value(&early, "early").await.as_deref(), Some("0"));
    files.present("by-name");

    // Unknown users, and missing permissions.
    let quick = |options: EtcdOptions| EtcdOptions { request_timeout: std::time::Duration::from_secs(3), ..options };
    refused(&quick(EtcdOptions { identity: None, ..known.clone() }), &["it is running", "https://127."]).await;
    let other = Certificates::generate(&host);
    refused(
        &quick(EtcdOptions { ca_file: Some(other.path("ca.pem")), ..known.clone() }),
        &["invalid peer certificate"],
    )
    .await;
    let nowhere = EtcdOptions { ca_file: Some("/nowhere/ca.pem".into()), ..known.clone() };
    refused(&nowhere, &["cannot use the certificates for etcd: cannot read /nowhere/ca.pem"]).await;
    files.write("empty.pem", "hush");
    let empty = EtcdOptions { ca_file: Some(files.path("empty.pem")), ..known.clone() };
    refused(&empty, &["empty.pem holds no PEM certificate"]).await;
    let failed = "login as keyward: etcdserver: authentication failed, invalid user ID or password";
    files.write("password", OTHER_PASSWORD);
    refused(&known, &["check its users and roles", failed]).await;
    std::fs::remove_file(files.path("password")).unwrap();
    refused(&quick(known.clone()), &["cannot read a secret from", "password"]).await;
    files.write("password", PASSWORD);
    let elsewhere = EtcdOptions { prefix: "elsewhere/".into(), ..known.clone() };
    refused(&elsewhere, &["check its users and roles", "permission denied"]).await;

    // By password, and by certificate name.
    let store = Etcd::open(&known, "dc1").await.unwrap();
    let by_name = Etcd::open(&certified, "dc1").await.unwrap();
    let mut now = store.commit(put("a", "0")).await.unwrap();
    assert_eq!(value(&by_name, "a").await.as_deref(), Some("0"));

    // Logins expire with each change of users, and the password changes.
    for (round, password) in [("1", PASSWORD), ("2", OTHER_PASSWORD)] {
        admin.user_change_password("keyward", password).await.unwrap();
        files.write("password", password);
        let (woken, written) = tokio::join!(soon(store.changed("token/a", now)), by_name.commit(put("a", round)));
        now = written.unwrap();
        assert_eq!(woken.unwrap(), now);
        assert_eq!(value(&store, "a").await.as_deref(), Some(round));
        assert_eq!(store.get(&key("a"), Freshness::Stale).await.unwrap().unwrap().modified, now);
        now = store.commit(put("b", round)).await.unwrap();
    }

    // The next call presents a new certificate while etcd runs on, and files that cannot be used change nothing.
    files.present("stranger");
    let denied = by_name.get(&key("a"), Freshness::Linearizable).await.unwrap_err();
    assert!(format_chain(&denied).contains("permission denied"), "{}", format_chain(&denied));
    files.present("by-name");
    files.write("client.key", "hush");
    assert!(by_name.get(&key("a"), Freshness::Linearizable).await.is_err(), "the last usable certificate stays");
    files.present("by-name");
    assert_eq!(value(&by_name, "a").await.as_deref(), Some("2"));

    // It restarts with certificates of another CA and without its logins.
    server.kill();
    files.renew(&host);
    server.run();
    soon(async { while store.get(&key("a"), Freshness::Linearizable).await.is_err() {} }).await;
    let at = soon(async {
        loop {
            if let Ok(at) = store.commit(put("a", "3")).await {
                break at;
            }
        }
    });
    let at = at.await;
    assert_eq!(get(&store, "a").await.unwrap().modified, at);
    let other = Etcd::open(&known, "dc1").await.unwrap();
    let (woken, written) = tokio::join!(soon(store.changed("token/a", at)), other.commit(put("a", "4")));
    assert_eq!(woken.unwrap(), written.unwrap());

    let log_text = log::text();
    assert!(log_text.contains("authentication is disabled in etcd"));
    for secret in [PASSWORD, OTHER_PASSWORD] {
        assert!(!log_text.contains(secret), "a password is in the log");
    }
}

#[tokio::test]
async fn open_stores_log_in_once_authentication_is_enabled() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let password_file = folder.path().join("password");
    std::fs::write(&password_file, PASSWORD).unwrap();
    let login = EtcdLogin { user: "keyward".into(), password_file };
    let known = EtcdOptions { login: Some(login), ..server.options() };
    let store = Etcd::open(&known, "dc1").await.unwrap();
    store.commit(put("a", "0")).await.unwrap();
    // Stale reads have connections of their own.
    assert!(store.get(&key("a"), Freshness::Stale).await.unwrap().is_some());
    let idle = Etcd::open(&known, "dc1").await.unwrap();

    let mut admin = Client::connect([server.endpoint("http").as_str()], None).await.unwrap();
    set_up(&mut admin, &known.prefix).await;
    let now = store.commit(put("a", "1")).await.unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("1"));
    assert_eq!(store.get(&key("a"), Freshness::Stale).await.unwrap().unwrap().modified, now);
    // Without a user it is an error at once.
    let unknown = EtcdOptions { login: None, ..known.clone() };
    refused(&unknown, &["check its users and roles", "user name is empty"]).await;

    // An open watch needs no login, and a new one does: nothing else of this store calls etcd.
    server.kill();
    server.run();
    let other = Etcd::open(&known, "dc1").await.unwrap();
    let (woken, written) = tokio::join!(soon(idle.changed("token/a", now)), other.commit(put("a", "2")));
    assert_eq!(woken.unwrap(), written.unwrap());
}
