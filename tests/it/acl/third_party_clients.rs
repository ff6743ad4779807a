//! Third-party clients against the real ACL server, on each store: py-consul, Ansible's modules for Consul, and Consul's Go
//! client with the calls of the Terraform provider for Consul. `tests/clients` has their calls and expectations.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyward_credentials::jwt::signing_input;
use serde_json::json;

use crate::harness::binary::{Binary, eventually};
use crate::harness::ports;

/// Real ACL server on its own port.
struct Server {
    port: u16,
    binary: Binary,
    folder: tempfile::TempDir,
    /// etcd of the store, if it has one.
    #[cfg(feature = "etcd")]
    _etcd: Option<std::sync::Arc<crate::acl::store::etcd_process::Server>>,
}

impl Server {
    /// Starts it; `store` gives the rest of the section `[acl]`.
    fn start(store: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = ports::reserve().port();
        let config = folder.path().join("keyward.toml");
        let text = format!("[acl]\nlisten = \"tcp://127.0.0.1:{port}\"\n{}", store(folder.path()));
        std::fs::write(&config, text).unwrap();
        let binary = Binary::start(&["run", "--config", config.to_str().unwrap()], &[], folder.path());
        eventually(Duration::from_secs(30), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|_| binary.output())
        });
        Self {
            port,
            binary,
            folder,
            #[cfg(feature = "etcd")]
            _etcd: None,
        }
    }

    fn embedded() -> Self {
        Self::start(|folder| format!("data_dir = \"{}\"\n", folder.join("acl").display()))
    }

    #[cfg(feature = "etcd")]
    fn etcd() -> Self {
        let etcd = crate::acl::store::etcd_process::shared();
        let options = etcd.options();
        let server = Self::start(|folder| {
            let key = folder.join("seal.key");
            std::fs::write(&key, "5a".repeat(32)).unwrap();
            std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let endpoint = options.endpoints[0].as_str().trim_end_matches('/');
            let (key, prefix) = (key.display(), &options.prefix);
            format!("key_file = \"{key}\"\n[acl.etcd]\nendpoints = [\"{endpoint}\"]\nprefix = \"{prefix}\"\n")
        });
        Self { _etcd: Some(etcd), ..server }
    }

    /// Runs a Python module, which must succeed.
    fn serves(self, module: &str, arguments: &[&str]) {
        self.serves_program("python", &[&["-m", module], arguments].concat());
    }

    /// Runs a client, which must succeed.
    fn serves_program(self, program: &str, arguments: &[&str]) {
        let (bearer, public) = identity();
        let python = clients().join("bin/python");
        let output = Command::new(clients().join("bin").join(program))
            .args(arguments)
            .current_dir(scripts())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::join_paths([clients().join("bin"), "/usr/bin".into(), "/bin".into()]).unwrap())
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("CONSUL_HTTP_ADDR", format!("http://127.0.0.1:{}", self.port))
            .env("BEARER", bearer)
            .env("PUBLIC_KEY", public)
            .env("ANSIBLE_CONFIG", "ansible.cfg")
            .env("ANSIBLE_COLLECTIONS_PATH", clients().join("collections"))
            .env("ANSIBLE_PYTHON_INTERPRETER", &python)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let (ended, server) = self.binary.stop();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success(), "{text}\n--- the server:\n{server}");
        assert!(ended.success(), "{server}");
    }
}

/// Folder of the scripts for the clients.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Folder in which `tests/run` installs the clients.
pub(crate) fn clients() -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/clients");
    assert!(place.is_dir(), "{} is not there: ./tests/run brings it and starts the tests", place.display());
    place
}

/// Creates a machine's JWT, valid for an hour, and its public key.
fn identity() -> (String, String) {
    let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "https://issuer.example", "aud": ["machines"], "sub": "web-1", "name": "web", "team": "Shop",
        "iat": now, "nbf": now, "exp": now + 3600,
    });
    let text = signing_input(&json!({"typ": "JWT", "alg": "RS256"}), &claims);
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    let public = aws_lc_rs::encoding::AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(pair.public_key());
    let public = STANDARD.encode(public.unwrap().as_ref());
    let lines = public.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.collect::<Vec<_>>().join("\n"));
    (format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)), pem)
}

#[test]
fn py_consul_makes_every_call_it_has_on_the_embedded_store() {
    Server::embedded().serves("py_consul", &[]);
}

#[test]
#[cfg(feature = "etcd")]
fn py_consul_makes_every_call_it_has_on_etcd() {
    Server::etcd().serves("py_consul", &[]);
}

#[test]
fn the_terraform_provider_for_consul_works_on_the_embedded_store() {
    Server::embedded().serves_program("go-consul", &[]);
}

#[test]
#[cfg(feature = "etcd")]
fn the_terraform_provider_for_consul_works_on_etcd() {
    Server::etcd().serves_program("go-consul", &[]);
}

#[test]
fn ansible_modules_are_idempotent_and_remove_on_the_embedded_store() {
    Server::embedded().serves("ansible", &["playbook", "--inventory", "localhost,", "site.yml"]);
}

#[test]
#[cfg(feature = "etcd")]
fn ansible_modules_are_idempotent_and_remove_on_etcd() {
    Server::etcd().serves("ansible", &["playbook", "--inventory", "localhost,", "site.yml"]);
}
