//! The commands, as people and scripts run them.

#[cfg(all(feature = "dev", feature = "acl"))]
mod acl_restore;
#[cfg(feature = "dev")]
mod commands;
#[cfg(feature = "dev")]
mod credentials;
mod check;
mod completion;
mod configuration;
mod explain;
mod flags;
#[cfg(feature = "dev")]
mod init;
#[cfg(feature = "dev")]
mod init_aks;
#[cfg(feature = "dev")]
mod init_commands;
mod manual;
#[cfg(feature = "dev")]
mod migrate;
#[cfg(feature = "dev")]
mod migrate_actions;
mod migrate_differences;
#[cfg(feature = "dev")]
mod migrate_folder;
#[cfg(feature = "dev")]
mod migrate_unit;
#[cfg(feature = "dev")]
mod once;
mod output;
#[cfg(feature = "dev")]
mod programs;
#[cfg(feature = "dev")]
mod agent_address;
#[cfg(feature = "dev")]
mod refresh;
#[cfg(feature = "dev")]
mod reload;
#[cfg(feature = "dev")]
mod retry;
mod status;
