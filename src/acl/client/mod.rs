//! Client of the ACL API, keyward's or Consul's: typed records, responses and errors.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keyward_acl::client::{AclClient, NewToken, AclClientOptions, QueryOptions, Token, TokenListFilter};
//!
//! let mut options = AclClientOptions::for_url("https://acl.example.com:8500".parse()?);
//! options.token = Some(keyward_machine::secret::read_file("/etc/keyward/acl-token".as_ref())?);
//! let client = AclClient::new(&options)?;
//!
//! let new = NewToken { expiration_ttl: Some(Duration::from_secs(3600)), ..NewToken::default() };
//! let token: Token = client.create(&new).await?;
//! let all = client.list::<Token>(&TokenListFilter::default(), &QueryOptions::default()).await?;
//! println!("{} is one of {} at index {}", token.accessor_id, all.value.len(), all.index);
//! # Ok(()) }
//! ```
//!
//! The token is sent in a header, never in the query; redirects are not followed. A read is tried three times after connection
//! errors; a write is sent once, as an interrupted one may have been done.

// 0: queries and errors
mod query;
pub(crate) mod error;

// 1: the client
mod acl_client;

// 2: the calls: records, one file for each kind, and others
mod records;
mod policy;
mod role;
mod token;
mod namespace;
mod auth_method;
mod binding_rule;
mod template;
mod session;
mod oidc;
mod authorize;
mod rekey;
mod snapshot;

pub use crate::model::binding_rule::NewBindingRule;
pub use crate::model::links::{AclLink, AclLinks, NodeIdentity, ServiceIdentity, TemplatedPolicy};
pub use crate::model::namespace::{NamespaceDefaults, NewNamespace};
pub use crate::model::policy::NewPolicy;
pub use crate::model::role::NewRole;
pub use acl_client::{AclClient, AclClientOptions};
pub use auth_method::{AuthMethod, NewAuthMethod};
pub use authorize::{AuthorizationRequest, AuthorizationResponse};
pub use binding_rule::BindingRule;
pub use error::AclClientError;
pub use namespace::Namespace;
pub use oidc::{OidcAuthUrl, OidcBegin, OidcFinish};
pub use policy::Policy;
pub use query::{QueryOptions, ReadConsistency, ReadResponse};
pub use records::AclRecord;
pub use rekey::VerifyResponse;
pub use role::Role;
pub use session::LoginRequest;
pub use snapshot::SnapshotDownload;
pub use token::{NewToken, Token, TokenExpansion, TokenListFilter, TokenUpdate};
