//! Text of the drop-in.

use std::path::{Path, PathBuf};

use super::UnitNeeds;
use super::needs::{is_hidden, is_home};
use super::system_folders::is_system_folder;

impl UnitNeeds {
    /// Name of the drop-in's file.
    pub const DROP_IN_NAME: &'static str = "50-outputs.conf";

    /// Folder of the drop-in's file on the machine that runs the unit.
    pub const DROP_IN_FOLDER: &'static str = "/etc/systemd/system/keyward.service.d";

    /// Formats the drop-in; `None` if the packaged unit is enough.
    pub fn drop_in(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut text =
            "# What this machine's configuration of keyward needs beyond the packaged unit.\n[Service]\n".to_owned();
        let mut add = |comment: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                text.extend(["# ", comment, "\n"]);
                text.extend(lines.iter().flat_map(|line| [line, "\n"]));
            }
        };
        let (hidden, open): (Vec<_>, Vec<_>) = self.writable.iter().partition(|path| is_hidden(path));
        let writable = open.iter().map(|path| assign_writable("ReadWritePaths", path)).collect();
        add(
            "Folders that are written. They must be there when the service starts, and user keyward must be able to write them.",
            writable,
        );
        let mut bound = Vec::new();
        if self.writable.iter().chain(&self.readable).any(|path| is_home(path)) {
            // An empty tmpfs in place of all home folders, with the bound folders in it (systemd.exec(5)).
            bound.push("ProtectHome=tmpfs".to_owned());
        }
        bound.extend(hidden.iter().map(|path| assign_writable("BindPaths", path)));
        bound.extend(self.readable.iter().map(|path| assign("BindReadOnlyPaths", path)));
        add("Of the home folders and the folders for temporary files, keyward sees only these.", bound);
        let programs = self.programs.iter().map(|program| exec_paths(program)).collect();
        add("Programs that are run. A script needs its interpreter here too, and each program that it runs.", programs);
        let groups = self.groups.iter().map(|group| assign_group(group)).collect();
        add("Groups that files and sockets are given to.", groups);
        let mut capabilities = Vec::new();
        for (needed, capability) in [(self.chown, "CAP_CHOWN"), (self.low_ports, "CAP_NET_BIND_SERVICE")] {
            if needed {
                capabilities.push(format!("CapabilityBoundingSet={capability}"));
                capabilities.push(format!("AmbientCapabilities={capability}"));
            }
        }
        add("Files for other users (CAP_CHOWN), or ports below 1024 (CAP_NET_BIND_SERVICE).", capabilities);
        let executables =
            ["CapabilityBoundingSet=CAP_SYS_PTRACE", "AmbientCapabilities=CAP_SYS_PTRACE", "ProtectProc=default"];
        let executables = executables.iter().filter(|_| self.executables).map(|&line| line.to_owned()).collect();
        add("Callers that are known by their executables.", executables);
        let files = self.open_files.map(|files| format!("LimitNOFILE={files}")).into_iter().collect();
        add(
            "Connections of the ACL server and the gateway. Each blocking query takes 24 KiB more of MemoryMax=.",
            files,
        );
        if self.process {
            text.push_str("# The child process has the unit's limits too: MemoryMax=, TasksMax=, LimitNOFILE=.\n");
        }
        if self.azure_variables {
            text.push_str("# Environment=AZURE_CLIENT_ID=... AZURE_TENANT_ID=... AZURE_FEDERATED_TOKEN_FILE=...\n");
        }
        Some(text)
    }
}

/// Formats `ExecPaths=` for one program. A bare name may be in any folder of the unit's `PATH`.
fn exec_paths(program: &str) -> String {
    let path = PathBuf::from(program);
    let programs: Vec<PathBuf> = if path.is_absolute() {
        vec![path]
    } else {
        PATH.iter().map(|folder| Path::new(folder).join(program)).collect()
    };
    let escaped: Option<Vec<String>> = programs.iter().map(|path| escape(path)).collect();
    match escaped {
        Some(paths) => format!("ExecPaths={}", paths.join(" ")),
        None => format!("# ExecPaths= cannot name the program {program:?}"),
    }
}

/// Folders of the `PATH` that systemd gives to services (`DEFAULT_PATH` in systemd).
const PATH: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// Writes a path as a unit file takes it, behind a `-` by which a missing one is not an error: with `%` doubled, and quoted if it
/// has spaces. `None` for what a unit file cannot hold:
/// there is no escape for quotes, backslashes and control characters in a list of paths (`systemd.exec(5)`).
fn escape(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    if text.contains(|c: char| c.is_control() || matches!(c, '"' | '\'' | '\\')) {
        return None;
    }
    let text = text.replace('%', "%%");
    Some(if text.contains(' ') { format!("\"-{text}\"") } else { format!("-{text}") })
}

/// Formats `KEY=-PATH`, or a comment for a path that a unit file cannot hold.
fn assign(key: &str, path: &Path) -> String {
    match escape(path) {
        Some(path) => format!("{key}={path}"),
        None => format!("# {key}= cannot name the path {:?}", path.display().to_string()),
    }
}

/// Formats the setting of a folder that is written, or a comment for one that other programs share.
fn assign_writable(key: &str, folder: &Path) -> String {
    if is_system_folder(folder) {
        let path = folder.display().to_string();
        return format!("# {key}= is left out for the shared folder {path:?}: name a path in a folder of its own.");
    }
    assign(key, folder)
}

/// Formats the group, or a comment for a string that is not the name of a group.
fn assign_group(group: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !group.is_empty() && group.bytes().all(is_plain) {
        format!("SupplementaryGroups={group}")
    } else {
        format!("# SupplementaryGroups= cannot name the group {group:?}")
    }
}
