//! One login without an agent: for a trial, for scripts, and for `check --online`.

use std::time::Duration;

use http::Method;

use super::error_codes;
use crate::agent::identity;
use crate::agent::login::{Login, LoginError};
use crate::agent::server_client::ServerClient;
use crate::agent::token::Token;
use crate::clock::Clock;
use crate::config::Session;
use crate::error_code::ErrorCode;
use crate::http::client::{self, ServerAddress, TransportError};

/// Result of one login.
#[derive(Debug)]
pub struct LoggedIn {
    /// Description of the identity source.
    pub identity: String,
    /// The token.
    pub token: Token,
    upstream: ServerClient,
    namespace: Option<String>,
    /// True if the login created the token, so that it may be revoked.
    created_token: bool,
}

/// Logs the session in once. Nothing that can be used once is used up: no file is removed, and no wrapping opened.
///
/// # Errors
/// The source gave no proof, or the server no token.
pub async fn login(session: &Session) -> Result<LoggedIn, OneShotError> {
    let upstream = ServerClient::build(&session.upstream).map_err(|error| OneShotError::Local(error.into()))?;
    let namespace = session.login.namespace.as_deref();
    let method = without_side_effects(&session.identity).map_err(OneShotError::Local)?;
    let source = method.build(Clock::System, &upstream, namespace).map_err(LoginError::NoProof)?;
    let proof = source.prove().await.map_err(LoginError::NoProof)?;
    let login = Login::new(upstream.clone(), session.login.clone());
    let token = login.login(&proof, &Clock::System).await?;
    let created_token = !matches!(method, identity::IdentityMethod::TokenFile(_));
    let namespace = session.login.namespace.clone();
    Ok(LoggedIn { identity: source.describe(), token, upstream, namespace, created_token })
}

/// Returns the same method without its one-time steps, such as the removal of a file.
fn without_side_effects(method: &identity::IdentityMethod) -> anyhow::Result<identity::IdentityMethod> {
    let mut method = method.clone();
    match &mut method {
        identity::IdentityMethod::Jwt(options) => options.remove = false,
        identity::IdentityMethod::AppRole(options) if options.wrapping_path.is_some() => {
            anyhow::bail!("cannot try a login: it would unwrap the secret id, which works only once")
        }
        identity::IdentityMethod::AppRole(options) => options.remove_secret_id = false,
        identity::IdentityMethod::Cloud(_)
        | identity::IdentityMethod::Certificate
        | identity::IdentityMethod::TokenFile(_) => {}
    }
    Ok(method)
}

impl LoggedIn {
    /// The server, as it was logged in to.
    pub(super) const fn upstream(&self) -> &ServerClient {
        &self.upstream
    }

    /// Revokes the token if the login created it; returns the outcome for people.
    ///
    /// # Errors
    /// The server's error.
    pub async fn revoke(&self) -> Result<&'static str, String> {
        if !self.created_token {
            return Ok("the token is another's, and lives on");
        }
        let revoked = self.upstream.revoke_self(&self.token.secret, self.namespace.as_deref()).await;
        revoked
            .map(|()| "the token is revoked")
            .map_err(|error| ErrorCode::tag(Some(ErrorCode::TokenNotRevoked), &error.to_string()))
    }
}

/// Why one login gave no token.
#[derive(Debug, thiserror::Error)]
pub enum OneShotError {
    /// A file that the session names cannot be used.
    #[error(transparent)]
    Local(anyhow::Error),
    /// The source or the server.
    #[error(transparent)]
    Login(#[from] LoginError),
}

impl OneShotError {
    /// Returns the code for operators.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Local(error) => error_codes::find(error),
            Self::Login(error) => error.code(),
        }
    }
}

/// One step of an online check.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct CheckStep {
    /// The part of the configuration: `session` or `gateway`.
    pub part: &'static str,
    /// The session's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Name of the step: `dns`, `server`, `identity and login`, `revocation`; of the gateway `dns`, `platform`, `platform token`.
    pub step: &'static str,
    /// True if the step succeeded.
    pub ok: bool,
    /// Result for people, or the error.
    pub found: String,
}

impl CheckStep {
    /// The part in words: `session web`, `gateway`.
    pub(crate) fn subject(&self) -> String {
        self.session.as_ref().map_or_else(|| self.part.to_owned(), |name| format!("{} {name}", self.part))
    }
}

/// Tries each step of a session: the server's name, a connection to it, the identity source, and a login that is revoked
/// at once. Later steps are left out once one has failed.
pub(crate) async fn check_online(session: &Session) -> Vec<CheckStep> {
    let mut steps = Vec::new();
    let mut note = |step, result: Result<String, String>| {
        let ok = result.is_ok();
        let found = result.unwrap_or_else(|error| error);
        steps.push(CheckStep { part: "session", session: Some(session.name.clone()), step, ok, found });
        ok
    };
    let fine = note("dns", resolve(&session.upstream.client).await) && note("server", probe_server(session).await);
    if fine {
        match login(session).await {
            Ok(logged_in) => {
                let policies = match logged_in.token.policies.as_slice() {
                    [] => "no policies".to_owned(),
                    policies => format!("policies {}", policies.join(", ")),
                };
                note("identity and login", Ok(format!("{}; {policies}", logged_in.identity)));
                let revoked = logged_in.revoke().await;
                note("revocation", revoked.map(str::to_owned));
            }
            Err(error) => {
                let code = error.code();
                note("identity and login", Err(ErrorCode::tag(code, &format!("{:#}", anyhow::Error::from(error)))));
            }
        }
    }
    steps
}

/// Resolves the host to connect to: the server, or the proxy in front of it, which resolves the server's name itself.
pub(super) async fn resolve(client: &client::ClientOptions) -> Result<String, String> {
    let ServerAddress::Url(url) = &client.address else { return Ok("a unix socket needs no name".to_owned()) };
    if let Some((host, port)) = client.proxy_endpoint(url) {
        let found = resolve_host(&host, port).await.map_err(|error| format!("the proxy {error}"))?;
        return Ok(format!("the proxy {host} is {found}; it looks the server's name up itself"));
    }
    resolve_host(url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443)).await
}

async fn resolve_host(host: &str, port: u16) -> Result<String, String> {
    let looked_up = tokio::net::lookup_host((host.trim_matches(['[', ']']), port));
    let found = tokio::time::timeout(Duration::from_secs(10), looked_up).await;
    let unknown = |text: String| ErrorCode::tag(Some(ErrorCode::ServerNameUnknown), &text);
    let found = found.map_err(|_| unknown(format!("{host}: no answer within 10 s")))?;
    let found = found.map_err(|error| unknown(format!("{host}: {error}")))?;
    let addresses: Vec<String> = found.map(|address| address.ip().to_string()).collect();
    if addresses.is_empty() { Err(unknown(format!("{host} has no address"))) } else { Ok(addresses.join(", ")) }
}

/// Accepts any HTTP response: the login then shows if the server is sealed or a standby.
async fn probe_server(session: &Session) -> Result<String, String> {
    let client = session.upstream.client.build().map_err(|error| error_codes::format(&error.into()))?;
    let response: Result<_, TransportError> = client.send(client.request(Method::GET, "v1/sys/health")).await;
    let response =
        response.map_err(|error| ErrorCode::tag(Some(error.code()), &format!("{}: {error}", client.server())))?;
    Ok(format!("{} answers (health {})", client.server(), response.status.as_u16()))
}
