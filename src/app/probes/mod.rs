//! Probes of what the configuration connects to, for `check --online` and for `doctor`: names, connections, certificates,
//! clocks, the identity, a login that is revoked at once, and its rights.

// 0: time limits
mod limits;

// 1: the connection to a server
mod connection;

// 2: one file a kind of peer
mod rights;
mod session;
mod tool_identity;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "etcd")]
mod etcd;

pub(crate) use self::connection::{describe_expiry, resolve_host};
#[cfg(feature = "etcd")]
pub(crate) use self::etcd::check_etcd;
#[cfg(feature = "gateway")]
pub use self::gateway::check_gateway;
#[cfg(feature = "gateway")]
pub(crate) use self::gateway::platform_client;
pub use self::limits::Limits;
pub use self::session::check_session;
pub use self::tool_identity::check_tool_identity;
