//! The ACL server: its API, its clients and its stores.

#[cfg(feature = "dev")]
mod acl_commands;
#[cfg(feature = "dev")]
mod acl_people;
mod response_cache;
mod audit;
mod client;
#[cfg(feature = "dev")]
pub(crate) mod clients;
#[cfg(feature = "dev")]
pub(crate) mod command;
mod disk;
#[cfg(feature = "etcd")]
mod etcd;
mod random_requests;
mod http;
mod login;
#[cfg(feature = "dev")]
mod lost_store;
mod methods;
mod model;
mod namespaces;
mod permissions;
mod rekey;
mod removal;
#[cfg(feature = "dev")]
mod renewal;
mod reset;
mod roles;
#[cfg(feature = "dev")]
mod served;
#[cfg(feature = "dev")]
mod session;
mod snapshot;
mod store;
mod tokens;
mod unreadable;
mod vault_api;
mod waits;
