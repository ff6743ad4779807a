//! System calls, protected memory, clocks, files and processes, for all crates of keyward.
//!
//! Gives them `clock` (two clocks in one reading, which tests can drive), `atomic_file` and `secure_dir` (files that are replaced
//! by descriptor), `versioned_folder` (several files at once), `secret` and `secret_string` (secrets from files, in protected memory), `command` (child processes and
//! the spawner) and `tasks`. `unsafe` is in `os` only.
//!
//! A module imports only modules above it in this list.

// 0: system calls without a safe binding
pub mod os;

// 1: protected memory, and the clocks
pub mod secret_string;
pub mod clock;

// 2: files
pub mod file_watch;
pub(crate) mod beneath;
pub mod posix_acl;
pub mod secure_dir;
pub mod atomic_file;
pub mod versioned_folder;
pub mod secret;

// 3: processes and tasks
pub mod command;
pub mod tasks;
