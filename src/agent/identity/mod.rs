//! Identity sources: they get the proof that a login sends.
//!
//! The first is Azure's signed token; beside it stand those of AWS and Google Cloud, files, and a client certificate.

// Layer 0: values and errors
mod endpoints;
mod error;
mod preflight;
mod provider_variables;

// Layer 1: shared by all sources
mod token_response;
mod login_fields;
mod managed_identity_host;
mod retry;
mod attempts;
mod transport;
mod token_proxy;
mod azure_sdk;

// Layer 2: one source each, and the choice between them
mod app_service;
mod arc;
mod source_selection;
mod client_secret;
mod metadata;
mod workload;
mod client_certificate;
mod consumable_file;
mod approle;
mod jwt_file;
mod ci_token;
mod workload_api;
mod aws;
mod gcp;

// Layer 3: the source of a session
mod cloud_source;
mod shared_source;
mod method;
mod token_origin;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::ops::Deref;
use std::path::PathBuf;

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::secret_string::SecretString;

use crate::server_client::SignedCallerIdentity;
use crate::token::ClientToken;

pub use approle::AppRoleOptions;
pub use aws::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, AwsMachine, AwsRoleOptions, aws_machine, is_aws_region,
};
pub(crate) use aws::{AwsCredentials, AwsRoleExchange};
pub use ci_token::{CiTokenOptions, CiTokenOrigin};
pub use consumable_file::ConsumedSecrets;
pub use endpoints::CloudEndpoints;
pub use error::{IdentityError, IdentityErrorKind};
pub use gcp::{GcpEndpoints, GcpIdentityOptions, GcpMachine, GcpOrigin, gcp_machine};
pub use jwt_file::JwtFileOptions;
pub use metadata::machine_fields;
pub use method::{AwaitedCertificate, IdentityMethod};
pub(crate) use preflight::{PreflightVerdict, preflight};
pub use provider_variables::ProviderVariables;
pub(crate) use retry::NOT_REGISTERED;
pub(crate) use retry::TIME_LIMIT as PROOF_TIME_LIMIT;
pub use shared_source::SharedSource;
pub use token_origin::IdentityTokenOrigin;
pub(crate) use workload_api::{WorkloadApiError, X509Svid, X509SvidStream};
pub use workload_api::{WorkloadApiOptions, X509SvidOptions};

/// Options of the `cloud` method: an Azure identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudIdentityOptions {
    /// Resource (audience) of the identity token, byte for byte.
    pub resource: String,
    /// Scope that environment sources request; `None` means the resource followed by `/.default`.
    pub scope: Option<String>,
    /// Origin of the identity.
    pub from: IdentityOrigin,
    /// Login fields that override those of the token or the machine.
    pub overrides: LoginFields,
    /// Azure's environment variables, read once.
    pub variables: ProviderVariables,
    /// URLs and paths of Azure's services.
    pub endpoints: CloudEndpoints,
}

/// Origin of an Azure identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityOrigin {
    /// A managed identity of the machine: metadata service, App Service, Arc.
    Instance(ManagedIdentity),
    /// Azure's environment variables, in the order of Azure's SDKs.
    Environment,
}

/// One of the machine's managed identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The system-assigned identity, or the only one.
    System,
    /// The user-assigned identity with this object id.
    ObjectId(String),
    /// The user-assigned identity with this client id.
    ClientId(String),
}

/// Fields of a login beside the proof. None of them is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFields {
    /// Azure subscription of the machine.
    pub subscription_id: Option<String>,
    /// Resource group of the machine.
    pub resource_group_name: Option<String>,
    /// Name of the virtual machine.
    pub vm_name: Option<String>,
    /// Name of the scale set.
    pub vmss_name: Option<String>,
    /// Resource id of another kind of resource that has the identity.
    pub resource_id: Option<String>,
}

/// A source of identity proofs.
#[async_trait]
pub trait IdentitySource: std::fmt::Debug + Send + Sync {
    /// Gets a fresh proof. Retries temporary failures and gives up within about 90 s. Dropping the future cancels it.
    async fn prove(&self) -> Result<IdentityProof, IdentityError>;

    /// Describes the source for logs and status, such as `metadata service (client_id 1234...)`.
    fn describe(&self) -> String;

    /// Returns the files that the source reads for each proof. After a failure, a change of one of them is a reason to try again.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// Proof of an identity, which a login sends.
#[derive(Debug, Clone)]
pub enum IdentityProof {
    /// A token whose issuer the server trusts.
    Signed(Box<SignedToken>),
    /// A signed request that shows AWS who the caller is.
    CallerIdentity(Box<SignedCallerIdentity>),
    /// A role id and, if the role requires one, a secret id.
    AppRole {
        /// Role id.
        role_id: SecretString,
        /// Secret id.
        secret_id: Option<SecretString>,
    },
    /// The client certificate of the connection, which the TLS handshake has shown.
    Certificate,
    /// A token of the server itself, which is used without a login.
    Token(ClientToken),
}

/// A signed identity token, and the login fields that go with it.
#[derive(Debug, Clone)]
pub struct SignedToken {
    /// Signed token, which is a credential.
    pub jwt: SecretString,
    /// Login fields beside the token.
    pub fields: LoginFields,
    /// Claims of the token, unverified; `None` if it cannot be decoded.
    pub claims: Option<UnverifiedClaims>,
    /// Audience that was requested from a cloud; `None` for a token that was not requested here.
    pub audience: Option<RequestedAudience>,
}

/// Audience that a token was requested for, by the cloud that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedAudience {
    /// Of Azure, whose tokens have a tenant.
    Azure(String),
    /// Of Google Cloud.
    Google(String),
}

impl Deref for RequestedAudience {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Azure(audience) | Self::Google(audience) => audience,
        }
    }
}
