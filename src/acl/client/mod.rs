//! A client of the access-control API: every call of the service as a function, its answers as types, its refusals as
//! errors that say who was refused and what was missing.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keyward::acl::client::{Client, NewToken, Options, Query, TokenFilter};
//!
//! let mut options = Options::at("https://access.example.com:8500".parse()?);
//! options.token = Some(keyward::secret::read_file("/etc/keyward/acl-token".as_ref())?);
//! let client = Client::new(&options)?;
//!
//! let new = NewToken { expiration_ttl: Some(Duration::from_secs(3600)), ..NewToken::default() };
//! let token = client.create_token(&new).await?;
//! let all = client.list_tokens(&TokenFilter::default(), &Query::default()).await?;
//! println!("{} is one of {} at index {}", token.accessor_id, all.value.len(), all.index);
//! # Ok(()) }
//! ```
//!
//! The token goes in a header, never in the query; redirects are not followed. A read that finds no connection, or loses
//! it, is tried three times; a write is sent once, since nobody knows whether one that broke off was done.

// 0: what goes over the wire
mod wire;
mod query;
pub mod error;

// 1: what the calls carry
mod link;

// 2: how a call is made
mod call;

// 3: the calls, one file a kind of resource
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

pub use auth_method::{AuthMethod, NewAuthMethod};
pub use authorize::{Question, Ruling};
pub use binding_rule::{BindingRule, NewBindingRule};
pub use call::{Client, Options};
pub use error::Error;
pub use link::{Link, Links, NodeIdentity, ServiceIdentity, TemplatedPolicy};
pub use namespace::{Namespace, NamespaceDefaults, NewNamespace};
pub use policy::{NewPolicy, Policy};
pub use query::{Consistency, Query, Reading};
pub use rekey::{Rekeyed, Verified};
pub use role::{NewRole, Role};
pub use session::Login;
pub use snapshot::{Restored, Snapshot};
pub use template::Template;
pub use token::{Expansion, NewToken, Token, TokenFilter, TokenUpdate};
