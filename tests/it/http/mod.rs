//! Connections, from both ends: what listens, what guards, what forwards.

#[cfg(feature = "dev")]
mod early_answers;
mod forward;
mod guard;
#[cfg(feature = "dev")]
mod heads;
#[cfg(feature = "dev")]
mod held_bodies;
mod listen;
#[cfg(feature = "dev")]
mod listen_process;
#[cfg(feature = "dev")]
mod slow_bodies;
#[cfg(feature = "dev")]
mod strangers;
#[cfg(feature = "dev")]
mod tls;
