//! The upstream calls of a session (login, renewal, look-up), each with a time limit.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::status::ActivityKind;
use tokio::sync::watch;

use super::credential_files::CredentialFiles;
use super::current_token::CurrentToken;
use super::proof_cache::ProofCache;
use crate::identity::{IdentityProof, IdentitySource, PROOF_TIME_LIMIT};
use crate::login::{Login, LoginError};
use crate::server_client::{CallError, LookupResponse, RenewResponse};
use crate::token::{Generation, Token};

/// Generation of the token that was looked up, and the result.
pub(super) type LookupOutcome = (Generation, Result<LookupResponse, CallError>);

/// A session's calls in flight: at most one login or renewal, and one look-up.
pub(super) struct SessionCalls {
    identity: Arc<dyn IdentitySource>,
    login: Login,
    clock: Clock,
    proof_cache: ProofCache,
    files: CredentialFiles,
    login_call: Option<Call<LoginOutcome>>,
    /// Phase of the login in flight, which its future changes.
    login_phase: watch::Sender<Option<CallInFlight>>,
    renewal: Option<(CallInFlight, Call<Result<RenewResponse, CallError>>)>,
    lookup: Option<(CallInFlight, Call<LookupOutcome>)>,
    /// Time of issue and expiry of the last proof, where it states them.
    proof_times: ProofTimes,
}

/// A call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallInFlight {
    pub(super) kind: ActivityKind,
    pub(super) since: ClockReading,
    /// Time limit of the call.
    pub(super) deadline: ClockReading,
}

/// Time of issue and expiry of an identity token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProofTimes {
    pub(super) issued: Option<SystemTime>,
    pub(super) expires: Option<SystemTime>,
}

/// Result of a call.
#[derive(Debug)]
pub(super) enum CompletedCall {
    Login(Result<Token, LoginError>),
    /// Result of a renewal, and when it was sent.
    Renewal(ClockReading, Result<RenewResponse, CallError>),
    /// Result of a look-up, and when it was sent.
    Lookup(ClockReading, LookupOutcome),
}

type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The token or an error, and the proof that was used, if there was one.
type LoginOutcome = (Result<Token, LoginError>, Option<Arc<IdentityProof>>);

impl SessionCalls {
    pub(super) fn new(
        identity: Box<dyn IdentitySource>,
        login: Login,
        connection_files: Vec<PathBuf>,
        clock: Clock,
    ) -> Self {
        let files = CredentialFiles::new(identity.files().into_iter().chain(connection_files).collect());
        let identity = identity.into();
        let proof_cache = ProofCache::default();
        let login_phase = watch::Sender::default();
        let proof_times = ProofTimes::default();
        let login_call = None;
        let renewal = None;
        let lookup = None;
        Self { identity, login, clock, proof_cache, files, login_call, login_phase, renewal, lookup, proof_times }
    }

    /// Returns the files that a login reads.
    pub(super) fn files(&self) -> CredentialFiles {
        self.files.clone()
    }

    /// Returns a receiver that is notified when a login in flight enters its next phase.
    pub(super) fn login_phases(&self) -> watch::Receiver<Option<CallInFlight>> {
        self.login_phase.subscribe()
    }

    /// Returns the call in flight, a look-up only if there is no other.
    pub(super) fn in_flight(&self) -> Option<CallInFlight> {
        let login = self.login_call.as_ref().and_then(|_| *self.login_phase.borrow());
        let renewal = self.renewal.as_ref().map(|(call, _)| *call);
        login.or(renewal).or_else(|| self.lookup.as_ref().map(|(call, _)| *call))
    }

    /// Returns time of issue and expiry of the last identity token.
    pub(super) const fn proof_times(&self) -> ProofTimes {
        self.proof_times
    }

