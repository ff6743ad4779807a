//! The one test binary: the real parts on real sockets, with small fakes of the network that have dials.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::missing_docs_in_private_items,
    clippy::doc_markdown
)]

#[cfg(feature = "access")]
mod access;
#[cfg(feature = "access")]
mod acl_access;
mod acl_answers;
#[cfg(feature = "access")]
mod acl_audit;
#[cfg(feature = "access")]
mod acl_hammer;
#[cfg(feature = "access")]
mod acl_http;
#[cfg(feature = "access")]
mod acl_namespaces;
#[cfg(feature = "access")]
mod acl_removal;
#[cfg(feature = "access")]
mod acl_rekey;
#[cfg(feature = "access")]
mod acl_reset;
#[cfg(feature = "access")]
mod acl_waits;
#[cfg(feature = "access")]
mod acl_methods;
#[cfg(feature = "access")]
mod acl_model;
#[cfg(feature = "access")]
mod acl_login;
#[cfg(feature = "access")]
mod acl_roles;
#[cfg(feature = "dev")]
mod acl_session;
#[cfg(feature = "dev")]
mod acl_served;
#[cfg(feature = "access")]
mod acl_snapshot;
#[cfg(feature = "access")]
mod access_disk;
#[cfg(feature = "access")]
mod acl_tokens;
#[cfg(feature = "access")]
mod access_store;
#[cfg(feature = "access")]
mod acl_client;
#[cfg(feature = "etcd")]
mod acl_etcd;
#[cfg(feature = "gateway")]
mod changes;
#[cfg(feature = "dev")]
mod child;
#[cfg(feature = "dev")]
mod clients;
#[cfg(feature = "dev")]
mod dev_cloud;
#[cfg(feature = "dev")]
mod dev_command;
#[cfg(feature = "dev")]
mod derived;
#[cfg(feature = "dev")]
mod dev_secrets;
mod configs;
mod forward;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "dev")]
mod gateway_command;
#[cfg(feature = "gateway")]
mod gateway_history;
#[cfg(feature = "gateway")]
mod gateway_tokens;
#[cfg(feature = "dev")]
mod gateway_mint;
#[cfg(feature = "dev")]
mod gateway_secret;
#[cfg(feature = "access")]
mod fuzz_seeds;
mod guard;
#[cfg(feature = "dev")]
mod access_command;
#[cfg(feature = "dev")]
mod acl_commands;
#[cfg(feature = "dev")]
mod acl_people;
#[cfg(feature = "dev")]
mod canary;
#[cfg(feature = "dev")]
mod commands;
#[cfg(feature = "dev")]
mod end_to_end;
mod harness;
#[cfg(feature = "dev")]
mod identity;
#[cfg(feature = "dev")]
mod identity_requests;
mod listen;
#[cfg(feature = "dev")]
mod listen_process;
#[cfg(feature = "dev")]
mod kept_secrets;
mod local_api;
mod migrate;
#[cfg(feature = "dev")]
mod budget;
#[cfg(feature = "dev")]
mod lifecycle;
#[cfg(feature = "dev")]
mod lifecycle_doubt;
#[cfg(feature = "dev")]
mod lifecycle_faults;
#[cfg(feature = "dev")]
mod lifecycle_options;
#[cfg(feature = "dev")]
mod lifecycle_stuck;
#[cfg(feature = "dev")]
mod platform;
#[cfg(feature = "dev")]
mod platform_clients;
#[cfg(feature = "dev")]
mod platform_gateway;
#[cfg(feature = "dev")]
mod platform_lists;
#[cfg(feature = "dev")]
mod platform_modules;
#[cfg(feature = "dev")]
mod platform_tokens;
#[cfg(feature = "dev")]
mod programs;
#[cfg(feature = "dev")]
mod reach;
#[cfg(feature = "dev")]
mod reload;
#[cfg(feature = "dev")]
mod resume;
#[cfg(feature = "dev")]
mod api_proxy;
#[cfg(feature = "dev")]
mod api_proxy_bodies;
#[cfg(feature = "dev")]
mod api_proxy_cache;
#[cfg(feature = "dev")]
mod api_proxy_clients;
#[cfg(feature = "dev")]
mod api_proxy_heal;
#[cfg(feature = "dev")]
mod api_proxy_served;
mod atomic_file;
#[cfg(feature = "dev")]
mod secrets_clients;
#[cfg(feature = "dev")]
mod service_manager;
mod sinks;
mod tidy;
#[cfg(feature = "dev")]
mod login;
#[cfg(feature = "dev")]
mod login_methods;
#[cfg(feature = "dev")]
mod templates;
#[cfg(feature = "dev")]
mod upstream;
