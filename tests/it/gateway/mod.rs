//! The gateway in front of the provisioning platform.

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
mod known;
#[cfg(feature = "dev")]
mod login;
#[cfg(feature = "dev")]
mod mint;
mod proxy;
#[cfg(feature = "dev")]
mod secret;
mod tokens;
