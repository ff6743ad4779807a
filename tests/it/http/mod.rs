//! HTTP servers, the guard, and the reverse proxy.

#[cfg(feature = "dev")]
mod early_responses;
mod environment_proxy;
mod reverse_proxy;
mod guard;
#[cfg(feature = "dev")]
mod request_framing;
#[cfg(feature = "dev")]
mod body_memory;
mod server;
mod threads;
#[cfg(feature = "dev")]
mod server_process;
#[cfg(feature = "dev")]
mod stalled_bodies;
#[cfg(feature = "dev")]
mod connection_hoarding;
#[cfg(feature = "dev")]
pub(crate) mod tls;
