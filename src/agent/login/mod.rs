//! Proof -> login request -> token.

mod classify;

use std::time::{Duration, SystemTime};

use crate::agent::identity::{IdentityError, IdentityProof, SignedToken, Verdict, preflight};
use crate::agent::server_client::{CallError, Kind, LoginAnswer, LoginBody, Upstream};
use crate::agent::token::{self, Generation, Token};
use crate::clock::{Clock, ClockReading};
use crate::jwt::UnverifiedClaims;

pub use classify::{Class, classify};

/// How a session logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The role to authenticate against; empty where the method has none.
    pub role: String,
    /// Path of the auth method on the server, such as `azure`; no `auth/` before it, no slash around it. On an
    /// access-control service the method's name.
    pub mount: String,
    /// The server's namespace, where it has them.
    pub namespace: Option<String>,
    /// Ask for a wrapped answer that lives this long.
    pub wrap_ttl: Option<Duration>,
}

/// Logs one session in to its server.
#[derive(Debug, Clone)]
pub struct Login {
    upstream: Upstream,
    options: Options,
}

impl Login {
    /// A login of the role and mount in `options` at `upstream`.
    pub const fn new(upstream: Upstream, options: Options) -> Self {
        Self { upstream, options }
    }

    /// How it logs in.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The server that it logs in to.
    pub const fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Looks at the proof and sends one login, never a second. A token's life counts from the answer.
    ///
    /// A proof that is a token of the server itself is only looked up.
    ///
    /// # Errors
    /// Says what to expect of trying again, in words and hints for an operator. Never holds the proof.
    pub async fn login(&self, proof: &IdentityProof, clock: &Clock) -> Result<Token, LoginError> {
        let signed = match proof {
            IdentityProof::Signed(signed) => Some(&**signed),
            _ => None,
        };
        let claims = signed.and_then(|signed| signed.claims.as_ref());
        let warnings = signed.map_or_else(|| Ok(Vec::new()), |signed| inspect(signed, clock.now()))?;
        for warning in &warnings {
            tracing::warn!(event = "login.proof.suspect", server = self.upstream.name(), "{warning}");
        }
        let answer = self.send(proof).await;
        let obtained = clock.now();
        let answer = answer.map_err(|error| match (proof, self.explain(&error, claims, &warnings, obtained)) {
            (IdentityProof::Token(_), LoginError::Refused { message, retry_after, .. })
                if error.verdict().doubts_token() =>
            {
                LoginError::Refused { message, hint: Some(classify::DEAD), retry_after }
            }
            (_, explained) => explained,
        })?;
        let ttl = answer.lease.ttl;
        Ok(Token {
            secret: answer.secret,
            accessor: answer.accessor,
            lease: answer.lease,
            kind: answer.kind,
            policies: answer.policies,
            obtained,
            expires: (!ttl.is_zero()).then(|| obtained + ttl),
            generation: Generation::new(),
        })
    }

    async fn send(&self, proof: &IdentityProof) -> Result<LoginAnswer, CallError> {
        let Options { role, mount, namespace, wrap_ttl } = &self.options;
        let (namespace, wrap_ttl) = (namespace.as_deref(), *wrap_ttl);
        match proof {
            IdentityProof::Signed(signed) if self.upstream.kind() == Kind::Consul => {
                self.upstream.acl_login(mount, namespace, &signed.jwt).await
            }
            IdentityProof::Signed(signed) => {
                let fields = &signed.fields;
                let body = LoginBody {
                    role,
                    jwt: &signed.jwt,
                    subscription_id: fields.subscription_id.as_deref(),
                    resource_group_name: fields.resource_group_name.as_deref(),
                    vm_name: fields.vm_name.as_deref(),
                    vmss_name: fields.vmss_name.as_deref(),
                    resource_id: fields.resource_id.as_deref(),
                };
                self.upstream.login(mount, namespace, wrap_ttl, &body).await
            }
            IdentityProof::AppRole { role_id, secret_id } => {
                self.upstream.login_by_approle(mount, namespace, wrap_ttl, role_id, secret_id.as_ref()).await
            }
            IdentityProof::Certificate => {
                let role = Some(role.as_str()).filter(|role| !role.is_empty());
                self.upstream.login_by_certificate(mount, namespace, wrap_ttl, role).await
            }
            IdentityProof::Token(token) => {
                let found = self.upstream.lookup_self(token, namespace).await?;
                Ok(LoginAnswer {
                    secret: token.clone(),
                    accessor: found.accessor,
                    lease: found.lease,
                    kind: if found.batch { token::Kind::Batch } else { token::Kind::Service },
                    policies: found.policies,
                })
            }
        }
    }

