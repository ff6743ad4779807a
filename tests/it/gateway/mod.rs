//! The gateway in front of HCP Terraform or Terraform Enterprise.

mod responses;
#[cfg(feature = "dev")]
mod changes;
#[cfg(feature = "dev")]
mod child;
#[cfg(feature = "dev")]
mod clients;
#[cfg(feature = "dev")]
mod command;
#[cfg(feature = "dev")]
mod exec;
mod history;
mod server_detection;
mod lists;
#[cfg(feature = "dev")]
mod login;
#[cfg(feature = "dev")]
mod mint;
#[cfg(feature = "dev")]
mod online;
mod proxy;
#[cfg(feature = "dev")]
mod reload;
mod replacements;
#[cfg(feature = "dev")]
mod secret;
mod tokens;
