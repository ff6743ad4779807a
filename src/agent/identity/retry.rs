//! Retry rules for identity tokens, and the errors after the last attempt: a pure table.

use std::time::Duration;

use super::error::{AttemptError, ErrorResponse};
use super::error::{IdentityError, IdentityErrorKind};

/// Kind of endpoint; the same status has different meanings by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdentityEndpoint {
    /// The metadata service.
    Metadata,
    /// Another local service: App Service, Arc, those of AWS and Google Cloud.
    LocalService,
    /// A provider's token endpoint.
    Authority,
    /// SPIFFE's Workload API.
    WorkloadApi,
}

/// Usual cause of a refusal by the Workload API.
pub(crate) const NOT_REGISTERED: &str =
    "no registration entry has selectors that fit this process: its user, unit, path or pod";

/// Meaning of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    Unreachable,
    ConnectTimedOut,
    IdentityNotFound,
    IdentityAmbiguous,
    EndpointMissing,
    Updating,
    Throttled,
    ServerError,
    Gateway,
    AssertionMissing,
    AssertionExpired,
    NotReplicated,
    Expiring,
    Intercepted,
    NotRegistered,
    Rejected,
}

/// Waits and error of a failure kind.
struct RetryRule {
    /// Seconds before each further attempt.
    waits: &'static [u64],
    kind: IdentityErrorKind,
    hint: Option<&'static str>,
}

/// Time limit of all attempts of one login. A metadata service that updates itself answers 410 for up to 70 s.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(90);
/// Longest `Retry-After` that is waited for here.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Retry policy of one login: counts its failed attempts by kind.
#[derive(Debug, Default)]
pub(super) struct RetryPolicy {
    previous_failures: Vec<FailureKind>,
}

impl RetryPolicy {
    /// Returns the wait before the next attempt, `elapsed` after the first; `None` to give up.
    ///
    /// `unit`, a random number in `0.0..1.0`, spreads machines that use the same token endpoint.
    pub(super) fn next(
        &mut self,
        failure: &AttemptError,
        endpoint: IdentityEndpoint,
        elapsed: Duration,
        unit: f64,
    ) -> Option<Duration> {
        let failure_kind = failure_kind(failure, endpoint);
        let repeats = self.previous_failures.iter().filter(|previous| **previous == failure_kind).count();
        self.previous_failures.push(failure_kind);
        let wait = Duration::from_secs(*rule(failure_kind, endpoint).waits.get(repeats)?);
        let wait = match retry_after(failure) {
            // A longer one is returned to the session, which waits for it.
            Some(wait) if wait > MAX_RETRY_AFTER => return None,
            Some(wait) => wait,
            None if endpoint == IdentityEndpoint::Authority => wait.mul_f64(0.5 + 0.5 * unit),
            None => wait,
        };
        (elapsed.saturating_add(wait) <= TIME_LIMIT).then_some(wait)
    }
}

/// Converts the last attempt's error.
pub(super) fn to_identity_error(
    failure: &AttemptError,
    endpoint: IdentityEndpoint,
    source_name: &'static str,
) -> IdentityError {
    let rule = rule(failure_kind(failure, endpoint), endpoint);
    let hint = match failure {
        AttemptError::Setting { hint, .. } => *hint,
        AttemptError::Untrusted(_) => {
            Some("the token endpoint's certificate is not trusted; check if a proxy intercepts TLS")
        }
        AttemptError::Refused(ErrorResponse { is_token_proxy: true, status: 401 | 403, .. }) => Some(
            "the pod needs the annotation azure.workload.identity/use-identity-binding: \"true\", and its service account the \
             verb use-managed-identity for the client id",
        ),
        AttemptError::Redirected(_) => Some("a proxy or a portal answers in place of the service"),
        _ => rule.hint,
    };
    IdentityError {
        kind: rule.kind,
        source_name,
        message: failure.to_string(),
        hint,
        retry_after: retry_after(failure),
    }
}

