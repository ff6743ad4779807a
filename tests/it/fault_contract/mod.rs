//! The fault contract: the program, an emulated Vault, a proxy that breaks their connections, and a watcher that asks for
//! the token all the time. `tests/faults` runs these cases and writes their report; docs/internals/fault-contract.md explains it.

mod record;
mod watcher;
mod case;
mod checks;
mod boot;
mod outage;
mod renewal;
mod refusals;
mod identity;
mod revoked;
mod tls;
mod names;
mod disk;
mod life;
mod child;
mod clocks;
mod backups;
mod kills;
mod mixed;
mod random;
