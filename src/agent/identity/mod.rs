//! Who this machine is: sources of what a login proves it with. The cloud's signed token first; files and a client
//! certificate for machines that have no cloud.

// Layer 0: words
mod endpoints;
mod error;
mod failure;
mod preflight;
mod env;

// Layer 1: what all sources stand on
mod token_response;
mod login_fields;
mod managed_identity_host;
mod retry;
mod transport;
mod token_proxy;
mod azure_sdk;

// Layer 2: one source each, and which one
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

// Layer 3: the whole
mod source;
mod method;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::agent::token::ClientToken;
use crate::jwt::UnverifiedClaims;

pub use approle::AppRole;
pub use endpoints::Endpoints;
pub use env::Variables;
pub use error::{Class, IdentityError};
pub use jwt_file::JwtFile;
pub use method::Method;
pub use preflight::{Look, Verdict, preflight};

/// The parameters of the `cloud` method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The resource that the identity token is asked for, as written.
    pub resource: String,
    /// The scope that environment sources ask for; `None` means the resource followed by `/.default`.
    pub scope: Option<String>,
    /// Where the identity comes from.
    pub from: From,
    /// Login fields that the configuration sets, in place of what the token or the machine says.
    pub overrides: LoginFields,
    /// The provider's variables, read from the environment once.
    pub variables: Variables,
    /// Where the cloud's services are.
    pub endpoints: Endpoints,
}

/// Where the identity comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// The machine itself: metadata service, App Service, Arc.
    Instance(ManagedIdentity),
    /// The provider's environment variables, in the provider's order.
    Environment,
}

/// Which of the machine's identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The machine's own, or its only one.
    System,
    /// The user-assigned one with this object id.
    ObjectId(String),
    /// The user-assigned one with this client id.
    ClientId(String),
}

/// Fields that a login may carry beside the proof. None of them is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFields {
    /// Subscription of the machine.
    pub subscription_id: Option<String>,
    /// Its resource group.
    pub resource_group_name: Option<String>,
    /// Name of the virtual machine.
    pub vm_name: Option<String>,
    /// Name of the scale set.
    pub vmss_name: Option<String>,
    /// Full id of another kind of resource that has the identity.
    pub resource_id: Option<String>,
}

/// A source of proofs.
#[async_trait]
pub trait IdentitySource: std::fmt::Debug + Send + Sync {
    /// Gets a fresh proof of who this machine is. Retries what is worth retrying at once; gives up within about 90 s.
    /// Dropping the future cancels it.
    ///
    /// # Errors
    /// Says what kind of trouble it is, with its cause and often with advice.
    async fn prove(&self) -> Result<IdentityProof, IdentityError>;

    /// The source in a few words for logs and status, such as `metadata service (client_id 1234...)`.
    fn describe(&self) -> String;
}

/// What a login proves an identity with.
#[derive(Debug)]
pub enum IdentityProof {
    /// A token that someone signed whom the server believes.
    Signed(Box<SignedToken>),
    /// An id of a role and, where the role wants one, the secret that goes with it.
    AppRole {
        /// The role's id.
        role_id: SecretString,
        /// Its secret id.
        secret_id: Option<SecretString>,
    },
    /// The client certificate of the connection, which the server has seen already.
    Certificate,
    /// A token of the server itself, which needs no login.
    Token(ClientToken),
}

/// A signed statement of who this machine is, and what else a login may want to say.
#[derive(Debug)]
pub struct SignedToken {
    /// The signed token; it is a credential.
    pub jwt: SecretString,
    /// What the login sends beside it.
    pub fields: LoginFields,
    /// What the token says of itself, where it can be read.
    pub claims: Option<UnverifiedClaims>,
    /// What the token was asked for from the cloud: the audience that it should carry. `None` if nobody here asked.
    pub audience: Option<String>,
}
