//! Errors of verifying an AWS principal.

/// Error of verifying a login, in the wording of Vault's auth plugin where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AwsError {
    /// A field of the login is missing.
    #[error("{0} is required")]
    Missing(&'static str),
    /// A field of the login is malformed.
    #[error("invalid signed request: {0}")]
    Malformed(&'static str),
    /// The URL is of no allowed endpoint.
    #[error("the signed request is for an endpoint of STS that this method does not allow: set regions")]
    Endpoint,
    /// A header is not one of the allowed ones.
    #[error("invalid request header: {0}")]
    Header(String),
    /// The header with the server's id is missing.
    #[error("missing header \"X-Vault-AWS-IAM-Server-ID\"")]
    NoServerId,
    /// The request is for another server.
    #[error("error validating X-Vault-AWS-IAM-Server-ID header: expected {expected:?} but got another")]
    ServerId {
        /// Id of this server.
        expected: String,
    },
    /// A header that decides is not signed.
    #[error("the header {0:?} is not signed")]
    Unsigned(&'static str),
    /// The scope of the signature is of another region or day.
    #[error("Credential should be scoped to a valid region, and to the day of X-Amz-Date")]
    Scope,
    /// The signature is too old.
    #[error("Signature expired: {date} is more than 5 minutes ago")]
    Expired {
        /// Time of the signature.
        date: String,
    },
    /// The signature is of the future.
    #[error("Signature not yet current: {date} is more than 5 minutes ahead")]
    NotYet {
        /// Time of the signature.
        date: String,
    },
    /// STS refused the request.
    #[error("error making upstream request: received error code {status} from STS: {code}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Code of the error.
        code: String,
    },
    /// STS cannot be reached, or fails.
    #[error("error making upstream request: {0}")]
    Unavailable(String),
    /// The answer of STS names no principal that could be bound.
    #[error("the answer of STS names no caller of this partition")]
    Answer,
    /// The account is not in the bound list.
    #[error("AWS account not authorized")]
    Account,
    /// The principal is not in the bound lists.
    #[error("IAM principal not authorized")]
    Principal,
}
