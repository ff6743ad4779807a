//! Certificates of SPIFFE's Workload API in a running agent: in files, and for its own logins.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::{LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_http::tls::{self, CertificateFacts, ClientAuthorities, ServerCertificate};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use serde_json::json;

use crate::agent::cloud_logins::RealMethods;
use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::workload_api::WorkloadApi;
use crate::harness::world::{World, run_in_network_namespace};

/// A Vault over TLS that admits certificates of these authorities.
struct Vault {
    secrets: Secrets,
    folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

impl Vault {
    fn start(world: &World, authorities: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(path("server.pem"), own.cert.pem()).unwrap();
        std::fs::write(path("server.key"), own.signing_key.serialize_pem()).unwrap();
        let server = ServerCertificate {
            certificate: path("server.pem"),
            key: path("server.key"),
            is_awaited: false,
            client_ca: Some(ClientAuthorities { file: authorities.to_owned(), is_awaited: false }),
        };
        let roles = BTreeMap::from([("web".to_owned(), Role::default())]);
        let methods = BTreeMap::from([("cert".to_owned(), LoginMethod::Certificate { roles })]);
        let tls = Some(server.server().unwrap());
        let options =
            SecretsOptions { methods, tls, ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) };
        let mut tasks = TaskGroup::default();
        let secrets = world.block_on(async { Secrets::start(options, &mut tasks).unwrap() });
        Self { secrets, folder, _tasks: tasks }
    }

    /// The server, and a session that logs in with the certificate `svid`.
    fn session(&self) -> String {
        format!(
            "\n[server.certs]\nkind = \"vault\"\naddress = \"{}\"\nca_file = \"{}\"\n\
             [session.svid]\nserver = \"certs\"\n[session.svid.cert]\ncertificate = \"svid\"\n\
             [sink.svid]\nsession = \"svid\"\npath = \"FOLDER/svid-token\"\n",
            self.secrets.url(),
            self.folder.path().join("server.pem").display()
        )
    }
}

/// The certificate `svid`, with these keys beside.
fn certificate(api: &WorkloadApi, more: &str) -> String {
    let socket = api.socket().display().to_string();
    format!("\n[certificate.svid]\nkind = \"spiffe\"\nworkload_api = \"unix://{socket}\"\n{more}\n")
}

/// Names the servers of a configuration that has several.
fn with_servers(text: String) -> String {
    text.replace("[session.web]\n", "[session.web]\nserver = \"main\"\n")
        .replace("[sink.token]\n", "[sink.token]\nsession = \"web\"\n")
}

/// The serial number of the leaf, once key and leaf are there; they must fit.
fn serial(agent: &Agent) -> Vec<u8> {
    let pair = || tls::verify_pair(&agent.path("svid/fullchain.pem"), &agent.path("svid/key.pem"));
    let chain =
        eventually(Duration::from_secs(20), || pair().map_err(|error| format!("{error}: {}", agent.binary.output())));
    CertificateFacts::parse(&chain[0]).unwrap().serial
}

fn authorities(agent: &Agent) -> usize {
    tls::certificates(&agent.path("svid/chain.pem")).unwrap().len()
}

#[test]
fn a_session_logs_in_with_the_certificate_of_the_workload_api_as_soon_as_it_is_there() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut api = WorkloadApi::start();
        api.set("unregistered");
        let vault = Vault::start(&world, &api.authorities());
        world.block_on(vault.secrets.faults().go_away());
        let more = certificate(&api, "folder = \"FOLDER/svid\"") + &vault.session();
        let agent = Agent::start(&world, &[], |text| with_servers(text) + &more);
        agent.logs("no registration entry has selectors");
        agent.logs("fullchain.pem is not there yet");
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 503);
        agent.logs("failures=2");
        assert!(!agent.binary.output().contains("KW-1201"), "nothing to log in with: {}", agent.binary.output());
        world.block_on(vault.secrets.faults().come_back());
        api.set("registered");
        let token = agent.sink("svid-token");
        assert!(token.starts_with("hvs."), "{token}");
        assert_eq!(vault.secrets.faults().counts().get(Operation::Login), 1);
        eventually(Duration::from_secs(20), || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        agent.logs("certificate.recovered");
        let key = std::fs::read_to_string(agent.path("svid/key.pem")).unwrap();
        let secret = key.lines().nth(1).unwrap();
        assert!(!agent.binary.output().contains(secret));
        let status = agent.get("/agent/v1/status").to_string();
        assert!(status.contains("spiffe://example.org/web") && !status.contains(secret), "{status}");
    });
}

