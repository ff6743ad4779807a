//! Logs a session in: identity proof -> login request -> token.

mod classify;

use std::time::{Duration, SystemTime};

use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;

use crate::identity::{IdentityError, IdentityProof, PreflightVerdict, SignedToken, preflight};
use crate::server_client::{CallError, LoginRequest, LoginResponse, ServerClient, ServerKind};
use crate::token::{self, Generation, Token};

pub use classify::{LoginFailureKind, classify};

/// Options of a session's login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOptions {
    /// Role on the server; empty for methods without roles.
    pub role: String,
    /// Path of the auth method without `auth/` and slashes, such as `azure`; for Consul the method's name.
    pub mount: String,
    /// Namespace on the server.
    pub namespace: Option<String>,
    /// Time to live of a wrapped response; `None` for a login that is not wrapped.
    pub wrap_ttl: Option<Duration>,
    /// Kind of the auth method.
    pub auth_method: AuthMethodKind,
}

/// Kind of auth method, as far as it decides the meaning of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethodKind {
    /// `kubernetes`, which refuses a token in the same way while it cannot reach the cluster's API.
    Kubernetes,
    /// Any other.
    Other,
}

/// Logs one session in to its server.
#[derive(Debug, Clone)]
pub struct Login {
    server: ServerClient,
    options: LoginOptions,
}

impl Login {
    /// Creates a login at a server.
    pub const fn new(server: ServerClient, options: LoginOptions) -> Self {
        Self { server, options }
    }

    /// Returns the login's options.
    pub(crate) const fn options(&self) -> &LoginOptions {
        &self.options
    }

    /// Returns the client of the server.
    pub(crate) const fn server(&self) -> &ServerClient {
        &self.server
    }

    /// Checks the proof and sends one login. The lease of the token counts from the request: a slow response must not make it
    /// longer than it is on the server.
    ///
    /// A proof that is a token of the server itself is only looked up.
    ///
    /// # Errors
    /// The variant shows if a retry may help; it has a message and a hint for operators, and never holds the proof.
    pub async fn login(&self, proof: &IdentityProof, clock: &Clock) -> Result<Token, LoginError> {
        let signed = match proof {
            IdentityProof::Signed(signed) => Some(&**signed),
            _ => None,
        };
        let claims = signed.and_then(|signed| signed.claims.as_ref());
        let sent = clock.now();
        let warnings = signed.map_or_else(|| Ok(Vec::new()), |signed| check_proof(signed, sent))?;
        for warning in &warnings {
            tracing::warn!(event = "login.proof.suspect", server = self.server.name(), "{warning}");
        }
        let response = self.send(proof).await;
        let now = clock.now();
        let response =
            response.map_err(|error| match (proof, self.to_login_error(&error, claims, &warnings, now)) {
                (IdentityProof::Token(_), LoginError::Refused { message, hint, retry_after }) => {
                    LoginError::Refused { message, hint: classify::token_file_hint(&error).or(hint), retry_after }
                }
                (_, error) => error,
            })?;
        let ttl = response.lease.ttl;
        // The wall clock may have been set during the call; the time of the request is kept by BOOTTIME.
        let obtained = now.rebase(sent);
        Ok(Token {
            secret: response.secret,
            accessor: response.accessor,
            lease: response.lease,
            kind: response.kind,
            policies: response.policies,
            obtained,
            expires: (!ttl.is_zero()).then(|| obtained + ttl),
            generation: Generation::new(),
        })
    }

