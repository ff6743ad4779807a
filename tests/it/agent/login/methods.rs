//! Auth methods outside of Azure: signed tokens in files, AppRole, client certificates, and tokens in files.
//!
//! Each test goes from the text of a configuration to the token.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_agent::identity::{IdentityProof, IdentitySource};
use keyward_agent::login::{AuthMethodKind, Login, LoginError};
use keyward_agent::server_client::ServerClient;
use keyward_agent::token::Token;
use keyward_app::one_shot_login;
use keyward_config::{Config, Environment, Purpose, load};
use keyward_emulators::secrets::{AppRoleMethod, LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

use crate::agent::server_client::Authority;
use crate::harness::binary::run;

/// A server with every auth method, and a folder for files.
struct Scene {
    secrets: Secrets,
    folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

/// A session that was built from a configuration.
#[derive(Debug)]
struct Session {
    source: Box<dyn IdentitySource>,
    login: Login,
    config: Config,
}

impl Session {
    async fn log_in(&self) -> Result<Token, LoginError> {
        let proof = self.source.prove().await?;
        self.login.login(&proof, &Clock::System).await
    }

    #[track_caller]
    fn refused(tried: &Result<Token, LoginError>, expected: &str) {
        let error = tried.as_ref().unwrap_err();
        let text = format!("{:#}", anyhow::anyhow!("{}", keyward_telemetry::error_chain::format_chain(error)));
        assert!(text.contains(expected), "{text}");
    }
}

fn signed(name: &str) -> SecretString {
    let claims = URL_SAFE_NO_PAD.encode(format!("{{\"sub\": \"{name}\", \"exp\": 4102444800}}"));
    SecretString::from(format!("eyJhbGciOiJub25lIn0.{claims}.c2ln"))
}

fn role(policy: &str) -> Role {
    Role { policies: vec![policy.to_owned()], ..Role::default() }
}

impl Scene {
    fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let roles = |name: &str| BTreeMap::from([(name.to_owned(), role(name))]);
        let known = |text: &str| SecretString::from(text);
        let methods = [
            ("jwt", LoginMethod::jwt(vec![signed("one"), signed("two")], roles("ci"))),
            ("kubernetes", {
                let (believed, unbound) = (vec![signed("pod")], vec![signed("other pod")]);
                LoginMethod::Kubernetes { believed, unbound, roles: roles("pods") }
            }),
            ("approle", {
                let secret_ids = vec![known("secret-1"), known("secret-2")];
                LoginMethod::AppRole(AppRoleMethod {
                    name: "batch".to_owned(),
                    role_id: known("role-1"),
                    secret_ids,
                    secret_id_ttl: Duration::from_hours(1),
                    role: role("batch"),
                })
            }),
            ("certs", LoginMethod::Certificate { roles: roles("fleet") }),
        ];
        let methods = methods.map(|(mount, method)| (mount.to_owned(), method)).into_iter().collect();
        let options =
            SecretsOptions { methods, tls, ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) };
        let mut tasks = TaskGroup::default();
        let secrets = Secrets::start(options, &mut tasks).unwrap();
        Self { secrets, folder: tempfile::tempdir().unwrap(), _tasks: tasks }
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a session from the keys of its section; `FOLDER` is replaced by the scene's folder.
    fn session(&self, text: &str) -> Session {
        self.session_at("", text)
    }

    fn session_at(&self, server: &str, text: &str) -> Session {
        let url = self.secrets.url();
        let text = format!("[server.main]\nkind = \"vault\"\naddress = \"{url}\"\n{server}\n[session.web]\n{text}\n");
        let config = self.read(&text);
        let session = &config.sessions[0];
        let upstream = ServerClient::build(&session.upstream).unwrap();
        let source = session.identity.build(Clock::System, &upstream, session.login.namespace.as_deref()).unwrap();
        Session { source, login: Login::new(upstream, session.login.clone()), config }
    }

    fn read(&self, text: &str) -> Config {
        let file = self.path("keyward.toml");
        std::fs::write(&file, text.replace("FOLDER", &self.folder.path().display().to_string())).unwrap();
        let outcome = load(&[file], &Environment::default(), Purpose::Check);
        outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.errors))
    }

    /// Wraps a secret id.
    async fn wrapped(&self, secret_id: &str) -> String {
        let token = self.secrets.token(&Role::default());
        let request = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = request.post(format!("{}/v1/sys/wrapping/wrap", self.secrets.url()));
        let request = request.header("x-vault-token", token.expose_secret()).header("x-vault-wrap-ttl", "5m");
        let response = request.json(&serde_json::json!({ "secret_id": secret_id })).send().await.unwrap();
        let response: serde_json::Value = response.json().await.unwrap();
        response["wrap_info"]["token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_signed_token_in_a_file_logs_in_and_is_read_at_each_login() {
    let scene = Scene::start(None);
    let session = scene.session("[session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n");
    Session::refused(&session.log_in().await, "cannot read a secret from");
    assert_eq!(scene.secrets.faults().counts().get(Operation::Login), 0, "the server is not troubled with it");
    scene.put("jwt", signed("one").expose_secret());
    assert_eq!(session.log_in().await.unwrap().policies, ["ci"]);
    scene.put("jwt", signed("stranger").expose_secret());
    Session::refused(&session.log_in().await, "error validating token");
    scene.put("jwt", &format!("{}\n", signed("two").expose_secret()));
    session.log_in().await.unwrap();
    assert!(scene.path("jwt").exists());
}

#[tokio::test]
async fn an_expired_signed_token_is_not_sent() {
    let scene = Scene::start(None);
    let session = scene.session("[session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n");
    let claims = URL_SAFE_NO_PAD.encode("{\"exp\": 1000000000}");
    scene.put("jwt", &format!("eyJhbGciOiJub25lIn0.{claims}.c2ln"));
    let tried = session.log_in().await;
    assert!(matches!(tried, Err(LoginError::Clock { .. })), "{tried:?}");
    assert_eq!(scene.secrets.faults().counts().get(Operation::Login), 0);
}

#[tokio::test]
async fn a_deleted_token_file_serves_later_logins_until_a_new_one_appears() {
    let scene = Scene::start(None);
    let text = "[session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\nremove_after_reading = true\n";
    let session = scene.session(text);
    scene.put("jwt", signed("one").expose_secret());
    for _ in 0..2 {
        session.log_in().await.unwrap();
        assert!(!scene.path("jwt").exists());
    }
    scene.put("jwt", signed("stranger").expose_secret());
    Session::refused(&session.log_in().await, "error validating token");
    assert!(scene.session(text).source.prove().await.is_err(), "another process knows nothing of it");
}

#[tokio::test]
async fn a_pod_logs_in_with_its_service_account() {
    let scene = Scene::start(None);
    let session = scene.session("[session.web.kubernetes]\nrole = \"pods\"\nfile = \"FOLDER/token\"\n");
    scene.put("token", signed("pod").expose_secret());
    assert_eq!(session.log_in().await.unwrap().policies, ["pods"]);
    scene.put("token", signed("other pod").expose_secret());
    let tried = session.log_in().await;
    Session::refused(&tried, "the role must bind this service account");
    assert!(matches!(tried, Err(LoginError::Refused { .. })), "{tried:?}");
    // The server does not tell an invalid token from an outage of the cluster.
    scene.put("token", signed("stranger").expose_secret());
    let tried = session.log_in().await;
    Session::refused(&tried, "could not verify the service account at the Kubernetes API");
    assert!(matches!(tried, Err(LoginError::Unavailable { .. })), "{tried:?}");
    let other = scene.session("[session.web.kubernetes]\nrole = \"other\"\nfile = \"FOLDER/token\"\n");
    Session::refused(&other.log_in().await, "the server has no role of this name");
    let jwt = scene.session("[session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/token\"\n");
    let methods = [&session, &jwt].map(|session| session.config.sessions[0].login.auth_method);
    assert_eq!(methods, [AuthMethodKind::Kubernetes, AuthMethodKind::Other]);
    let usual = scene.session("[session.web.kubernetes]\nrole = \"pods\"\n");
    assert_eq!(usual.source.describe(), "the signed token in /var/run/secrets/kubernetes.io/serviceaccount/token");
}

#[tokio::test]
async fn a_role_id_and_a_secret_id_log_in() {
    let scene = Scene::start(None);
    let text = "[session.web.approle]\nrole_id_file = \"FOLDER/role\"\nsecret_id_file = \"FOLDER/secret\"\n";
    let session = scene.session(text);
    scene.put("role", "role-1\n");
    Session::refused(&session.log_in().await, "cannot read a secret from");
    scene.put("secret", "other");
    Session::refused(&session.log_in().await, "it may have ended, been used up, or belong to another role");
    scene.put("secret", "secret-1");
    assert_eq!(session.log_in().await.unwrap().policies, ["batch"]);
    assert!(scene.path("secret").exists());

    let removing = scene.session(&format!("{text}remove_secret_id_after_reading = true\n"));
    // A test login consumes nothing.
    let tried = one_shot_login::login(&removing.config.sessions[0]).await.unwrap();
    assert_eq!(tried.revoke().await.unwrap(), "the token is revoked");
    assert!(scene.path("secret").exists());
    for _ in 0..2 {
        removing.log_in().await.unwrap();
        assert!(!scene.path("secret").exists());
    }
    let without = scene.session("[session.web.approle]\nrole_id_file = \"FOLDER/role\"\n");
    Session::refused(&without.log_in().await, "set secret_id_file");
}

#[tokio::test]
async fn a_wrapped_secret_id_is_unwrapped_once_and_only_from_the_expected_path() {
    let scene = Scene::start(None);
    let text = |path: &str| {
        format!(
            "[session.web.approle]\nrole_id_file = \"FOLDER/role\"\nsecret_id_file = \"FOLDER/secret\"\n\
             secret_id_wrapping_path = \"{path}\"\n"
        )
    };
    scene.put("role", "role-1");
    let session = scene.session(&text("sys/wrapping/wrap"));
    scene.put("secret", &scene.wrapped("secret-1").await);
    for _ in 0..3 {
        session.log_in().await.unwrap();
    }
    let faults = scene.secrets.faults();
    assert_eq!((faults.counts().get(Operation::Unwrap), faults.counts().get(Operation::Login)), (1, 3));
    // A token that another process unwrapped counts as stolen.
    let late = scene.session(&text("sys/wrapping/wrap"));
    Session::refused(&late.log_in().await, "already unwrapped by someone else");
    // A new wrapping token is unwrapped again.
    scene.put("secret", &scene.wrapped("secret-2").await);
    session.log_in().await.unwrap();

    let elsewhere = scene.session(&text("auth/approle/role/web/secret-id"));
    scene.put("secret", &scene.wrapped("secret-1").await);
    let expected = "was created by \"sys/wrapping/wrap\", not by \"auth/approle/role/web/secret-id\"";
    Session::refused(&elsewhere.log_in().await, expected);
    assert_eq!(faults.counts().get(Operation::Unwrap), 2, "it is left closed");
    let error = one_shot_login::login(&session.config.sessions[0]).await.unwrap_err().to_string();
    assert!(error.contains("works only once"), "{error}");
    faults.go_away().await;
    Session::refused(&elsewhere.log_in().await, "cannot be unwrapped");
}

#[tokio::test]
async fn a_client_certificate_logs_in() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let scene = Scene::start(Some(ours.server(&["127.0.0.1"], Some(&clients))));
    let (certificate, key) = clients.leaf(&["agent"]);
    scene.put("agent.pem", &certificate.pem());
    scene.put("agent.key", &key.serialize_pem());
    let server = format!("ca_file = \"{}\"", ours.ca_file().display());
    let pair = "client_cert = \"FOLDER/agent.pem\"\nclient_key = \"FOLDER/agent.key\"\n";
    let mut sessions = vec![
        scene.session_at(&server, &format!("mount = \"certs\"\n[session.web.cert]\n{pair}role = \"fleet\"\n")),
        scene.session_at(&format!("{server}\n{pair}"), "mount = \"certs\"\n[session.web.cert]\n"),
    ];
    for session in &sessions {
        assert_eq!(session.log_in().await.unwrap().policies, ["fleet"]);
    }
    let text = format!("mount = \"certs\"\n[session.web.cert]\n{pair}role = \"other\"\n");
    sessions.push(scene.session_at(&server, &text));
    Session::refused(&sessions[2].log_in().await, "failed to match all constraints");
}

