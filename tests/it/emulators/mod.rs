//! What stands in for the outside world: the emulated cloud, secrets server and platform.

mod axum_service;
mod cloud;
mod command;
pub(crate) mod platform;
mod secrets;
pub(crate) mod secrets_clients;
mod show;
