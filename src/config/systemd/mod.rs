//! Needs of a configuration beyond the packaged systemd unit (`packaging/systemd/keyward.service`), and the files that grant them.
//!
//! The unit lets keyward write its own two folders and run no other program. A configuration that asks for more needs a
//! drop-in, and a polkit rule where it has systemd reload a service. Everything here is pure.

// 0: words, and command lines of them; folders of the system
mod word_split;
mod command_lines;
mod system_folders;

// 1: the needs
mod needs;

// 2: the files
mod drop_in;
mod polkit;

pub use command_lines::{UnitAction, command_lines, raises_rights, unit_actions};
pub use needs::UnitNeeds;
pub use system_folders::is_system_folder;
pub use word_split::split_unit_words;
