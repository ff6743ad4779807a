//! What went wrong in a call to a member, and what that says about the call.

use std::error::Error;
use std::sync::Arc;

use etcd_client::Error as ClientError;
use tonic::{Code, ConnectError};

use crate::acl::store::{CommitError, StoreError};
use crate::error_chain::describe_error;

/// A call that failed, with the member that it was for. Holds no secret: etcd repeats none.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{member}: {text}")]
pub(super) struct Trouble {
    pub(super) member: Arc<str>,
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// What a failure says about the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There was no connection: it was not carried out.
    NotReached,
    /// The member did not take it on, and another may.
    NotDone,
    /// The login does not count any more; it was not carried out.
    LoggedOut,
    /// It was refused for good.
    Refused,
    /// This member has not come to that revision yet.
    Behind,
    /// That revision is compacted away.
    Compacted,
    /// The answer is larger than a message may be.
    TooMuch,
    /// Whether it was carried out is not known.
    Unclear,
    /// The same, as there was no answer in time.
    Silent,
}

impl Trouble {
    /// From what the client says.
    pub(super) fn told(member: &Arc<str>, error: &ClientError) -> Self {
        let (text, kind) = match error {
            ClientError::GRpcStatus(status) => {
                let causes = causes(status);
                let unsent = causes.iter().any(|cause| cause.is::<ConnectError>());
                let mut text = status.message().to_owned();
                for cause in causes.iter().map(|cause| describe_error(*cause)) {
                    if !text.contains(&cause) {
                        text = format!("{text}: {cause}");
                    }
                }
                (text, kind(status.code(), status.message(), unsent))
            }
            other => (other.to_string(), Kind::Unclear),
        };
        Self { member: Arc::clone(member), text, kind }
    }

    /// It gave no answer in time.
    pub(super) fn silent(member: &Arc<str>) -> Self {
        Self { member: Arc::clone(member), text: "no answer in time".to_owned(), kind: Kind::Silent }
    }

    /// It was not carried out, and why.
    pub(super) fn not_done(member: &Arc<str>, text: impl Into<String>) -> Self {
        Self { member: Arc::clone(member), text: text.into(), kind: Kind::NotDone }
    }
}

/// What went wrong at each member that was asked, the latest last.
#[derive(Debug, Clone, Default, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(super) struct Troubles(Vec<Trouble>);

impl Troubles {
    /// Adds one, in place of what the member said before; that it is silent now says less than what it said.
    pub(super) fn add(&mut self, mut trouble: Trouble) {
        if let Some(place) = self.0.iter().position(|other| other.member == trouble.member) {
            let before = self.0.remove(place);
            if trouble.kind == Kind::Silent {
                trouble.text = before.text;
            }
        }
        self.0.push(trouble);
    }

    /// Tells if etcd's quota is used up: it takes no writes, and says so (`ErrNoSpace`).
    fn is_full(&self) -> bool {
        self.0.last().is_some_and(|last| last.text.contains("database space exceeded"))
    }

    /// What the last one says about the call.
    pub(super) fn kind(&self) -> Kind {
        self.0.last().map_or(Kind::Unclear, |last| last.kind)
    }
}

impl From<Trouble> for Troubles {
    fn from(trouble: Trouble) -> Self {
        Self(vec![trouble])
    }
}

impl From<Troubles> for StoreError {
    fn from(troubles: Troubles) -> Self {
        match troubles.kind() {
            Kind::Refused if troubles.is_full() => Self::Full(Arc::new(troubles)),
            Kind::Refused | Kind::TooMuch => Self::Failed(Arc::new(troubles)),
            _ => Self::Unavailable(Arc::new(troubles)),
        }
    }
}

impl From<Troubles> for CommitError {
    fn from(troubles: Troubles) -> Self {
        match troubles.kind() {
            Kind::Unclear | Kind::Silent | Kind::TooMuch => Self::Unknown(troubles.into()),
            _ => Self::Store(troubles.into()),
        }
    }
}

fn causes<'a>(status: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source()).collect()
}

/// Codes and words of etcd 3.4 to 3.6 (`api/v3rpc/rpctypes/error.go`).
fn kind(code: Code, message: &str, unsent: bool) -> Kind {
    match (code, message) {
        _ if unsent => Kind::NotReached,
        // By a member that has no leader, before it takes a request on; by one that has too much to do.
        (Code::Unavailable, "etcdserver: no leader") | (Code::ResourceExhausted, "etcdserver: too many requests") => {
            Kind::NotDone
        }
        // The second: users or roles were changed since the login.
        (Code::Unauthenticated, _) | (Code::InvalidArgument, "etcdserver: revision of auth store is old") => {
            Kind::LoggedOut
        }
        (Code::OutOfRange, message) if message.contains("decoded message length") => Kind::TooMuch,
        (Code::OutOfRange, message) if message.contains("compacted") => Kind::Compacted,
        (Code::OutOfRange, _) => Kind::Behind,
        (Code::Unimplemented, _) => Kind::Refused,
        // Other words with these codes are the transport's.
        (
            Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::ResourceExhausted,
            message,
        ) if message.starts_with("etcdserver: ") => Kind::Refused,
        _ => Kind::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_says_about_the_call() {
        for (code, message, kind) in [
            (Code::Unavailable, "etcdserver: no leader", Kind::NotDone),
            (Code::Unavailable, "etcdserver: request timed out", Kind::Unclear),
            (Code::Unavailable, "etcdserver: leader changed", Kind::Unclear),
            (Code::Unavailable, "transport error", Kind::Unclear),
            (Code::ResourceExhausted, "h2 protocol error: not a result of an error", Kind::Unclear),
            (Code::Unknown, "h2 protocol error: http2 error", Kind::Unclear),
            (Code::Cancelled, "operation was canceled", Kind::Unclear),
            (Code::DeadlineExceeded, "context deadline exceeded", Kind::Unclear),
            (Code::ResourceExhausted, "etcdserver: too many requests", Kind::NotDone),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Kind::Refused),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Kind::LoggedOut),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Kind::LoggedOut),
            (Code::InvalidArgument, "etcdserver: user name is empty", Kind::Refused),
            (Code::PermissionDenied, "etcdserver: permission denied", Kind::Refused),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Kind::Refused),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Kind::Compacted),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", Kind::Behind),
            (Code::OutOfRange, "Error, decoded message length too large: found 5 bytes", Kind::TooMuch),
        ] {
            assert_eq!(super::kind(code, message, false), kind, "{message}");
            assert_eq!(super::kind(code, message, true), Kind::NotReached, "{message}");
        }
    }
}
