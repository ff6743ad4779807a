//! Text of the drop-in.

use super::UnitNeeds;

impl UnitNeeds {
    /// Name of the drop-in's file.
    pub const DROP_IN_NAME: &'static str = "50-rights.conf";

    /// Folder of the drop-in's file on the machine that runs the unit.
    pub const DROP_IN_FOLDER: &'static str = "/etc/systemd/system/keyward.service.d";

    /// Formats the drop-in; `None` if the packaged unit is enough.
    pub fn drop_in(&self) -> Option<String> {
        let mut text = String::new();
        let mut add = |comment: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                text.extend(["# ", comment, "\n"]);
                text.extend(lines.iter().flat_map(|line| [line, "\n"]));
            }
        };
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
        if text.is_empty() {
            return None;
        }
        if self.process {
            text.push_str("# The child process has the unit's limits too: MemoryMax=, TasksMax=, LimitNOFILE=.\n");
        }
        if self.azure_variables {
            text.push_str("# Environment=AZURE_CLIENT_ID=... AZURE_TENANT_ID=... AZURE_FEDERATED_TOKEN_FILE=...\n");
        }
        Some(format!(
            "# What this machine's configuration of keyward needs beyond the packaged unit.\n[Service]\n{text}"
        ))
    }
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
