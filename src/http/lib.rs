//! HTTP for all crates of keyward: clients, the server with its only accept loop, the guard of local listeners, the reverse proxy,
//! the identity of local peers, and calls of this process's own services.
//!
//! A service is a function from [`server::Peer`] and request to response. [`server::Listener`] serves it, [`guard::Guard`] rejects
//! requests before it, and [`audited::AuditedService`] records them.
//!
//! A module imports only modules above it in this list.

// 0: bodies, names, certificates, processes, messages
pub mod body_buffer;
pub(crate) mod resolution;
pub mod tls;
pub mod peer;
pub(crate) mod http1;

// 1: calls to servers, and the server
pub mod client;
pub mod server;

// 2: around a service
pub mod guard;
pub mod reverse_proxy;
pub mod audited;

// 3: calls of services in this process
pub mod in_process;
