//! ACL server with Consul's API: tokens, roles, policies, namespaces, and logins that exchange a cloud identity for a token.
//!
//! A module imports only modules above it in this list.

// 0: metrics; records and rules, without IO
mod metrics;
pub mod model;

// 1: storage of the records
pub mod store;

// 2: operations on the records
pub mod service;

// 3: HTTP API and its client, independent of each other
pub mod api;
pub mod client;

// 4: the server as a whole
mod options;
mod lost_store;
mod server;

pub use self::lost_store::LostStoreError;
pub use self::metrics::AclMetrics;
pub use self::options::AclOptions;
pub use self::server::{AclOpenError, AclServer, begin_store};
