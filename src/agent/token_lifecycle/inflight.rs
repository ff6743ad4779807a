//! The three upstream calls of a token manager (login, renewal, look-up), each with a time limit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::identity::{IdentityProof, IdentitySource};
use crate::agent::login::{Login, LoginError};
use crate::agent::server_client::{CallError, LookupResponse, RenewResponse};
use crate::agent::token::{Generation, Token};
use crate::clock::Clock;
use crate::error_code::ErrorCode;

/// A call in flight.
pub(super) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Result of a login or a renewal.
#[derive(Debug)]
pub(super) enum Completed {
    /// The token or an error, and the proof that was used, if there was one.
    Login(Result<Token, LoginError>, Option<Arc<IdentityProof>>),
    Renewal(Result<RenewResponse, CallError>),
}

/// Result of a look-up, and the token's generation.
pub(super) type LookupResult = (Generation, Result<LookupResponse, CallError>);

/// Waits for a call; never returns if there is none.
pub(super) async fn wait_for<T>(slot: &mut Option<Call<T>>) -> T {
    match slot {
        Some(call) => call.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Logs in after `first` is done, with `proof` or else with a new one.
pub(super) fn login(
    identity: Arc<dyn IdentitySource>,
    login: Login,
    clock: Clock,
    before_login: impl Future<Output = ()> + Send + 'static,
    proof: Option<Arc<IdentityProof>>,
) -> Call<Completed> {
    let server = login.server().address().to_owned();
    let attempt = async move {
        before_login.await;
        let proof = match proof {
            Some(proof) => proof,
            None => match identity.prove().await {
                Ok(proof) => Arc::new(proof),
                Err(error) => return (Err(LoginError::from(error)), None),
            },
        };
        (login.login(&proof, &clock).await, Some(proof))
    };
    Box::pin(async move {
        let (result, proof) = tokio::time::timeout(LOGIN_LIMIT, attempt).await.unwrap_or_else(|_| {
            let message = format!("the login did not complete within {} s at {server}", LOGIN_LIMIT.as_secs());
            let code = Some(ErrorCode::ServerTimeout);
            (Err(LoginError::Unavailable { message, hint: None, retry_after: None, code }), None)
        });
        Completed::Login(result, proof)
    })
}

/// Renews a token.
pub(super) fn renew(login: Login, token: Arc<Token>) -> Call<Completed> {
    Box::pin(async move {
        let call = login.server().renew_self(&token.secret, login.options().namespace.as_deref());
        Completed::Renewal(bounded(&login, call).await)
    })
}

/// Looks a token up.
pub(super) fn lookup(login: Login, token: Arc<Token>) -> Call<LookupResult> {
    Box::pin(async move {
        let call = login.server().lookup_self(&token.secret, login.options().namespace.as_deref());
        (token.generation, bounded(&login, call).await)
    })
}

async fn bounded<T>(login: &Login, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let server = login.server().address();
    let late = |_| Err(CallError::TimedOut { server: server.to_owned(), after: CALL_LIMIT });
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(late)
}

// Above the limits of identity sources (90 s), logins (90 s) and calls (15 s) themselves.
const LOGIN_LIMIT: Duration = Duration::from_mins(4);
const CALL_LIMIT: Duration = Duration::from_secs(30);
