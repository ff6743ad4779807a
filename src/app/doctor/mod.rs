//! `keyward doctor`: checks of the machine, the service's unit, and all that the configuration connects to, beside a running
//! agent or without one.
//!
//! Units, rules and rights are checked by pure functions of strings and numbers; `diagnosis` reads the machine.

// 0: strings and numbers -> what they allow
pub(crate) mod unit_parser;
mod unit_sandbox;
mod rights;
mod remedies;
mod polkit;
mod peers;

// 1: the machine
mod sockets;
mod file_owners;
mod unit_files;
mod running_agent;

// 2: checks of one kind
mod files;
mod unit_checks;
mod listeners;
mod credentials;
mod unit_environment;

// 3: all checks
mod diagnosis;

// 4: a file for support
mod redact;
mod bundle;

pub use self::bundle::{create_bundle, write_bundle};
pub use self::diagnosis::{Diagnosis, Options, diagnose};
pub use self::redact::redact_text;
pub use self::running_agent::AgentContact;
