//! One login without an agent: for a trial, for scripts, and for `check --online`.

use keyward_agent::identity::{self, IdentityProof};
use keyward_agent::login::{Login, LoginError};
use keyward_agent::server_client::{CallError, ServerClient};
use keyward_agent::token::Token;
use keyward_config::Session;
use keyward_machine::clock::Clock;
use keyward_telemetry::error_code::ErrorCode;

use super::error_codes;

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

/// Proof of a session's identity, and what a login needs besides.
#[derive(Debug)]
pub(crate) struct ProvenIdentity {
    /// Description of the identity source.
    pub source: String,
    /// The proof.
    pub proof: IdentityProof,
    upstream: ServerClient,
    created_token: bool,
}

/// Gets a proof of the session's identity, with one attempt or with the source's retries. Has no one-time effects: removes
/// no file and unwraps no token.
pub(crate) async fn prove(session: &Session, once: bool) -> Result<ProvenIdentity, OneShotError> {
    let upstream = ServerClient::build(&session.upstream).map_err(|error| OneShotError::Local(error.into()))?;
    let namespace = session.login.namespace.as_deref();
    let method = without_side_effects(&session.identity).map_err(OneShotError::Local)?;
    let source = if once {
        method.build_for_one_attempt(Clock::System, &upstream, namespace)
    } else {
        method.build(Clock::System, &upstream, namespace)
    };
    let source = source.map_err(LoginError::NoProof)?;
    let proof = source.prove().await.map_err(LoginError::NoProof)?;
    let created_token = !matches!(method, identity::IdentityMethod::TokenFile(_));
    Ok(ProvenIdentity { source: source.describe(), proof, upstream, created_token })
}

/// Logs the session in once. Leaves one-time secrets as they are: removes no file and unwraps no token.
pub async fn login(session: &Session) -> Result<LoggedIn, OneShotError> {
    prove(session, false).await?.login(session).await
}

impl ProvenIdentity {
    /// Logs the session in by the proof.
    pub(crate) async fn login(self, session: &Session) -> Result<LoggedIn, OneShotError> {
        let Self { source, proof, upstream, created_token } = self;
        let token = Login::new(upstream.clone(), session.login.clone()).login(&proof, &Clock::System).await?;
        let namespace = session.login.namespace.clone();
        Ok(LoggedIn { identity: source, token, upstream, namespace, created_token })
    }
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
        | identity::IdentityMethod::Aws(_)
        | identity::IdentityMethod::Gcp(_)
        | identity::IdentityMethod::CiJob(_)
        | identity::IdentityMethod::WorkloadApi(_)
        | identity::IdentityMethod::Certificate { .. }
        | identity::IdentityMethod::TokenFile(_) => {}
    }
    Ok(method)
}

impl LoggedIn {
    /// The server, as it was logged in to.
    pub(super) const fn upstream(&self) -> &ServerClient {
        &self.upstream
    }

    /// The session's namespace.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Revokes the token if the login created it; returns the outcome for people.
    pub async fn revoke(&self) -> Result<&'static str, String> {
        let revoked = self.try_revoke().await;
        revoked.map_err(|error| ErrorCode::tag(Some(ErrorCode::TokenNotRevoked), &error.to_string()))
    }

    /// Revokes the token like [`LoggedIn::revoke`].
    pub(crate) async fn try_revoke(&self) -> Result<&'static str, CallError> {
        if !self.created_token {
            return Ok("the token was not created by this login and stays valid");
        }
        self.upstream.revoke_self(&self.token.secret, self.namespace.as_deref()).await?;
        Ok("the token is revoked")
    }
}

/// Reason why one login gave no token.
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
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Local(error) => error_codes::find(error),
            Self::Login(error) => error.code(),
        }
    }
}