    async fn send(&self, proof: &IdentityProof) -> Result<LoginResponse, CallError> {
        let LoginOptions { role, mount, namespace, wrap_ttl, .. } = &self.options;
        let namespace = namespace.as_deref();
        let wrap_ttl = *wrap_ttl;
        match proof {
            IdentityProof::Signed(signed) if self.server.kind() == ServerKind::Consul => {
                self.server.consul_login(mount, namespace, &signed.jwt).await
            }
            IdentityProof::Signed(signed) => {
                let fields = &signed.fields;
                let body = LoginRequest {
                    role,
                    jwt: &signed.jwt,
                    subscription_id: fields.subscription_id.as_deref(),
                    resource_group_name: fields.resource_group_name.as_deref(),
                    vm_name: fields.vm_name.as_deref(),
                    vmss_name: fields.vmss_name.as_deref(),
                    resource_id: fields.resource_id.as_deref(),
                };
                self.server.login(mount, namespace, wrap_ttl, &body).await
            }
            IdentityProof::CallerIdentity(signed) => {
                self.server.login_by_caller_identity(mount, namespace, wrap_ttl, role, signed).await
            }
            IdentityProof::AppRole { role_id, secret_id } => {
                self.server.login_by_approle(mount, namespace, wrap_ttl, role_id, secret_id.as_ref()).await
            }
            IdentityProof::Certificate => {
                let role = Some(role.as_str()).filter(|role| !role.is_empty());
                self.server.login_by_certificate(mount, namespace, wrap_ttl, role).await
            }
            IdentityProof::Token(token) => {
                let lookup = self.server.lookup_self(token, namespace).await?;
                if let Some(uses) = lookup.uses_left {
                    return Err(CallError::LimitedUse { uses });
                }
                Ok(LoginResponse {
                    secret: token.clone(),
                    accessor: lookup.accessor,
                    lease: lookup.lease,
                    kind: if lookup.batch { token::TokenKind::Batch } else { token::TokenKind::Service },
                    policies: lookup.policies,
                    is_orphan: false,
                })
            }
        }
    }

    fn to_login_error(
        &self,
        error: &CallError,
        claims: Option<&UnverifiedClaims>,
        warnings: &[String],
        now: ClockReading,
    ) -> LoginError {
        let (kind, hint) = classify(self.options.auth_method, error);
        let mut message = match error {
            CallError::Unreachable { .. } | CallError::TimedOut { .. } => error.to_string(),
            _ => format!("{} says {error}", self.server.address()),
        };
        for warning in warnings {
            message = format!("{message}; {warning}");
        }
        let retry_after = error.retry_after();
        match kind {
            LoginFailureKind::Refused => LoginError::Refused { message, hint, retry_after },
            LoginFailureKind::Unavailable => {
                // The code of other calls with this status is about policies of a token.
                let is_unverified = hint == Some(classify::UNVERIFIED);
                let code = if is_unverified { Some(ErrorCode::LoginServerSettings) } else { error.code() };
                LoginError::Unavailable { message, hint, retry_after, code }
            }
            LoginFailureKind::Bug => LoginError::Bug { message, hint },
            LoginFailureKind::Expired => {
                message.extend(describe_skew(error, now));
                LoginError::Clock { message, hint, remedy: Remedy::Refetch }
            }
            LoginFailureKind::NotYet => {
                message.extend(describe_skew(error, now));
                let start = claims.and_then(|claims| claims.nbf);
                LoginError::Clock {
                    message,
                    hint,
                    remedy: Remedy::Wait(start.and_then(|start| retry_time(error, start, now))),
                }
            }
        }
    }
}

/// Returns warnings about a proof; an error for a proof that no server would accept now.
fn check_proof(signed: &SignedToken, now: ClockReading) -> Result<Vec<String>, LoginError> {
    let Some(claims) = &signed.claims else { return Ok(Vec::new()) };
    let report = preflight(claims, signed.audience.as_ref(), now.wall);
    match report.verdict {
        PreflightVerdict::Send => Ok(report.warnings),
        PreflightVerdict::Wait { until, reason } => {
            Err(LoginError::Clock { message: reason, hint: None, remedy: Remedy::Wait(Some(until)) })
        }
        PreflightVerdict::Expired { reason, .. } => {
            Err(LoginError::Clock { message: reason, hint: None, remedy: Remedy::Refetch })
        }
    }
}

