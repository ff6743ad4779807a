//! Client of the ACL API, keyward's or Consul's: each call as a function, with typed responses and errors.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keyward_acl::client::{AclClient, NewToken, AclClientOptions, QueryOptions, TokenListFilter};
//!
//! let mut options = AclClientOptions::for_url("https://acl.example.com:8500".parse()?);
//! options.token = Some(keyward_machine::secret::read_file("/etc/keyward/acl-token".as_ref())?);
//! let client = AclClient::new(&options)?;
//!
//! let new = NewToken { expiration_ttl: Some(Duration::from_secs(3600)), ..NewToken::default() };
//! let token = client.create_token(&new).await?;
//! let all = client.list_tokens(&TokenListFilter::default(), &QueryOptions::default()).await?;
//! println!("{} is one of {} at index {}", token.accessor_id, all.value.len(), all.index);
//! # Ok(()) }
//! ```
//!
//! The token is sent in a header, never in the query; redirects are not followed. A read is tried three times after connection
//! errors; a write is sent once, as an interrupted one may have been done.

// 0: wire format
mod go_json;
mod query;
pub(crate) mod error;

// 1: shared types
mod link;

// 2: the client
mod acl_client;

// 3: the calls, one file for each kind of record
mod policy;
mod role;
mod token;
mod namespace;
mod auth_method;
mod binding_rule;
mod template;
mod session;
mod authorize;
mod rekey;
mod snapshot;

pub use acl_client::{AclClient, AclClientOptions};
pub use auth_method::{AuthMethod, NewAuthMethod};
pub use authorize::{AuthorizationRequest, AuthorizationResponse};
pub use binding_rule::{BindingRule, NewBindingRule};
pub use error::AclClientError;
pub use link::{AclLink, AclLinks, AclNodeIdentity, AclServiceIdentity, AclTemplatedPolicy};
pub use namespace::{Namespace, NamespaceDefaults, NewNamespace};
pub use policy::{NewPolicy, Policy};
pub use query::{QueryOptions, ReadConsistency, ReadResponse};
pub use rekey::VerifyResponse;
pub use role::{NewRole, Role};
pub use session::LoginRequest;
pub use snapshot::SnapshotDownload;
pub use token::{NewToken, Token, TokenExpansion, TokenListFilter, TokenUpdate};
