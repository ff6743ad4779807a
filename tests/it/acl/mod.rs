//! The ACL server: its API, its clients and its stores.

#[cfg(feature = "dev")]
mod cli_requests;
#[cfg(feature = "dev")]
mod cli_end_to_end;
#[cfg(feature = "dev")]
mod cli_updates;
mod response_cache;
mod audit;
mod client;
#[cfg(feature = "dev")]
pub(crate) mod third_party_clients;
#[cfg(feature = "dev")]
pub(crate) mod server_process;
mod disk;
#[cfg(feature = "etcd")]
mod etcd;
mod random_requests;
#[cfg(feature = "dev")]
mod histories;
mod http;
mod login;
mod oidc;
mod long_lists;
#[cfg(feature = "dev")]
mod lost_store;
mod auth_methods;
mod model;
mod namespaces;
mod permissions;
mod rekey;
mod removal;
#[cfg(feature = "dev")]
mod recovery;
#[cfg(feature = "dev")]
mod certificate_renewal;
mod bootstrap_reset;
mod policies;
mod roles;
#[cfg(feature = "fuzzing")]
mod selectors;
#[cfg(feature = "dev")]
mod configured_server;
#[cfg(feature = "dev")]
mod session;
mod snapshot;
mod store;
mod tokens;
mod unreadable;
mod vault_api;
mod blocking_queries;
