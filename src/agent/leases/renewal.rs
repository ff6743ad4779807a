//! Meaning of a failed renewal for the lease.

use crate::server_client::{CallError, TokenVerdict};

/// Reason why a lease was not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalFailure {
    /// The server did not respond, or failed: the lease remains valid, and is renewed later.
    Outage,
    /// The server may not know the token of the call any more. A token that renewed itself has ended; of the session's token,
    /// the session finds that out.
    SuspectToken,
    /// The server refuses to renew the lease; it is valid to its end, unless it was revoked.
    Refused,
}

impl RenewalFailure {
    pub(crate) fn from_error(error: &CallError) -> Self {
        match error.verdict() {
            TokenVerdict::Unavailable => Self::Outage,
            TokenVerdict::Dead | TokenVerdict::Suspect => Self::SuspectToken,
            TokenVerdict::Denied | TokenVerdict::Refused => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_renewal_ends_no_lease_unless_the_server_says_so() {
        let check = |status, text: &str, expected| {
            let errors = vec![text.to_owned()];
            let error = CallError::Status { status, errors, retry_after: None, date: None };
            assert_eq!(RenewalFailure::from_error(&error), expected, "{error}");
        };
        check(503, "Vault is sealed", RenewalFailure::Outage);
        check(429, "rate limit", RenewalFailure::Outage);
        check(403, "invalid token", RenewalFailure::SuspectToken);
        check(403, "permission denied", RenewalFailure::SuspectToken);
        check(403, "1 error occurred:\n\t* permission denied\n\n", RenewalFailure::Refused);
        check(400, "lease not found", RenewalFailure::Refused);
        check(400, "lease is not renewable", RenewalFailure::Refused);
        let broken = CallError::Unreachable { cause: "connection refused".to_owned() };
        assert_eq!(RenewalFailure::from_error(&broken), RenewalFailure::Outage);
    }
}