#[test]
fn files_follow_what_the_workload_api_sends() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut api = WorkloadApi::start();
        let more = certificate(
            &api,
            "folder = \"FOLDER/svid\"\nspiffe_id = \"spiffe://example.org/other\"\ncommand = [\"sh\", \"-c\", \"echo x >> FOLDER/runs\"]",
        );
        let agent = Agent::ready(&world, &[], |text| text + &more);
        let runs = || std::fs::read_to_string(agent.path("runs")).unwrap_or_default().lines().count();
        let until = |what: &str, condition: &dyn Fn() -> bool| {
            eventually(Duration::from_secs(20), || {
                condition().then_some(()).ok_or_else(|| format!("{what}: {}", agent.binary.output()))
            });
        };
        let first = serial(&agent);
        until("command", &|| runs() == 1);
        api.set("rotate");
        until("rotation", &|| serial(&agent) != first);
        until("command", &|| runs() == 2);
        let second = serial(&agent);
        assert_eq!(authorities(&agent), 1);
        api.set("authority");
        until("authority", &|| authorities(&agent) == 2);
        assert_eq!(serial(&agent), second, "the same leaf");
        until("command", &|| runs() == 3);
        // The next leaf is signed by the new authority, which then stands first.
        api.set("rotate");
        until("rotation", &|| serial(&agent) != second);
        assert_eq!(authorities(&agent), 2);
        let config = agent.config.display().to_string();
        let (code, output, error) = run(&["rotate", "svid", "--config", &config], &[]);
        assert!(code != 0 && error.contains("with a certificate of an engine"), "{code} {output}{error}");
        // The files stay while the API is away.
        let third = serial(&agent);
        api.set("unregistered");
        agent.logs("certificate.failed");
        assert_eq!(serial(&agent), third);
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 200);
        api.set("registered");
        agent.logs("certificate.recovered");
    });
}

#[test]
fn a_session_gives_up_the_token_of_another_identity() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut api = WorkloadApi::start();
        let vault = Vault::start(&world, &api.authorities());
        let web = "spiffe_id = \"spiffe://example.org/web\"";
        let more = certificate(&api, &format!("folder = \"FOLDER/svid\"\n{web}")) + &vault.session();
        let mut agent = Agent::ready(&world, &[], |text| with_servers(text) + &more);
        let first = agent.sink("svid-token");
        api.set("unavailable");
        agent.edit(|text| text.replace(web, "spiffe_id = \"spiffe://example.org/other\""));
        agent.reload("ok");
        // The files still hold the certificate of the identity before.
        agent.logs("fullchain.pem is of another identity");
        agent.binary.signal(rustix::process::Signal::TERM);
        agent.binary.wait(Duration::from_secs(20));
        agent.restart(&[]);
        agent.logs("fullchain.pem is of another identity");
        assert_eq!(vault.secrets.faults().counts().get(Operation::Login), 1);
        api.set("registered");
        eventually(Duration::from_secs(30), || match std::fs::read_to_string(agent.path("svid-token")) {
            Ok(token) if !token.is_empty() && token != first => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        assert_eq!(vault.secrets.faults().counts().get(Operation::Login), 2);
    });
}

#[test]
fn a_certificate_of_the_workload_api_is_used_again_after_a_restart() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut api = WorkloadApi::start();
        let more = certificate(&api, "bundle = \"FOLDER/svid.pem\"");
        let mut agent = Agent::ready(&world, &[], |text| text + &more);
        let before = std::fs::read(agent.path("svid.pem")).unwrap();
        api.set("unavailable");
        agent.binary.signal(rustix::process::Signal::TERM);
        agent.binary.wait(Duration::from_secs(20));
        agent.restart(&[]);
        agent.logs("certificate.reused");
        agent.logs("could not fetch the identity");
        eventually(Duration::from_secs(20), || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        assert_eq!(std::fs::read(agent.path("svid.pem")).unwrap(), before);
    });
}

#[test]
fn vaults_own_method_takes_the_certificate_of_the_workload_api() {
    run_in_network_namespace(|| {
        let world = World::start();
        let api = WorkloadApi::start();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(path("server.pem"), own.cert.pem()).unwrap();
        std::fs::write(path("server.key"), own.signing_key.serialize_pem()).unwrap();
        let vault = RealMethods::start(&[&path("server.pem"), &path("server.key")], &[]);
        for (role, id) in [("web", "spiffe://example.org/web"), ("other", "spiffe://example.org/other")] {
            let authorities = std::fs::read_to_string(api.authorities()).unwrap();
            let body = json!({ "certificate": authorities, "allowed_uri_sans": id, "token_policies": role });
            let url = format!("{}/v1/auth/cert/certs/{role}", vault.url);
            let trusted = reqwest::Certificate::from_pem(own.cert.pem().as_bytes()).unwrap();
            let client = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]).build().unwrap();
            let status = world.block_on(async { client.post(url).json(&body).send().await.unwrap().status() });
            assert!(status.is_success(), "{status}");
        }
        let svid = certificate(&api, "folder = \"FOLDER/svid\"\nspiffe_id = \"spiffe://example.org/web\"");
        let agent = Agent::ready(&world, &[], |text| text + &svid);
        serial(&agent);
        let log_in = |role: &str| {
            let text = format!(
                "[server.vault]\nkind = \"vault\"\naddress = \"{}\"\nca_file = \"{}\"\n[session.web]\n\
                 [session.web.cert]\nrole = \"{role}\"\ncertificate = \"svid\"\n{svid}",
                vault.url,
                path("server.pem").display()
            );
            let config = agent.path("login.toml");
            let own_folder = agent.path("").display().to_string();
            std::fs::write(&config, text.replace("FOLDER/", &own_folder)).unwrap();
            run(&["login", "--config", config.to_str().unwrap(), "--reveal", "-o", "json"], &[])
        };
        let (code, output, error) = log_in("web");
        assert!(code == 0 && output.contains("\"web\""), "{code} {output}{error}");
        let (code, output, error) = log_in("other");
        assert!(code != 0 && error.contains("no chain matching all constraints"), "{code} {output}{error}");
    });
}
