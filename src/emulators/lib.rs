//! Emulators: small real servers that run everything without an outside service. Each says in its `Server` header that
//! it is emulated, and can inject faults. `keyward dev` and the tests use the same ones.
//!
//! A module imports only modules above it in this list.

// 0: listeners
mod reserved_port;
mod axum_service;
mod control_listener;

// 1: the emulators, which do not import each other
pub mod cloud;
pub mod platform;
pub mod secrets;

pub use axum_service::axum_service;
pub use reserved_port::ReservedPort;