#[tokio::test]
async fn a_token_from_a_file_is_looked_up_and_never_revoked() {
    let scene = Scene::start(None);
    let session = scene.session("[session.web.token_file]\nfile = \"FOLDER/token\"\n");
    let token_in_file = scene.secrets.token(&role("given"));
    scene.put("token", token_in_file.expose_secret());
    let token = session.log_in().await.unwrap();
    assert_eq!(token.policies, ["given"]);
    assert!(token.lease.renewable && !token.lease.ttl.is_zero() && token.accessor.is_some());
    let tried = one_shot_login::login(&session.config.sessions[0]).await.unwrap();
    assert_eq!(tried.revoke().await.unwrap(), "the token was not created by this login and stays valid");
    let counts = scene.secrets.faults().counts();
    assert_eq!((counts.get(Operation::Login), counts.get(Operation::Revoke), counts.get(Operation::Lookup)), (0, 0, 2));
    let proof = session.source.prove().await.unwrap();
    assert!(matches!(proof, IdentityProof::Token(_)));
    assert!(!format!("{proof:?} {session:?}").contains(token_in_file.expose_secret()));

    scene.secrets.faults().revoke_all();
    Session::refused(&session.log_in().await, "put a new one there");
    scene.put("token", "a b");
    Session::refused(&session.log_in().await, "holds no token");
    scene.put("token", r#"{"token":"hvs.x","ttl":300}"#);
    Session::refused(&session.log_in().await, "a response-wrapped token has to be unwrapped first");
    std::fs::remove_file(scene.path("token")).unwrap();
    Session::refused(&session.log_in().await, "cannot read a secret from");
    let forever = scene.secrets.token(&Role { ttl: Duration::ZERO, ..role("root") });
    scene.put("token", forever.expose_secret());
    assert_eq!(session.log_in().await.unwrap().expires, None);
    assert!(Path::new(&scene.path("token")).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_from_a_file_with_a_limited_number_of_uses_is_refused() {
    let scene = Scene::start(None);
    let session = scene.session("[session.web.token_file]\nfile = \"FOLDER/token\"\n");
    let put_token = |num_uses: u64| {
        let token = scene.secrets.token(&Role { num_uses, ..role("given") });
        scene.put("token", token.expose_secret());
    };
    for (num_uses, expected) in [(3, "(2 left)"), (1, "(0 left)")] {
        put_token(num_uses);
        let tried = session.log_in().await;
        Session::refused(&tried, expected);
        Session::refused(&tried, "put a token without a limit of uses into the file");
        assert!(matches!(tried, Err(LoginError::Refused { .. })), "{tried:?}");
    }
    put_token(3);
    let config = scene.path("keyward.toml").display().to_string();
    let (code, _, error) = tokio::task::block_in_place(|| run(&["login", "--config", &config], &[]));
    assert!(code != 0 && error.contains("[KW-1307]"), "{code}: {error}");
    put_token(0);
    assert_eq!(session.log_in().await.unwrap().policies, ["given"]);
}
