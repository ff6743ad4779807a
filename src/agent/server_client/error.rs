//! Why a call of the secrets server gave nothing, and what that says about the token.

use std::time::{Duration, SystemTime};

use crate::http::client::TransportError;

/// Why a call gave nothing. Texts of the server are cut short, control characters escaped, credentials taken out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke before the answer was whole.
    #[error("{cause}")]
    Unreachable {
        /// The whole chain of causes in one line, the server's origin in it.
        cause: String,
    },
    /// The server took the connection and did not answer in time.
    #[error("no answer from {server} within {} s", after.as_secs_f32())]
    TimedOut {
        /// The server in words.
        server: String,
        /// The time that was given.
        after: Duration,
    },
    /// The server said no.
    #[error("HTTP {status}{}", reasons(errors))]
    Status {
        /// The HTTP status.
        status: u16,
        /// What the server says about it.
        errors: Vec<String>,
        /// How long it asks us to wait, between one second and fifteen minutes.
        retry_after: Option<Duration>,
        /// The server's time.
        date: Option<SystemTime>,
    },
    /// An answer that is not what the call answers with.
    #[error("the server's answer makes no sense: {what}")]
    Garbage {
        /// What is wrong with it, without its content.
        what: String,
    },
    /// A good answer that holds no secret, however often it is asked for.
    #[error("the path gives no secret: {what}")]
    NoSecret {
        /// What it gives.
        what: &'static str,
    },
    /// A login gave a token that ends after a number of uses, which the agent's own calls would use up.
    #[error("the server gave a token for {uses} uses; a role for the agent must have token_num_uses = 0")]
    LimitedUse {
        /// How many.
        uses: u64,
    },
}

/// What a failed look-up, renewal or revocation says about the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The server says that there is no such token (any more).
    Dead,
    /// A 403 whose only text is `permission denied`: how OpenBao, and Vault before 1.13, refuse a token that they do not know.
    /// A living token meets it only at an address that it is not bound to. The text decides, whatever product is configured.
    Suspect,
    /// Any other 403, as by a policy that does not allow the call (`1 error occurred: * permission denied`). Whoever saw the
    /// same call succeed with the token has a reason to doubt it, and no more.
    Denied,
    /// The call is refused by another status, as a balancer or a wrong path would: it says nothing about the token.
    Refused,
    /// The server or the way to it is in trouble: nothing is known about the token.
    Unavailable,
}

impl CallError {
    /// How long the server asks us to wait.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What it says about the token that the call was made with. Not for logins.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Garbage { .. } => Verdict::Unavailable,
            Self::Status { status, .. } if is_outage(*status) => Verdict::Unavailable,
            Self::Status { status: 403, errors, .. } if errors.iter().any(|error| says_dead(error)) => Verdict::Dead,
            // How an access-control service answers one who asks about himself.
            Self::Status { status: 404, errors, .. } if errors.iter().any(|error| error.contains(NO_SUCH_SELF)) => {
                Verdict::Dead
            }
            Self::Status { status: 403, errors, .. } if is_bare_denial(errors) => Verdict::Suspect,
            Self::Status { status: 403, .. } => Verdict::Denied,
            Self::LimitedUse { .. } | Self::NoSecret { .. } | Self::Status { .. } => Verdict::Refused,
        }
    }

    /// Whether the server says that there is no such token.
    pub fn is_token_dead(&self) -> bool {
        self.verdict() == Verdict::Dead
    }
}

impl Verdict {
    /// True if the token may be dead, so that its keeper is to look: the call itself may be good.
    pub const fn doubts_token(self) -> bool {
        matches!(self, Self::Dead | Self::Suspect)
    }
}

/// True if a 403 says `permission denied` and nothing else ([`Verdict::Suspect`]).
pub(in crate::agent) fn is_bare_denial(errors: &[impl AsRef<str>]) -> bool {
    matches!(errors, [only] if only.as_ref() == "permission denied")
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::TimedOut { server, after } => Self::TimedOut { server, after },
            TransportError::TooLarge { .. } => Self::Garbage { what: error.to_string() },
            TransportError::Connect { .. } | TransportError::Broken { .. } => {
                Self::Unreachable { cause: error.to_string() }
            }
        }
    }
}

/// Whether a status tells of the server's or a balancer's trouble. 412 is a node that is behind, 472 and 473 are
/// standby nodes (Vault's API documentation); a redirect leads to the active node, which we must be given by name.
pub const fn is_outage(status: u16) -> bool {
    matches!(status, 300..=399 | 408 | 412 | 425 | 429 | 472 | 473 | 500..)
}

/// Vault and OpenBao say `invalid token` or `bad token`; an access-control service says `ACL not found`.
fn says_dead(error: &str) -> bool {
    ["invalid token", "bad token", "ACL not found"].iter().any(|words| error.contains(words))
}

const NO_SUCH_SELF: &str = "Supplied token does not exist";

fn reasons(errors: &[String]) -> String {
    if errors.is_empty() { " without a reason".to_owned() } else { format!(": {}", errors.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_tells_dead_from_refused_from_unavailable() {
        let check = |status, error: &str, wanted| {
            let errors = vec![error.to_owned()];
            let error = CallError::Status { status, errors, retry_after: None, date: None };
            assert_eq!(error.verdict(), wanted, "{error}");
        };
        check(403, "2 errors occurred:\\n\\t* permission denied\\n\\t* invalid token\\n\\n", Verdict::Dead);
        check(403, "bad token", Verdict::Dead);
        check(403, "rpc error: ACL not found", Verdict::Dead);
        check(403, "permission denied", Verdict::Suspect);
        check(403, "1 error occurred:\\n\\t* permission denied\\n\\n", Verdict::Denied);
        check(
            403,
            "preflight capability check returned 403, please ensure client's policies grant access",
            Verdict::Denied,
        );
        check(403, "", Verdict::Denied);
        check(404, "Supplied token does not exist", Verdict::Dead);
        check(401, "invalid token", Verdict::Refused);
        check(400, "lease is not renewable", Verdict::Refused);
        check(404, "no handler for route", Verdict::Refused);
        check(405, "unsupported operation", Verdict::Refused);
        check(429, "request path rate limit quota exceeded", Verdict::Unavailable);
        check(503, "Vault is sealed", Verdict::Unavailable);
        check(500, "internal error: invalid token store", Verdict::Unavailable);
        check(307, "it redirects", Verdict::Unavailable);
        check(473, "", Verdict::Unavailable);
        assert_eq!(CallError::Garbage { what: String::new() }.verdict(), Verdict::Unavailable);
    }
}
