//! Processes that hold sockets, by `/proc/PID/fd` and `/proc/PID/exe` (`proc(5)`).

use std::path::Path;

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process id.
    pub id: u32,
    /// Name of its executable.
    pub program: String,
    /// True if the executable is keyward, by its name or as the one that runs here.
    pub is_keyward: bool,
}

/// Returns the process of that id; `None` if this user may not see its executable.
pub(crate) fn with_id(id: u32) -> Option<Process> {
    let executable = std::fs::read_link(format!("/proc/{id}/exe")).ok()?;
    let text = executable.to_str()?;
    // An upgrade replaces the executable of a running process.
    let executable = Path::new(text.strip_suffix(" (deleted)").unwrap_or(text));
    let program = executable.file_name()?.to_str()?.to_owned();
    let is_keyward = program == "keyward" || std::env::current_exe().is_ok_and(|own| own == executable);
    Some(Process { id, program, is_keyward })
}

/// Returns the processes that have one of these sockets open, as far as this user may see them.
pub(crate) fn with_sockets(inodes: &[u64]) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders = ids.filter(|id| inodes.iter().any(|inode| has_socket(*id, *inode) == Some(true)));
    holders.filter_map(with_id).collect()
}

/// Returns true if a process has a socket open; `None` if its descriptors may not be read.
pub(crate) fn has_socket(id: u32, inode: u64) -> Option<bool> {
    let link_target = format!("socket:[{inode}]");
    let entries = std::fs::read_dir(format!("/proc/{id}/fd")).ok()?;
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Some(links.into_iter().any(|link| link.to_str() == Some(&link_target)))
}
