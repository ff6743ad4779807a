//! The ACL server started by the configuration: the real binary, over TLS and on a unix socket.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::ports;

/// Creates a CA and a certificate for 127.0.0.1 as PEM files `ca.pem`, `cert.pem` and `key.pem`.
fn certificates(folder: &std::path::Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let signed = authority.self_signed(&authority_key).unwrap();
    std::fs::write(folder.join("ca.pem"), signed.pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("cert.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("key.pem"), mode).unwrap();
}

/// Serves with the certificate and `key.pem` of the folder; returns the error of a client that trusts `ca`.
fn certificate_error(folder: &std::path::Path, certificate: &str, ca: &std::path::Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let args = ["acl", "serve", "--dir", &at("acl"), "--listen", "127.0.0.1:0"];
    let tls = ["--tls-cert-file", &at(certificate), "--tls-key-file", &at("key.pem")];
    let server = Binary::start(&[&args[..], &tls].concat(), &[], folder);
    let address = eventually(Duration::from_secs(30), || {
        let output = server.output();
        let after = output.split_once("keyward acl bootstrap --address ");
        after.and_then(|(_, rest)| Some(rest.split_once(' ')?.0.to_owned())).ok_or(output)
    });
    let ca = ca.display().to_string();
    let (code, _, error) = run(&["acl", "whoami", "--address", &address, "--ca-file", &ca], &[]);
    assert_ne!(code, 0, "{error}");
    error
}

#[test]
fn certificate_errors_are_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // With two CAs of one name the error would be a bad signature instead of an unknown issuer.
    authority.distinguished_name.push(DnType::CommonName, "another authority");
    let authority_key = KeyPair::generate().unwrap();
    std::fs::write(at("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    // A CA's certificate serves only where it is itself in the file of trusted ones.
    let mut own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = own.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    std::fs::write(at("own.pem"), own.pem()).unwrap();
    std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
    std::fs::set_permissions(at("key.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let own = certificate_error(folder.path(), "own.pem", &at("ca.pem"));
    assert!(own.contains("certificate: it is a CA certificate, not a server certificate"), "{own}");

    let other = tempfile::tempdir().unwrap();
    certificates(other.path());
    let foreign = certificate_error(other.path(), "cert.pem", &at("ca.pem"));
    assert!(foreign.contains("it is not issued by a trusted authority"), "{foreign}");
    for dialect in ["CaUsedAsEndEntity", "UnknownIssuer", "OtherError"] {
        assert!(!own.contains(dialect) && !foreign.contains(dialect), "{own} {foreign}");
    }
}

#[tokio::test]
async fn the_server_uses_tls_on_its_port_and_not_on_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let port = ports::reserve().port();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let config = format!(
        "[acl]\nlisten = [\"tcp://127.0.0.1:{port}\", \"unix://{}\"]\ntls_cert = \"{}\"\ntls_key = \"{}\"\n\
         data_dir = \"{}\"\nbase_path = \"/acl-server\"\n",
        at("acl.sock"),
        at("cert.pem"),
        at("key.pem"),
        at("acl"),
    );
    std::fs::write(folder.path().join("keyward.toml"), config).unwrap();
    let server = Binary::start(&["run", "--config", &at("keyward.toml")], &[], folder.path());

    let socket = reqwest::Client::builder().no_proxy().unix_socket(at("acl.sock")).build().unwrap();
    eventually(Duration::from_secs(30), || {
        std::os::unix::net::UnixStream::connect(at("acl.sock")).map_err(|_| server.output())
    });
    let first = socket.put("http://localhost/acl-server/v1/acl/bootstrap").send().await.unwrap();
    assert_eq!(first.status(), 200);
    let first: serde_json::Value = first.json().await.unwrap();

    let authority = reqwest::Certificate::from_pem(&std::fs::read(at("ca.pem")).unwrap()).unwrap();
    let tls = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
    let read = tls
        .get(format!("https://127.0.0.1:{port}/acl-server/v1/acl/token/self"))
        .header("X-Service-Token", first["SecretID"].as_str().unwrap())
        .send();
    let read: serde_json::Value = read.await.unwrap().json().await.unwrap();
    assert_eq!(read["AccessorID"], first["AccessorID"]);

    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(plain.get(format!("http://127.0.0.1:{port}/acl-server/v1/acl/token/self")).send().await.is_err());
    let elsewhere = socket.get("http://localhost/v1/acl/token/self").send().await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    let (status, output) = server.stop();
    assert!(status.success(), "{output}");
    assert!(!output.contains(first["SecretID"].as_str().unwrap()), "{output}");
}

#[test]
fn more_connections_than_files_may_be_open_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (config, data) = (folder.path().join("keyward.toml"), folder.path().join("acl"));
    // Each of the two would fit alone.
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"https://secrets.example.com:8200\"\n\
         [session.main]\nserver = \"main\"\n[session.main.cloud]\nrole = \"web\"\n\
         resource = \"https://management.azure.com/\"\n[listener.proxy]\nkind = \"api_proxy\"\n\
         address = \"unix://{}\"\nconnections = 3000\n\
         [acl]\nlisten = \"unix://{}\"\ndata_dir = \"{}\"\nconnections = 3000\n",
        folder.path().join("proxy.sock").display(),
        folder.path().join("acl.sock").display(),
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 4000 && exec \"$0\" run --config \"$1\"", env!("CARGO_BIN_EXE_keyward")])
        .arg(&config)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let expected = "listener.proxy.connections = 3000, acl.connections = 3000 and 256 files of keyward itself take 6256 \
                    open files, and this process may have 4000: raise its limit";
    assert!(error.contains(expected), "{error}");
    assert!(!data.exists(), "it looked after it had begun");
}