fn retry_after(failure: &AttemptError) -> Option<Duration> {
    match failure {
        AttemptError::Refused(ErrorResponse { retry_after, status: 429 | 503, .. }) => *retry_after,
        _ => None,
    }
}

/// Classifies a failed attempt.
pub(super) fn failure_kind(failure: &AttemptError, endpoint: IdentityEndpoint) -> FailureKind {
    match failure {
        AttemptError::Unreachable(_) => FailureKind::Unreachable,
        AttemptError::ConnectTimedOut(_) => FailureKind::ConnectTimedOut,
        AttemptError::Broken(_) | AttemptError::Unreadable(_) | AttemptError::NoAuthorities(_) => {
            FailureKind::ServerError
        }
        AttemptError::NoAssertion(_) => FailureKind::AssertionMissing,
        AttemptError::Expiring => FailureKind::Expiring,
        AttemptError::Untrusted(_)
        | AttemptError::TooLarge
        | AttemptError::Redirected(_)
        | AttemptError::Setting { .. } => FailureKind::Rejected,
        AttemptError::Refused(refusal) => classify_refusal(refusal, endpoint),
    }
}

/// `learn.microsoft.com`, "Use managed identities on a virtual machine" (errors) and "Entra authentication error codes".
fn classify_refusal(refusal: &ErrorResponse, endpoint: IdentityEndpoint) -> FailureKind {
    let any = |codes: &[u32]| refusal.codes.iter().any(|code| codes.contains(code));
    if endpoint == IdentityEndpoint::Authority {
        // AADSTS700024: the assertion has expired or is not valid yet. A rotated file may hold a good one.
        if any(&[700_024]) {
            return FailureKind::AssertionExpired;
        }
        // AADSTS70021 and the others: a new federated credential takes some minutes to be known everywhere.
        if any(&[70_021, 700_211, 700_212, 700_213]) {
            return FailureKind::NotReplicated;
        }
        // STS, "AssumeRoleWithWebIdentity" (errors).
        if refusal.error == "ExpiredTokenException" {
            return FailureKind::AssertionExpired;
        }
        if refusal.error == "IDPCommunicationError" {
            return FailureKind::ServerError;
        }
        // AADSTS90061: the token endpoint could not reach the issuer of the federated token.
        if any(&[90_061, 50_196, 90_033]) || refusal.error == "temporarily_unavailable" {
            return FailureKind::ServerError;
        }
    }
    match refusal.status {
        400 if endpoint != IdentityEndpoint::Authority && is_identity_missing(&refusal.text) => {
            FailureKind::IdentityNotFound
        }
        400 if endpoint != IdentityEndpoint::Authority && is_identity_ambiguous(&refusal.text) => {
            FailureKind::IdentityAmbiguous
        }
        // The metadata service responds with 404 or 410 while it updates itself.
        404 if endpoint != IdentityEndpoint::Authority => FailureKind::EndpointMissing,
        410 if endpoint != IdentityEndpoint::Authority => FailureKind::Updating,
        429 => FailureKind::Throttled,
        403 if endpoint == IdentityEndpoint::WorkloadApi => FailureKind::NotRegistered,
        // The metadata service documents neither: most likely a proxy responds in its place.
        502 | 504 => FailureKind::Gateway,
        408 | 500..=599 => FailureKind::ServerError,
        _ if refusal.is_foreign && endpoint == IdentityEndpoint::Metadata => FailureKind::Intercepted,
        _ => FailureKind::Rejected,
    }
}

/// The metadata service says "Identity not found", App Service "No ... Managed Identity found".
fn is_identity_missing(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("identity not found") || text.contains("managed identity found")
}

/// The metadata service says "Multiple user assigned identities exist, please specify the clientId / resourceId".
fn is_identity_ambiguous(text: &str) -> bool {
    text.to_ascii_lowercase().contains("multiple user assigned identities")
}

