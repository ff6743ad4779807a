//! Connections, from both ends: what listens, what guards, what forwards.

mod forward;
mod guard;
mod listen;
#[cfg(feature = "dev")]
mod listen_process;
#[cfg(feature = "dev")]
mod tls;
