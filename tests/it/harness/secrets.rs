//! An emulated Vault server, and clients of it.

use std::time::Duration;

use keyward_agent::identity::{IdentityProof, LoginFields, RequestedAudience, SignedToken};
use keyward_agent::login;
use keyward_agent::login::Login;
use keyward_agent::server_client;
use keyward_agent::server_client::ServerClient;
use keyward_emulators::secrets::{Role, Secrets, SecretsOptions};
use keyward_http::client;
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

/// An emulated Vault server with a driven clock that accepts any login as `dev`, and a client of it.
pub(crate) struct Bench {
    pub(crate) secrets: Secrets,
    pub(crate) upstream: ServerClient,
    pub(crate) clock: Clock,
    _tasks: TaskGroup,
}

impl Bench {
    pub(crate) fn new(role: Role) -> Self {
        let clock =
            Clock::Test(TestClock::starting_at(std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)));
        let mut tasks = TaskGroup::default();
        let secrets = Secrets::start(SecretsOptions::for_anyone(clock.clone(), "dev", role), &mut tasks).unwrap();
        // By Vault's texts, which say of a dead token that it is invalid; tests of OpenBao's choose those.
        secrets.faults().respond_as_openbao(false);
        let upstream = ServerClient::build(&options(secrets.url())).unwrap();
        Self { secrets, upstream, clock, _tasks: tasks }
    }

    pub(crate) fn login(&self) -> Login {
        login(&self.upstream)
    }
}

/// Returns options of a server at a URL, with the default time limits.
pub(crate) fn options(url: &str) -> server_client::ServerClientOptions {
    at(client::ServerAddress::Url(url.parse().unwrap()))
}

pub(crate) fn at(address: client::ServerAddress) -> server_client::ServerClientOptions {
    server_client::ServerClientOptions {
        name: "test".to_owned(),
        kind: server_client::ServerKind::Vault,
        client: client::ClientOptions {
            address,
            tls: client::TlsOptions::default(),
            proxy: client::ProxyMode::Environment,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        },
        login_timeout: Duration::from_secs(90),
    }
}

pub(crate) fn login(upstream: &ServerClient) -> Login {
    Login::new(upstream.clone(), login_options())
}

pub(crate) fn login_options() -> login::LoginOptions {
    login::LoginOptions {
        role: "dev".to_owned(),
        mount: "azure".to_owned(),
        namespace: None,
        wrap_ttl: None,
        auth_method: login::AuthMethodKind::Other,
    }
}

/// Returns an empty proof, for servers that accept any login.
pub(crate) fn proof(jwt: &str) -> IdentityProof {
    let jwt = SecretString::from(jwt);
    let audience = Some(RequestedAudience::Azure("test".to_owned()));
    IdentityProof::Signed(Box::new(SignedToken { jwt, fields: LoginFields::default(), claims: None, audience }))
}