const fn rule(failure_kind: FailureKind, endpoint: IdentityEndpoint) -> RetryRule {
    let metadata = matches!(endpoint, IdentityEndpoint::Metadata);
    let (waits, kind, hint): (&[u64], _, _) = match failure_kind {
        FailureKind::Unreachable if metadata => (
            &[1, 2, 4],
            IdentityErrorKind::NotReady,
            Some(
                "check that this machine runs in that cloud; where its metadata service is blocked, as for pods, use \
                 workload identity",
            ),
        ),
        FailureKind::Unreachable => (&[1, 2, 4], IdentityErrorKind::NotReady, None),
        FailureKind::ConnectTimedOut => (
            &[2, 4, 8],
            IdentityErrorKind::NotReady,
            Some("a firewall or a network policy drops the packets: pods that may not reach it use workload identity"),
        ),
        FailureKind::IdentityNotFound => (
            &[2, 4, 8],
            IdentityErrorKind::Denied,
            Some(
                "assign the identity to this machine, and set client_id if it has several; a new assignment takes minutes, a recreated identity needs a restart of the machine",
            ),
        ),
        FailureKind::IdentityAmbiguous => (
            &[],
            IdentityErrorKind::Denied,
            Some(
                "this machine has several user-assigned identities: set client_id or object_id to the one to use; with \
                 authenticate_from_environment set AZURE_CLIENT_ID",
            ),
        ),
        FailureKind::EndpointMissing => (
            &[1, 2, 4, 8],
            IdentityErrorKind::NotReady,
            Some("the service is being updated, or this host has no managed identity"),
        ),
        // Eight waits of 10 s cover the 70 s that an update of the metadata service takes at most.
        FailureKind::Updating => (&[10; 8], IdentityErrorKind::NotReady, Some("the metadata service is being updated")),
        FailureKind::Throttled => (&[2, 4, 8, 16], IdentityErrorKind::Throttled, None),
        FailureKind::Gateway if metadata => (
            &[1, 2, 4, 8, 16],
            IdentityErrorKind::Transient,
            Some("a proxy seems to answer in place of the metadata service"),
        ),
        FailureKind::ServerError | FailureKind::Gateway => (&[1, 2, 4, 8, 16], IdentityErrorKind::Transient, None),
        FailureKind::AssertionMissing => (
            &[1, 1, 1, 1, 1],
            IdentityErrorKind::NotReady,
            Some(
                "check that the token volume is mounted; the pod needs the label azure.workload.identity/use: \"true\"",
            ),
        ),
        // The first retry is immediate: the file may have been replaced since it was read.
        FailureKind::AssertionExpired => (
            &[0, 5],
            IdentityErrorKind::Transient,
            Some("the federated token is too old, or this machine's clock is wrong"),
        ),
        FailureKind::NotReplicated => (
            &[10, 20, 40],
            IdentityErrorKind::Denied,
            Some(
                "compare issuer, subject and audience of the federated credential, every byte; a new one takes minutes \
                 to work",
            ),
        ),
        FailureKind::Expiring => (
            &[5, 5, 5],
            IdentityErrorKind::NotReady,
            Some("the service gave an old token again, or this machine's clock is ahead"),
        ),
        FailureKind::Intercepted => (
            &[],
            IdentityErrorKind::NotReady,
            Some(
                "something other than the metadata service answered, such as a proxy, a firewall or a network policy; let this \
                 machine reach it directly; pods that may not reach it use workload identity",
            ),
        ),
        // SPIRE's agent learns of a new entry within some seconds.
        FailureKind::NotRegistered => (&[1, 2, 4, 8], IdentityErrorKind::Denied, Some(NOT_REGISTERED)),
        FailureKind::Rejected => (&[], IdentityErrorKind::Config, None),
    };
    RetryRule { waits, kind, hint }
}

#[cfg(test)]
mod tests;
