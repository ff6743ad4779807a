//! The three things that a keeper asks of the world, each with a bound on its time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::identity::{IdentityProof, IdentitySource};
use crate::agent::login::{Login, LoginError};
use crate::agent::server_client::{CallError, LookedUp, Renewed};
use crate::agent::token::{Generation, Token};
use crate::clock::Clock;

/// A call under way.
pub(super) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a login or a renewal gave.
#[derive(Debug)]
pub(super) enum Done {
    /// With the proof that it was made with, where there was one.
    Login(Result<Token, LoginError>, Option<Arc<IdentityProof>>),
    Renewal(Result<Renewed, CallError>),
}

/// What a look at a token gave, and which token that was.
pub(super) type Look = (Generation, Result<LookedUp, CallError>);

/// Waits for a call that may not be there.
pub(super) async fn of<T>(slot: &mut Option<Call<T>>) -> T {
    match slot {
        Some(call) => call.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Logs in, after `first` is done, with the proof that is given or else with a new one.
pub(super) fn login(
    identity: Arc<dyn IdentitySource>,
    login: Login,
    clock: Clock,
    first: impl Future<Output = ()> + Send + 'static,
    proof: Option<Arc<IdentityProof>>,
) -> Call<Done> {
    let server = login.upstream().address().to_owned();
    let attempt = async move {
        first.await;
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
            let message = format!("no end of it within {} s, at {server}", LOGIN_LIMIT.as_secs());
            (Err(LoginError::Unavailable { message, hint: None, retry_after: None }), None)
        });
        Done::Login(result, proof)
    })
}

/// Asks the server to renew a token.
pub(super) fn renew(login: Login, token: Arc<Token>) -> Call<Done> {
    Box::pin(async move {
        let call = login.upstream().renew_self(&token.secret, login.options().namespace.as_deref());
        Done::Renewal(bounded(&login, call).await)
    })
}

/// Asks the server about a token.
pub(super) fn look(login: Login, token: Arc<Token>) -> Call<Look> {
    Box::pin(async move {
        let call = login.upstream().lookup_self(&token.secret, login.options().namespace.as_deref());
        (token.generation, bounded(&login, call).await)
    })
}

async fn bounded<T>(login: &Login, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let server = login.upstream().address();
    let late = |_| Err(CallError::TimedOut { server: server.to_owned(), after: CALL_LIMIT });
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(late)
}

/// Bounds above those that identity sources (90 s), logins (90 s) and calls (15 s) keep by themselves.
const LOGIN_LIMIT: Duration = Duration::from_mins(4);
const CALL_LIMIT: Duration = Duration::from_secs(30);
