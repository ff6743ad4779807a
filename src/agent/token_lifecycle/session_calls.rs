//! The upstream calls of a session (login, renewal, look-up), each with a time limit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::current_token::CurrentToken;
use super::proof_cache::ProofCache;
use crate::agent::identity::{IdentityProof, IdentitySource};
use crate::agent::login::{Login, LoginError};
use crate::agent::server_client::{CallError, LookupResponse, RenewResponse};
use crate::agent::token::{Generation, Token};
use crate::clock::Clock;
use crate::error_code::ErrorCode;

/// A session's calls in flight: at most one login or renewal, and one look-up.
pub(super) struct SessionCalls {
    identity: Arc<dyn IdentitySource>,
    login: Login,
    clock: Clock,
    proof_cache: ProofCache,
    login_call: Option<Call<LoginOutcome>>,
    renewal: Option<Call<Result<RenewResponse, CallError>>>,
    lookup: Option<Call<(Generation, Result<LookupResponse, CallError>)>>,
}

/// Result of a call.
#[derive(Debug)]
pub(super) enum CompletedCall {
    Login(Result<Token, LoginError>),
    Renewal(Result<RenewResponse, CallError>),
    /// Result of a look-up, and the generation of the token.
    Lookup(Generation, Result<LookupResponse, CallError>),
}

type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The token or an error, and the proof that was used, if there was one.
type LoginOutcome = (Result<Token, LoginError>, Option<Arc<IdentityProof>>);

impl SessionCalls {
    pub(super) fn new(identity: Box<dyn IdentitySource>, login: Login, clock: Clock) -> Self {
        let identity = identity.into();
        let proof_cache = ProofCache::default();
        Self { identity, login, clock, proof_cache, login_call: None, renewal: None, lookup: None }
    }

    /// Returns the next result; waits forever while no call is in flight.
    pub(super) async fn next(&mut self) -> CompletedCall {
        tokio::select! {
            biased;
            (result, proof) = wait_for(&mut self.login_call) => {
                self.login_call = None;
                self.proof_cache.update(&result, proof, self.clock.now());
                CompletedCall::Login(result)
            }
            result = wait_for(&mut self.renewal) => {
                self.renewal = None;
                CompletedCall::Renewal(result)
            }
            (generation, result) = wait_for(&mut self.lookup) => {
                self.lookup = None;
                CompletedCall::Lookup(generation, result)
            }
        }
    }

    /// Returns true while a login or a renewal is in flight.
    pub(super) const fn is_busy(&self) -> bool {
        self.login_call.is_some() || self.renewal.is_some()
    }

    /// Returns true while a renewal is in flight.
    pub(super) const fn is_renewing(&self) -> bool {
        self.renewal.is_some()
    }

    /// Returns true while a look-up is in flight.
    pub(super) const fn is_looking_up(&self) -> bool {
        self.lookup.is_some()
    }

    /// Returns true while a call is in flight whose response will show whether the server knows the token.
    pub(super) const fn asks_about_token(&self) -> bool {
        self.renewal.is_some() || self.lookup.is_some()
    }

    /// Logs in after `before_login` is done, with the proof of the last attempt if the server has not verified it.
    pub(super) fn start_login(&mut self, before_login: impl Future<Output = ()> + Send + 'static) {
        let (identity, login, clock) = (Arc::clone(&self.identity), self.login.clone(), self.clock.clone());
        let proof = self.proof_cache.get(clock.now());
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
        self.login_call = Some(Box::pin(async move {
            tokio::time::timeout(LOGIN_LIMIT, attempt).await.unwrap_or_else(|_| {
                let message = format!("the login did not complete within {} s at {server}", LOGIN_LIMIT.as_secs());
                let code = Some(ErrorCode::ServerTimeout);
                (Err(LoginError::Unavailable { message, hint: None, retry_after: None, code }), None)
            })
        }));
    }

    /// Renews a token.
    pub(super) fn start_renewal(&mut self, token: &Arc<Token>) {
        let (login, token) = (self.login.clone(), Arc::clone(token));
        self.renewal = Some(Box::pin(async move {
            let call = login.server().renew_self(&token.secret, login.options().namespace.as_deref());
            bounded(&login, call).await
        }));
    }

    /// Looks a token up, unless a call in flight will show the same, or the token supports no look-up.
    pub(super) fn start_lookup(&mut self, current: &CurrentToken) {
        if self.asks_about_token() || !current.supports_lookup() {
            return;
        }
        let (login, token) = (self.login.clone(), Arc::clone(&current.token));
        self.lookup = Some(Box::pin(async move {
            let call = login.server().lookup_self(&token.secret, login.options().namespace.as_deref());
            (token.generation, bounded(&login, call).await)
        }));
    }

    /// Drops a look-up in flight: its response would be older than what is known.
    pub(super) fn cancel_lookup(&mut self) {
        self.lookup = None;
    }

    /// Drops the calls about a token that has ended.
    pub(super) fn cancel_token_calls(&mut self) {
        (self.lookup, self.renewal) = (None, None);
    }

    /// Drops all calls in flight; returns the login, which may revoke.
    pub(super) fn into_login(self) -> Login {
        self.login
    }
}

/// Waits for a call; never returns if there is none.
async fn wait_for<T>(slot: &mut Option<Call<T>>) -> T {
    match slot {
        Some(call) => call.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn bounded<T>(login: &Login, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let server = login.server().address();
    let late = |_| Err(CallError::TimedOut { server: server.to_owned(), after: CALL_LIMIT });
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(late)
}

// Above the limits of identity sources (90 s), logins (90 s) and calls (15 s) themselves.
const LOGIN_LIMIT: Duration = Duration::from_mins(4);
const CALL_LIMIT: Duration = Duration::from_secs(30);
