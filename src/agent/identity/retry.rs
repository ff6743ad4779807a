//! When to try again for a token, and what to tell when it was in vain: a pure table.

use std::time::Duration;

use super::error::{Class, IdentityError};
use super::failure::{Failure, Refusal};

/// Whom was asked; the same status means different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The metadata service.
    Metadata,
    /// Another service of this machine: App Service, Arc.
    Host,
    /// The token endpoint.
    Authority,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Unreachable,
    ConnectTimedOut,
    IdentityNotFound,
    NotThere,
    Updating,
    Throttled,
    Trouble,
    Gateway,
    AssertionMissing,
    AssertionExpired,
    NotReplicated,
    Stale,
    Rejected,
}

/// What to do about a condition.
struct Row {
    /// Seconds to wait before each further attempt.
    waits: &'static [u64],
    class: Class,
    hint: Option<&'static str>,
}

/// How long all attempts of one login may take. A metadata service that updates itself answers 410 for up to 70 s.
pub(super) const BUDGET: Duration = Duration::from_secs(90);
/// The longest wait that is made here when a service asks for one.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// Counts the attempts of one login.
#[derive(Debug, Default)]
pub(super) struct Patience {
    seen: Vec<Condition>,
}

impl Patience {
    /// How long to wait before the next attempt, `elapsed` after the first; `None` to give up. `unit`, a random number
    /// in `0.0..1.0`, spreads machines that ask the same token endpoint.
    pub(super) fn next(&mut self, failure: &Failure, asked: Asked, elapsed: Duration, unit: f64) -> Option<Duration> {
        let condition = condition(failure, asked);
        let before = self.seen.iter().filter(|seen| **seen == condition).count();
        self.seen.push(condition);
        let wait = Duration::from_secs(*row(condition, asked).waits.get(before)?);
        let wait = match retry_after(failure) {
            // The caller is told of a longer one, and keeps it.
            Some(asked_for) if asked_for > LONGEST_ASKED => return None,
            Some(asked_for) => asked_for,
            None if asked == Asked::Authority => wait.mul_f64(0.5 + 0.5 * unit),
            None => wait,
        };
        (elapsed.saturating_add(wait) <= BUDGET).then_some(wait)
    }
}

/// The failure as the caller is told it.
pub(super) fn told(failure: &Failure, asked: Asked, source_name: &'static str) -> IdentityError {
    let row = row(condition(failure, asked), asked);
    let hint = match failure {
        Failure::Setting { hint, .. } => *hint,
        Failure::Untrusted(_) => Some("the token endpoint's certificate is not trusted here: a proxy that opens TLS?"),
        Failure::Redirected(_) => Some("a proxy or a portal answers in place of the service"),
        _ => row.hint,
    };
    IdentityError {
        class: row.class,
        source_name,
        message: failure.to_string(),
        hint,
        retry_after: retry_after(failure),
    }
}

fn retry_after(failure: &Failure) -> Option<Duration> {
    match failure {
        Failure::Refused(Refusal { retry_after, status: 429 | 503, .. }) => *retry_after,
        _ => None,
    }
}

/// What a failure means, by whom was asked.
pub(super) fn condition(failure: &Failure, asked: Asked) -> Condition {
    match failure {
        Failure::Unreachable(_) => Condition::Unreachable,
        Failure::ConnectTimedOut(_) => Condition::ConnectTimedOut,
        Failure::Broken(_) | Failure::Unreadable(_) => Condition::Trouble,
        Failure::NoAssertion(_) => Condition::AssertionMissing,
        Failure::Stale => Condition::Stale,
        Failure::Untrusted(_) | Failure::TooLarge | Failure::Redirected(_) | Failure::Setting { .. } => {
            Condition::Rejected
        }
        Failure::Refused(refusal) => refused(refusal, asked),
    }
}

/// `learn.microsoft.com`, "Use managed identities on a virtual machine" (errors) and "Entra authentication error codes".
fn refused(refusal: &Refusal, asked: Asked) -> Condition {
    let any = |codes: &[u32]| refusal.codes.iter().any(|code| codes.contains(code));
    if asked == Asked::Authority {
        if any(&[700_024]) {
            return Condition::AssertionExpired;
        }
        if any(&[70_021, 700_211, 700_212, 700_213]) {
            return Condition::NotReplicated;
        }
        if any(&[90_061, 50_196, 90_033]) || refusal.error == "temporarily_unavailable" {
            return Condition::Trouble;
        }
    }
    match refusal.status {
        400 if asked != Asked::Authority && says_no_identity(&refusal.text) => Condition::IdentityNotFound,
        404 if asked != Asked::Authority => Condition::NotThere,
        410 if asked != Asked::Authority => Condition::Updating,
        429 => Condition::Throttled,
        502 | 504 => Condition::Gateway,
        408 | 500..=599 => Condition::Trouble,
        _ => Condition::Rejected,
    }
}

/// The metadata service says "Identity not found", App Service "No ... Managed Identity found".
fn says_no_identity(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("identity not found") || text.contains("managed identity found")
}

const fn row(condition: Condition, asked: Asked) -> Row {
    let metadata = matches!(asked, Asked::Metadata);
    let (waits, class, hint): (&[u64], _, _) = match condition {
        Condition::Unreachable if metadata => (
            &[1, 2, 4],
            Class::NotReady,
            Some(
                "is this a machine of that cloud? where its metadata service is blocked, as for pods, use workload \
                 identity",
            ),
        ),
        Condition::Unreachable => (&[1, 2, 4], Class::NotReady, None),
        Condition::ConnectTimedOut => (
            &[2, 4, 8],
            Class::NotReady,
            Some("a firewall or a network policy drops the packets: pods that may not reach it use workload identity"),
        ),
        Condition::IdentityNotFound => (
            &[2, 4, 8],
            Class::Denied,
            Some(
                "assign the identity to this machine and name it, if it has several; a new one takes minutes to show, \
                 one that was deleted and made again a restart of the machine",
            ),
        ),
        Condition::NotThere => {
            (&[1, 2, 4, 8], Class::NotReady, Some("the service is being updated, or this host has no managed identity"))
        }
        Condition::Updating => (&[10; 8], Class::NotReady, Some("the metadata service is being updated")),
        Condition::Throttled => (&[2, 4, 8, 16], Class::Throttled, None),
        Condition::Gateway if metadata => {
            (&[1, 2, 4, 8, 16], Class::Transient, Some("a proxy seems to answer in place of the metadata service"))
        }
        Condition::Trouble | Condition::Gateway => (&[1, 2, 4, 8, 16], Class::Transient, None),
        Condition::AssertionMissing => (
            &[1, 1, 1, 1, 1],
            Class::NotReady,
            Some("is the token volume mounted? the pod needs the label azure.workload.identity/use: \"true\""),
        ),
        // At once: the file may have been replaced since it was read.
        Condition::AssertionExpired => {
            (&[0, 5], Class::Transient, Some("the federated token is too old, or this machine's clock is wrong"))
        }
        Condition::NotReplicated => (
            &[10, 20, 40],
            Class::Denied,
            Some(
                "compare issuer, subject and audience of the federated credential, every byte; a new one takes minutes \
                 to work",
            ),
        ),
        Condition::Stale => {
            (&[5, 5, 5], Class::NotReady, Some("the service gave an old token again, or this machine's clock is ahead"))
        }
        Condition::Rejected => (&[], Class::Config, None),
    };
    Row { waits, class, hint }
}

#[cfg(test)]
mod tests;
