//! The emulated Azure, Vault and Terraform Enterprise.

mod axum_service;
mod cloud;
mod command;
mod openbao_recording;
pub(crate) mod platform;
mod secrets;
pub(crate) mod secrets_clients;
mod secrets_kv;
mod secrets_ssh;
mod show;
