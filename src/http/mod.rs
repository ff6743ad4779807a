//! What every part that speaks HTTP stands on: the only accept loop, the guard in front of local callers, clients,
//! and the forwarding of requests.

pub mod body_buffer;
pub mod tls;
pub mod client;
pub mod server;
pub mod guard;
pub mod reverse_proxy;
