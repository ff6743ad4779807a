//! Errors of calls to etcd members, and whether the call may have been executed.

use std::error::Error;
use std::sync::Arc;

use etcd_client::Error as ClientError;
use keyward_telemetry::error_chain::describe_error;
use tonic::{Code, ConnectError};

use crate::store::{CommitError, StoreError};

/// Failed call to a member. Contains no secret: etcd repeats none.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{member}: {text}")]
pub(super) struct MemberError {
    pub(super) member: Arc<str>,
    pub(super) text: String,
    pub(super) kind: FailureKind,
}

/// Meaning of a failure for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// No connection: not executed.
    Unreachable,
    /// The member declined; another may accept.
    NotExecuted,
    /// No answer to the login in time: not executed.
    LoginTimedOut,
    /// The login has expired; not executed.
    Unauthenticated,
    /// Rejected permanently.
    Refused,
    /// The member lags behind the revision.
    Behind,
    /// The revision was compacted.
    Compacted,
    /// The response exceeds the message limit.
    TooLarge,
    /// The call may have been executed.
    Unknown,
    /// No response in time; the call may have been executed.
    TimedOut,
}

impl MemberError {
    /// Converts an error of the etcd client.
    pub(super) fn from_client(member: &Arc<str>, error: &ClientError) -> Self {
        let (text, kind) = match error {
            ClientError::GRpcStatus(status) => {
                let causes = causes(status);
                let is_unsent = causes.iter().any(|cause| cause.is::<ConnectError>());
                let mut text = status.message().to_owned();
                for cause in causes.iter().map(|cause| describe_error(*cause)) {
                    if !text.contains(&cause) {
                        text = format!("{text}: {cause}");
                    }
                }
                (text, kind(status.code(), status.message(), is_unsent))
            }
            other => (other.to_string(), FailureKind::Unknown),
        };
        Self { member: Arc::clone(member), text, kind }
    }

    /// Creates a timeout error.
    pub(super) fn timed_out(member: &Arc<str>) -> Self {
        Self { member: Arc::clone(member), text: "no answer in time".to_owned(), kind: FailureKind::TimedOut }
    }

    /// Creates an error of a call whose login was not answered in time.
    pub(super) fn login_timed_out(member: &Arc<str>) -> Self {
        let text = "no answer to the login in time".to_owned();
        Self { member: Arc::clone(member), text, kind: FailureKind::LoginTimedOut }
    }

    /// Creates an error of a call that was not executed.
    pub(super) fn not_executed(member: &Arc<str>, text: impl Into<String>) -> Self {
        Self { member: Arc::clone(member), text: text.into(), kind: FailureKind::NotExecuted }
    }
}

/// Errors of all members that were tried, the latest last.
#[derive(Debug, Clone, Default, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(super) struct MemberErrors(Vec<MemberError>);

impl MemberErrors {
    /// Adds an error and replaces an earlier one of the same member; a timeout keeps the earlier, more specific text.
    pub(super) fn add(&mut self, mut error: MemberError) {
        if let Some(position) = self.0.iter().position(|other| other.member == error.member) {
            let previous = self.0.remove(position);
            if matches!(error.kind, FailureKind::TimedOut | FailureKind::LoginTimedOut) {
                error.text = previous.text;
            }
        }
        self.0.push(error);
    }

    /// Returns whether etcd's space quota is exceeded (`ErrNoSpace`).
    fn is_full(&self) -> bool {
        self.0.last().is_some_and(|last| last.text.contains("database space exceeded"))
    }

    /// Returns the kind of the last error.
    pub(super) fn kind(&self) -> FailureKind {
        self.0.last().map_or(FailureKind::Unknown, |last| last.kind)
    }
}

impl From<MemberError> for MemberErrors {
    fn from(error: MemberError) -> Self {
        Self(vec![error])
    }
}

