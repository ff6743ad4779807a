//! HTTP for all parts: clients, the server with its only accept loop, the guard of local listeners, the reverse proxy,
//! the identity of local peers, calls of this process's own services, and the client for calls that carry secrets.

pub mod body_buffer;
pub(crate) mod resolution;
pub mod tls;
pub mod peer;
pub mod client;
pub mod server;
pub mod guard;
pub mod reverse_proxy;
pub mod audited;
pub mod in_process;
pub mod zeroizing_client;