    /// Returns the next result; waits forever while no call is in flight.
    pub(super) async fn next(&mut self) -> CompletedCall {
        tokio::select! {
            biased;
            (result, proof) = wait_for(&mut self.login_call) => {
                self.login_call = None;
                if let Some(IdentityProof::Signed(signed)) = proof.as_deref() {
                    let claims = signed.claims.as_ref();
                    self.proof_times = ProofTimes {
                        issued: claims.and_then(|claims| claims.iat),
                        expires: claims.and_then(|claims| claims.exp),
                    };
                }
                self.proof_cache.update(&result, proof, self.clock.now());
                CompletedCall::Login(result)
            }
            (since, result) = wait_for_call(&mut self.renewal) => {
                self.renewal = None;
                CompletedCall::Renewal(self.clock.now().rebase(since), result)
            }
            (since, outcome) = wait_for_call(&mut self.lookup) => {
                self.lookup = None;
                CompletedCall::Lookup(self.clock.now().rebase(since), outcome)
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
    pub(super) const fn has_token_call(&self) -> bool {
        self.renewal.is_some() || self.lookup.is_some()
    }

    /// Logs in after `before_login` is done, with the proof of the last attempt if the server has not verified it.
    pub(super) fn start_login(&mut self, before_login: impl Future<Output = ()> + Send + 'static) {
        let identity = Arc::clone(&self.identity);
        let login = self.login.clone();
        let clock = self.clock.clone();
        let proof = self.proof_cache.get(clock.now());
        let server = login.server().address().to_owned();
        let files = self.files.clone();
        let phase = self.login_phase.clone();
        let phase_clock = self.clock.clone();
        let enter = move |kind, limit| {
            let since = phase_clock.now();
            phase.send_replace(Some(CallInFlight { kind, since, deadline: since + limit }));
        };
        let (first, limit) = if proof.is_some() {
            (ActivityKind::Login, login.server().login_timeout())
        } else {
            (ActivityKind::Proof, PROOF_TIME_LIMIT)
        };
        enter(first, limit);
        let attempt = async move {
            before_login.await;
            files.record().await;
            let proof = match proof {
                Some(proof) => proof,
                None => match identity.prove().await {
                    Ok(proof) => {
                        enter(ActivityKind::Login, login.server().login_timeout());
                        Arc::new(proof)
                    }
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
        let login = self.login.clone();
        let token = Arc::clone(token);
        let call = Box::pin(async move {
            let call = login.server().renew_self(&token.secret, login.options().namespace.as_deref());
            with_timeout(&login, call).await
        });
        self.renewal = Some((self.describe_call(ActivityKind::Renewal), call));
    }

    /// Looks a token up, unless a call in flight will show the same, or the token supports no look-up.
    pub(super) fn start_lookup(&mut self, current: &CurrentToken) {
        if self.has_token_call() || !current.supports_lookup() {
            return;
        }
        let login = self.login.clone();
        let token = Arc::clone(&current.token);
        let call = Box::pin(async move {
            let call = login.server().lookup_self(&token.secret, login.options().namespace.as_deref());
            (token.generation, with_timeout(&login, call).await)
        });
        self.lookup = Some((self.describe_call(ActivityKind::Lookup), call));
    }

    /// Describes a renewal or look-up that starts now.
    fn describe_call(&self, kind: ActivityKind) -> CallInFlight {
        let since = self.clock.now();
        CallInFlight { kind, since, deadline: since + self.login.server().call_timeout().min(CALL_LIMIT) }
    }

    /// Drops a look-up in flight: its response would be older than what is known.
    pub(super) fn cancel_lookup(&mut self) {
        self.lookup = None;
    }

    /// Drops the calls about a token that has ended.
    pub(super) fn cancel_token_calls(&mut self) {
        (self.lookup, self.renewal) = (None, None);
    }

    /// Waits at most `limit` for a login that is in flight at the server, and returns its token. One that has not reached the server
    /// is dropped.
    pub(super) async fn finish_login(&mut self, limit: Duration) -> Option<Token> {
        let phase = *self.login_phase.borrow();
        let is_sent = phase.is_some_and(|call| call.kind == ActivityKind::Login);
        let call = self.login_call.take().filter(|_| is_sent)?;
        let (result, _) = tokio::time::timeout(limit, call).await.ok()?;
        result.ok()
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

/// Waits for a call like [`wait_for`]; also returns when it was sent.
async fn wait_for_call<T>(slot: &mut Option<(CallInFlight, Call<T>)>) -> (ClockReading, T) {
    match slot {
        Some((in_flight, call)) => (in_flight.since, call.as_mut().await),
        None => std::future::pending().await,
    }
}

async fn with_timeout<T>(login: &Login, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let server = login.server().address();
    let timed_out = |_| Err(CallError::TimedOut { server: server.to_owned(), after: CALL_LIMIT });
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(timed_out)
}

// Above the limits of identity sources (90 s), logins (90 s) and calls (15 s) themselves.
const LOGIN_LIMIT: Duration = Duration::from_mins(4);
const CALL_LIMIT: Duration = Duration::from_secs(30);
