//! Certificates of a PKI engine in a running agent: over restarts, on request, and for its own listeners.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use keyward_http::tls::{self, CertificateFacts, ClientCertificate, TlsOptions};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

const CERTIFICATE: &str =
    "\n[certificate.web]\nrole = \"web\"\ncommon_name = \"localhost\"\nttl = \"10d\"\nfolder = \"FOLDER/web\"\n";

const PAGES: &str = "\n[listener.pages]\nkind = \"ui\"\naddress = \"tcp://127.0.0.1:8310\"\nkey_file = \"FOLDER/seal.key\"\ncertificate = \"web\"\n";

fn serial(agent: &Agent) -> Vec<u8> {
    let leaf = CertificateDer::from_pem_file(agent.path("web/cert.pem")).unwrap();
    tls::verify_pair(&agent.path("web/fullchain.pem"), &agent.path("web/key.pem")).unwrap();
    CertificateFacts::parse(&leaf).unwrap().serial
}

fn requests(world: &World) -> u64 {
    world.secrets.faults().counts().get(Operation::Secret)
}

/// The serial number of the certificate that a server sends; `None` if there is no handshake.
fn served(address: SocketAddr, agent: &Agent) -> Option<Vec<u8>> {
    let authorities = std::fs::read(agent.path("web/chain.pem")).unwrap_or_default();
    let config = tls::client_config_of(&authorities, "chain.pem").ok()?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut stream).ok()?;
    }
    Some(CertificateFacts::parse(&client.peer_certificates()?[0]).unwrap().serial)
}

#[test]
fn fifty_restarts_of_the_program_request_no_certificate() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::ready(&world, &[], |text| text + CERTIFICATE);
        let first = serial(&agent);
        for restart in 0..50 {
            agent.binary.signal(if restart % 2 == 0 { Signal::TERM } else { Signal::KILL });
            agent.binary.wait(Duration::from_secs(20));
            agent.restart(&[]);
            eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/readyz/certificate/web") {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}: {}", agent.binary.output())),
            });
        }
        assert_eq!((serial(&agent), requests(&world)), (first, 1));
    });
}

#[test]
fn a_certificate_is_rotated_by_command_and_by_call() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + CERTIFICATE);
        let config = agent.config.display().to_string();
        let first = serial(&agent);
        let (code, output, error) = run(&["rotate", "--config", &config], &[]);
        assert_eq!(code, 0, "{output}{error}");
        assert!(output.starts_with("web has a new certificate: serial "), "{output}");
        let second = serial(&agent);
        assert_ne!(second, first);
        let call = |query: &str| ask(&agent.socket(), "POST", &format!("/agent/v1/rotate{query}")).unwrap();
        let (status, body) = call("?certificate=web");
        assert_eq!(status, 200, "{body}");
        let third = serial(&agent);
        assert_ne!(third, second);
        assert_eq!(call("?certificate=other").0, 404);
        assert_eq!(call("?session=web").0, 400);
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/rotate").unwrap().0, 405);
        let refusal = CannedResponse::error(503, "Vault is sealed");
        world.secrets.faults().respond_always(Operation::Secret, Some(refusal));
        let (status, body) = call("");
        assert!(status == 503 && body.contains("the certificate was not replaced: "), "{status} {body}");
        assert_eq!(call("").0, 429);
        let (code, _, error) = run(&["rotate", "web", "--config", &config], &[]);
        assert!(code != 0 && error.contains("too many rotations"), "{code} {error}");
        assert_eq!(serial(&agent), third);
    });
}

#[test]
fn a_listener_waits_for_its_certificate_and_follows_it() {
    run_in_network_namespace(|| {
        let world = World::start();
        let refusal = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
        world.secrets.faults().respond_always(Operation::Secret, Some(refusal));
        let agent = Agent::start(&world, &[], |text| text + CERTIFICATE + PAGES);
        let address = SocketAddr::from(([127, 0, 0, 1], 8310));
        agent.logs("certificate.failed");
        eventually(Duration::from_secs(20), || TcpStream::connect(address).map_err(|error| error.to_string()));
        assert_eq!(served(address, &agent), None);
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 503);
        world.secrets.faults().respond_always(Operation::Secret, None);
        eventually(Duration::from_secs(40), || {
            served(address, &agent).ok_or_else(|| format!("no handshake: {}", agent.binary.output())).map(drop)
        });
        for _ in 0..3 {
            assert_eq!(served(address, &agent), Some(serial(&agent)));
            let (status, body) = ask(&agent.socket(), "POST", "/agent/v1/rotate").unwrap();
            assert_eq!(status, 200, "{body}");
        }
        assert_eq!(served(address, &agent), Some(serial(&agent)));
    });
}

#[test]
fn a_reload_adds_changes_and_removes_a_certificate() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        agent.edit(|text| text + CERTIFICATE);
        agent.reload("ok");
        eventually(Duration::from_secs(20), || {
            agent.path("web/cert.pem").exists().then_some(()).ok_or("none".to_owned())
        });
        let first = serial(&agent);
        agent.reload("ok");
        assert_eq!(serial(&agent), first, "nothing has changed");
        agent.edit(|text| text.replace("ttl = \"10d\"", "ttl = \"9d\""));
        agent.reload("ok");
        eventually(
            Duration::from_secs(20),
            || {
                if serial(&agent) == first { Err(agent.binary.output()) } else { Ok(()) }
            },
        );
        agent.edit(|text| text.split("\n[certificate.web]").next().unwrap().to_owned());
        agent.reload("ok");
        assert!(agent.path("web/cert.pem").exists(), "the files stay");
        let state = "keyward_issued_certificate_state";
        eventually(Duration::from_secs(20), || match ask(&agent.socket(), "GET", "/metrics") {
            Ok((_, text)) if !text.contains(&format!("{state}{{")) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    });
}

#[test]
fn a_listener_demands_certificates_of_the_authority_of_a_certificate() {
    run_in_network_namespace(|| {
        let world = World::start();
        let proxy = "\n[listener.vault]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8200\"\nany_local_user = true\n\
                     certificate = \"web\"\nclient_ca = \"web\"\n";
        let agent = Agent::ready(&world, &[], |text| text + CERTIFICATE + proxy);
        let files = || ClientCertificate {
            certificate: agent.path("web/cert.pem"),
            key: agent.path("web/key.pem"),
            is_awaited: false,
        };
        let answer = |identity: Option<ClientCertificate>| -> std::io::Result<String> {
            let tls = TlsOptions { ca_file: Some(agent.path("web/chain.pem")), identity, ..TlsOptions::default() };
            let config = Arc::new(tls::client_config(&tls).unwrap());
            let client = rustls::ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
            let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], 8200)))?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut stream = rustls::StreamOwned::new(client, stream);
            let lines = [
                "GET /v1/auth/token/lookup-self HTTP/1.1",
                "Host: localhost",
                "X-Vault-Request: true",
                "Connection: close",
            ];
            stream.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes())?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let is_served = |identity| answer(identity).is_ok_and(|text| text.contains("\"policies\""));
        assert!(is_served(Some(files())), "{:?}", answer(Some(files())));
        let refusal = answer(None).unwrap_err().to_string();
        assert!(refusal.contains("CertificateRequired"), "{refusal}");
        let (status, body) = ask(&agent.socket(), "POST", "/agent/v1/rotate").unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(is_served(Some(files())), "{:?}", answer(Some(files())));
    });
}
