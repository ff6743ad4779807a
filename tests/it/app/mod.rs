//! The complete program, as a service manager runs it.

mod audit;
mod cache_handover;
mod canary;
mod consumed_identities;
#[cfg(feature = "acl")]
mod disk_formats;
mod draining;
mod end_to_end;
mod hanging_sinks;
#[cfg(feature = "ui")]
mod issued_certificates;
#[cfg(feature = "acl")]
mod journal;
mod many_sessions;
mod memory;
mod offline;
mod proxy_tls;
mod reload;
mod reload_sockets;
mod restart;
mod rotation;
mod service_manager;
mod ssh_certificates;
mod state_folder;
mod vault_events;
mod workload_identity;