/// Returns the time, by our clock, at which the server accepts a proof that is valid from `start`.
///
/// It is a second after `start` by the server's clock, as its `Date` header shows it. Returns `None` if that is far away:
/// then a clock is wrong, and a wait does not help.
fn retry_time(error: &CallError, start: SystemTime, now: ClockReading) -> Option<SystemTime> {
    let server_now = server_time(error).unwrap_or(now.wall);
    // Vault's Azure plugin allows no leeway for `nbf`, and `Date` has whole seconds.
    let wait = start.duration_since(server_now).ok()?.saturating_add(Duration::from_secs(1));
    now.wall.checked_add(wait).filter(|_| wait <= MAX_WAIT)
}

const MAX_WAIT: Duration = Duration::from_mins(10);

/// Describes the difference between the server's clock and ours, if it is 3 s or more.
fn describe_skew(error: &CallError, now: ClockReading) -> Option<String> {
    let server_now = server_time(error)?;
    let (skew, direction) = match server_now.duration_since(now.wall) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    // `Date` has whole seconds and is as old as the response's time in transit.
    (skew >= Duration::from_secs(3)).then(|| format!("; its clock is {} s {direction} this machine's", skew.as_secs()))
}

const fn server_time(error: &CallError) -> Option<SystemTime> {
    match error {
        CallError::Status { date, .. } => *date,
        _ => None,
    }
}

/// Error of a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server refused the proof. Retry slowly: a role or a right may be about to be granted.
    #[error("the login was refused: {message}{}", hint_suffix(*hint))]
    Refused {
        /// Error text of the server.
        message: String,
        /// Advice for the operator.
        hint: Option<&'static str>,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The server, or Azure behind it, is in trouble. Retry with backoff.
    #[error("the login failed: {message}{}", hint_suffix(*hint))]
    Unavailable {
        /// Description of the failure.
        message: String,
        /// Advice for the operator.
        hint: Option<&'static str>,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
        /// Code of the failed call.
        code: Option<ErrorCode>,
    },
    /// The proof is expired or not valid yet, by the server's clock or ours.
    #[error("the identity token's validity period does not fit the clock: {message}{}", hint_suffix(*hint))]
    Clock {
        /// Error text of the server or the preflight check.
        message: String,
        /// Advice for the operator.
        hint: Option<&'static str>,
        /// Action before the next attempt.
        remedy: Remedy,
    },
    /// The server rejected the request itself: a bug of ours, or a required field is missing.
    #[error("the server rejected the login request as malformed: {message}{}", hint_suffix(*hint))]
    Bug {
        /// Error text of the server.
        message: String,
        /// Advice for the operator.
        hint: Option<&'static str>,
    },
    /// The identity source gave no proof.
    #[error("no identity token")]
    NoProof(#[source] IdentityError),
}

/// Action before the next login, after a proof was expired or not valid yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Get a new proof and retry at once; if that is expired too, a clock is wrong: retry slowly.
    Refetch,
    /// Retry at this time of our clock, or slowly if it is unknown or far away.
    Wait(Option<SystemTime>),
}

impl LoginError {
    /// Returns a fixed label for metrics and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
            Self::Clock { .. } => "clock",
            Self::Bug { .. } => "bug",
            Self::NoProof(_) => "no_proof",
        }
    }

    /// Returns the code for operators.
    pub fn code(&self) -> Option<ErrorCode> {
        Some(match self {
            Self::Refused { hint, .. } => classify::refusal_code(*hint),
            Self::Unavailable { code, .. } => return *code,
            Self::Clock { .. } => ErrorCode::LoginClock,
            Self::Bug { .. } => ErrorCode::LoginMalformed,
            Self::NoProof(error) => error.kind.code(),
        })
    }

    /// Returns the `Retry-After` of the server or the identity source.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::NoProof(error) => error.retry_after,
            Self::Clock { .. } | Self::Bug { .. } => None,
        }
    }
}

impl From<IdentityError> for LoginError {
    fn from(error: IdentityError) -> Self {
        Self::NoProof(error)
    }
}

fn hint_suffix(hint: Option<&'static str>) -> String {
    hint.map(|hint| format!(" ({hint})")).unwrap_or_default()
}