    fn explain(
        &self,
        error: &CallError,
        claims: Option<&UnverifiedClaims>,
        warnings: &[String],
        now: ClockReading,
    ) -> LoginError {
        let (class, hint) = classify(error);
        let mut message = match error {
            CallError::Unreachable { .. } | CallError::TimedOut { .. } => error.to_string(),
            _ => format!("{} says {error}", self.upstream.address()),
        };
        for warning in warnings {
            message = format!("{message}; {warning}");
        }
        let retry_after = error.retry_after();
        match class {
            Class::Refused => LoginError::Refused { message, hint, retry_after },
            Class::Unavailable => LoginError::Unavailable { message, hint, retry_after },
            Class::Bug => LoginError::Bug { message, hint },
            Class::Expired => {
                message.extend(skew(error, now));
                LoginError::Clock { message, hint, cure: Cure::Refetch }
            }
            Class::NotYet => {
                message.extend(skew(error, now));
                let start = claims.and_then(|claims| claims.nbf);
                LoginError::Clock {
                    message,
                    hint,
                    cure: Cure::Wait(start.and_then(|start| opening(error, start, now))),
                }
            }
        }
    }
}

/// Warnings about a proof that is worth sending; an error for one that no server would take now.
fn inspect(signed: &SignedToken, now: ClockReading) -> Result<Vec<String>, LoginError> {
    let Some(claims) = &signed.claims else { return Ok(Vec::new()) };
    let look = preflight(claims, signed.audience.as_deref(), now.wall);
    match look.verdict {
        Verdict::Send => Ok(look.warnings),
        Verdict::Hold { until, reason } => {
            Err(LoginError::Clock { message: reason, hint: None, cure: Cure::Wait(Some(until)) })
        }
        Verdict::Expired { reason, .. } => Err(LoginError::Clock { message: reason, hint: None, cure: Cure::Refetch }),
    }
}

/// When the server will take a proof that starts at `start`, by our clock: a second later by its own, which its answer
/// told. Nothing if that is far away: then a clock is wrong, and waiting does not mend it.
fn opening(error: &CallError, start: SystemTime, now: ClockReading) -> Option<SystemTime> {
    let theirs = server_time(error).unwrap_or(now.wall);
    let wait = start.duration_since(theirs).ok()?.saturating_add(Duration::from_secs(1));
    now.wall.checked_add(wait).filter(|_| wait <= LONGEST_HOLD)
}

const LONGEST_HOLD: Duration = Duration::from_mins(10);

/// How far the server's clock is from ours, in words, if that is worth a word.
fn skew(error: &CallError, now: ClockReading) -> Option<String> {
    let theirs = server_time(error)?;
    let (apart, word) = match theirs.duration_since(now.wall) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    // `Date` has whole seconds and is as old as the answer's way here.
    (apart >= Duration::from_secs(3)).then(|| format!("; its clock is {} s {word} ours", apart.as_secs()))
}

const fn server_time(error: &CallError) -> Option<SystemTime> {
    match error {
        CallError::Status { date, .. } => *date,
        _ => None,
    }
}

/// Why a login gave no token.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server looked at the proof and said no. Try again slowly: a role or a right may be on its way.
    #[error("the login was refused: {message}{}", aside(*hint))]
    Refused {
        /// What the server said.
        message: String,
        /// What may mend it.
        hint: Option<&'static str>,
        /// How long the server asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The server, or what it asks in turn, is in trouble. Try again with backoff.
    #[error("the login could not be made: {message}{}", aside(*hint))]
    Unavailable {
        /// What went wrong.
        message: String,
        /// What may mend it.
        hint: Option<&'static str>,
        /// How long the server asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The server's clock, or ours, says that the proof is expired or not valid yet.
    #[error("the proof's time does not fit the server's clock: {message}{}", aside(*hint))]
    Clock {
        /// What the server, or a look at the proof, said.
        message: String,
        /// What may mend it.
        hint: Option<&'static str>,
        /// What to do before the next try.
        cure: Cure,
    },
    /// The request was not what the server wants: a fault of ours, or a field that it needs and nothing gave.
    #[error("the login request was not understood: {message}{}", aside(*hint))]
    Bug {
        /// What the server said.
        message: String,
        /// What may mend it.
        hint: Option<&'static str>,
    },
    /// There is nothing to log in with.
    #[error("there is no proof of identity")]
    NoProof(#[source] IdentityError),
}

/// What to do about a proof whose time does not fit, before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// Get a new proof and try once more at once; if that is expired too, a clock is wrong: try again slowly.
    Refetch,
    /// Try again at this time of our clock, or slowly where it is not known or far away.
    Wait(Option<SystemTime>),
}

impl LoginError {
    /// A short fixed word for metrics and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
            Self::Clock { .. } => "clock",
            Self::Bug { .. } => "bug",
            Self::NoProof(_) => "no_proof",
        }
    }

    /// How long the server or the identity's source asks us to wait.
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

fn aside(hint: Option<&'static str>) -> String {
    hint.map(|hint| format!(" ({hint})")).unwrap_or_default()
}
