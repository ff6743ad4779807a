//! The gateway in front of the provisioning platform.

mod changes;
#[cfg(feature = "dev")]
mod child;
#[cfg(feature = "dev")]
mod clients;
#[cfg(feature = "dev")]
mod command;
mod history;
#[cfg(feature = "dev")]
mod mint;
mod known;
mod proxy;
#[cfg(feature = "dev")]
mod secret;
mod tokens;
