//! The needs themselves, computed from a configuration that was read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyward_agent::identity::{IdentityMethod, IdentityOrigin};
use keyward_http::server::Endpoint;

use super::command_lines::{UnitAction, command_lines, unit_actions};
use crate::{LoadOutcome, Need, NeedKind, OpenFiles};

/// Rights beyond the packaged unit's that a configuration needs. Empty if the unit is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitNeeds {
    /// Folders that user keyward must be able to write, beyond those of the unit. It replaces files by rename, so the folder must be
    /// writable, not only the file.
    pub writable: BTreeSet<PathBuf>,
    /// Groups that files and sockets are given to; keyward must be a member.
    pub(crate) groups: BTreeSet<String>,
    /// True if files are given to another user.
    pub(crate) chown: bool,
    /// True if callers are known by the executables that they run.
    pub executables: bool,
    /// True if a listener has a port below 1024.
    pub low_ports: bool,
    /// Open files, if the unit's limit is too low.
    pub(crate) open_files: Option<usize>,
    /// Operations that keyward asks systemd for, on other units.
    pub(crate) unit_actions: BTreeSet<UnitAction>,
    /// True if a session takes its identity from variables of Azure, which the unit has to set.
    pub(crate) azure_variables: bool,
    /// True if keyward runs a child process, to which the unit's limits apply too.
    pub(crate) process: bool,
}

impl UnitNeeds {
    /// Computes the needs; `None` if the configuration has errors.
    pub fn new(outcome: &LoadOutcome) -> Option<Self> {
        let config = outcome.config.as_ref()?;
        let is_of_environment = |identity: &IdentityMethod| match identity {
            IdentityMethod::Cloud(options) => options.from == IdentityOrigin::Environment,
            _ => false,
        };
        let identities = config.identities.iter().map(|identity| identity.origin.to_method(""));
        let mut needs = Self {
            executables: config.callers.as_ref().is_some_and(|callers| !callers.executables().is_empty()),
            open_files: Some(OpenFiles::new(config).total()).filter(|files| *files > UNIT_OPEN_FILES),
            azure_variables: config.sessions.iter().any(|session| is_of_environment(&session.identity))
                || identities.into_iter().any(|identity| is_of_environment(&identity)),
            process: config.process.is_some(),
            ..Self::default()
        };
        for need in &outcome.needs {
            needs.add(need);
        }
        let all = needs.writable.clone();
        needs.writable.retain(|path| !all.iter().any(|folder| path != folder && path.starts_with(folder)));
        Some(needs)
    }

    fn add(&mut self, need: &Need) {
        match &need.kind {
            NeedKind::Run(command) => {
                self.unit_actions.extend(command_lines(command).iter().flat_map(|line| unit_actions(line)));
            }
            NeedKind::Listen(Endpoint::Tcp(address)) => self.low_ports |= (1..1024).contains(&address.port()),
            NeedKind::Owner(user, _) => self.chown |= user != SERVICE_ACCOUNT,
            NeedKind::Group(group, _) if group != SERVICE_ACCOUNT => self.groups.extend([group.clone()]),
            _ => {}
        }
        let is_of_unit = |folder: &Path| UNIT_FOLDERS.iter().any(|parent| folder.starts_with(parent));
        self.writable.extend(need.written_folder().filter(|folder| !is_of_unit(folder)).map(Path::to_owned));
    }
}

/// User and group of the packaged unit.
pub(super) const SERVICE_ACCOUNT: &str = "keyward";

/// Folders of the packaged unit: `RuntimeDirectory=` and `StateDirectory=`.
const UNIT_FOLDERS: [&str; 2] = ["/run/keyward", "/var/lib/keyward"];

/// `LimitNOFILE=` of the packaged unit.
const UNIT_OPEN_FILES: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_unit_is_as_the_constants_say() {
        let unit = include_str!("../../../packaging/systemd/keyward.service");
        let has = |line: &str| assert!(unit.lines().any(|other| other == line), "{line}");
        has("User=keyward");
        has("Group=keyward");
        has("RuntimeDirectory=keyward");
        has("StateDirectory=keyward");
        has(&format!("LimitNOFILE={UNIT_OPEN_FILES}"));
    }
}