impl From<MemberErrors> for StoreError {
    fn from(errors: MemberErrors) -> Self {
        match errors.kind() {
            FailureKind::Refused if errors.is_full() => Self::Full(Arc::new(errors)),
            FailureKind::Refused | FailureKind::TooLarge => Self::Failed(Arc::new(errors)),
            _ => Self::Unavailable(Arc::new(errors)),
        }
    }
}

impl From<MemberErrors> for CommitError {
    fn from(errors: MemberErrors) -> Self {
        match errors.kind() {
            FailureKind::Unknown | FailureKind::TimedOut | FailureKind::TooLarge => Self::Unknown(errors.into()),
            _ => Self::Store(errors.into()),
        }
    }
}

fn causes<'a>(status: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source()).collect()
}

/// Classifies codes and texts of etcd 3.4 to 3.6 (`api/v3rpc/rpctypes/error.go`).
fn kind(code: Code, message: &str, is_unsent: bool) -> FailureKind {
    match (code, message) {
        _ if is_unsent => FailureKind::Unreachable,
        // Sent before the request is proposed: no leader, or overload.
        (Code::Unavailable, "etcdserver: no leader") | (Code::ResourceExhausted, "etcdserver: too many requests") => {
            FailureKind::NotExecuted
        }
        // The second: users or roles were changed after the login.
        (Code::Unauthenticated, _) | (Code::InvalidArgument, "etcdserver: revision of auth store is old") => {
            FailureKind::Unauthenticated
        }
        (Code::OutOfRange, message) if message.contains("decoded message length") => FailureKind::TooLarge,
        (Code::OutOfRange, message) if message.contains("compacted") => FailureKind::Compacted,
        (Code::OutOfRange, _) => FailureKind::Behind,
        (Code::Unimplemented, _) => FailureKind::Refused,
        // Other texts with these codes come from the transport.
        (
            Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::ResourceExhausted,
            message,
        ) if message.starts_with("etcdserver: ") => FailureKind::Refused,
        _ => FailureKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_keeps_the_cause_that_an_earlier_attempt_saw() {
        let member = Arc::from("https://one:2379");
        for timeout in [MemberError::timed_out(&member), MemberError::login_timed_out(&member)] {
            let mut errors = MemberErrors::default();
            errors.add(MemberError::not_executed(&member, "invalid peer certificate"));
            errors.add(timeout.clone());
            assert_eq!(errors.to_string(), "https://one:2379: invalid peer certificate");
            assert_eq!(errors.kind(), timeout.kind);
        }
    }

    #[test]
    fn failures_are_classified_by_code_and_text() {
        for (code, message, kind) in [
            (Code::Unavailable, "etcdserver: no leader", FailureKind::NotExecuted),
            (Code::Unavailable, "etcdserver: request timed out", FailureKind::Unknown),
            (Code::Unavailable, "etcdserver: leader changed", FailureKind::Unknown),
            (Code::Unavailable, "transport error", FailureKind::Unknown),
            (Code::ResourceExhausted, "h2 protocol error: not a result of an error", FailureKind::Unknown),
            (Code::Unknown, "h2 protocol error: http2 error", FailureKind::Unknown),
            (Code::Cancelled, "operation was canceled", FailureKind::Unknown),
            (Code::DeadlineExceeded, "context deadline exceeded", FailureKind::Unknown),
            (Code::ResourceExhausted, "etcdserver: too many requests", FailureKind::NotExecuted),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", FailureKind::Refused),
            (Code::Unauthenticated, "etcdserver: invalid auth token", FailureKind::Unauthenticated),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", FailureKind::Unauthenticated),
            (Code::InvalidArgument, "etcdserver: user name is empty", FailureKind::Refused),
            (Code::PermissionDenied, "etcdserver: permission denied", FailureKind::Refused),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", FailureKind::Refused),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", FailureKind::Compacted),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", FailureKind::Behind),
            (Code::OutOfRange, "Error, decoded message length too large: found 5 bytes", FailureKind::TooLarge),
        ] {
            assert_eq!(super::kind(code, message, false), kind, "{message}");
            assert_eq!(super::kind(code, message, true), FailureKind::Unreachable, "{message}");
        }
    }
}
