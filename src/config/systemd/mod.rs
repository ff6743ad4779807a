//! Needs of a configuration beyond the packaged systemd unit (`packaging/systemd/keyward.service`), and the files that grant them.
//!
//! keyward gives up by itself what its configuration does not need. The service manager alone can give more: groups, capabilities and
//! open files by a drop-in, and control of other units by a polkit rule. Everything here is pure.

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
