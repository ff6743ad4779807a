//! Needs of a configuration beyond the packaged systemd unit (`packaging/systemd/keyward.service`), and the files that grant them.
//!
//! The unit lets keyward write its own two folders and run no other program. A configuration that asks for more needs a
//! drop-in, and a polkit rule where it has systemd reload a service. Everything here is pure.

// 0: command lines
mod command_lines;

// 1: the needs
mod needs;

// 2: the files
mod drop_in;
mod polkit;

pub use needs::{UnitAction, UnitNeeds};
