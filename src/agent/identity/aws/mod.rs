//! AWS: a signed request for the caller's identity, which Vault and OpenBao send on to AWS (their method `aws`, type `iam`).
//!
//! The type `ec2` is left out: its proof is a document that every process of the machine can read and that never changes.

// Layer 0: URLs, and from where the credentials come
mod endpoints;
mod credentials;
mod container;
mod selection;

// Layer 1: their requests, and the signature
mod instance;
mod profile;
mod web_identity;
mod signature;

// Layer 2: the source
mod source;
mod role_exchange;

use crate::identity::ProviderVariables;

pub(crate) use credentials::AwsCredentials;
pub use endpoints::{AwsEndpoints, is_region as is_aws_region};
pub use instance::{AwsMachine, aws_machine};
pub(crate) use role_exchange::AwsRoleExchange;
pub use role_exchange::AwsRoleOptions;
pub use selection::AwsCredentialOrigin;

/// Options of the `aws` method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsIdentityOptions {
    /// Origin of the credentials.
    pub origin: AwsCredentialOrigin,
    /// Value of the header `X-Vault-AWS-IAM-Server-ID`, if the server requires one.
    pub server_id: Option<String>,
    /// Region of STS whose endpoint the server uses; `None` for the global endpoint.
    pub region: Option<String>,
    /// Variables of AWS, read once.
    pub variables: ProviderVariables,
    /// URLs of AWS's services.
    pub endpoints: AwsEndpoints,
}
