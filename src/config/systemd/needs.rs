//! The needs themselves, computed from a configuration that was read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyward_agent::identity::{IdentityMethod, IdentityOrigin};
use keyward_agent::templates::TemplateFile;
use keyward_http::server::Endpoint;

use super::command_lines::{UnitAction, command_lines, unit_actions};
use crate::{Config, FileOwners, Listener, LoadOutcome, OpenFiles, Session};

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
        Some(Self::of_config(outcome.config.as_ref()?, &outcome.accounts))
    }

    fn of_config(config: &Config, accounts: &FileOwners) -> Self {
        let mut needs = Self::default();
        for session in &config.sessions {
            needs.add_session(session);
        }
        for sink in &config.sinks {
            needs.write_file(&sink.options.path);
        }
        let credentials = config.listeners.iter().flat_map(Listener::credential_templates);
        for template in config.templates.iter().chain(&config.env_templates).chain(credentials) {
            let source = &template.options.text;
            source.write_folders.iter().for_each(|folder| needs.write(folder));
            if let Some(file) = &template.options.file {
                needs.add_file(file);
            }
        }
        if let Some(process) = &config.process {
            needs.run(&process.command);
            needs.process = true;
        }
        for listener in &config.listeners {
            needs.listen(&listener.endpoint);
        }
        if let Some(folder) = &config.agent.state_dir {
            needs.write(folder);
        }
        #[cfg(feature = "acl")]
        needs.add_acl(config);
        #[cfg(feature = "gateway")]
        needs.add_gateway(config);
        needs.open_files = Some(OpenFiles::new(config).total()).filter(|files| *files > UNIT_OPEN_FILES);
        needs.groups = accounts.groups.iter().filter(|group| *group != SERVICE_ACCOUNT).cloned().collect();
        needs.executables = config.callers.as_ref().is_some_and(|callers| !callers.executables().is_empty());
        needs.chown = accounts.users.iter().any(|user| user != SERVICE_ACCOUNT);
        needs.drop_covered();
        needs
    }

    fn add_session(&mut self, session: &Session) {
        match &session.identity {
            IdentityMethod::Cloud(options) => self.azure_variables |= options.from == IdentityOrigin::Environment,
            IdentityMethod::Jwt(options) if options.remove => self.write_file(&options.file),
            IdentityMethod::AppRole(options) if options.remove_secret_id => {
                options.secret_id_file.iter().for_each(|file| self.write_file(file));
            }
            _ => {}
        }
    }

    fn add_file(&mut self, file: &TemplateFile) {
        self.write_file(&file.destination);
        if let Some(command) = &file.command {
            self.run(&command.command);
        }
    }

    #[cfg(feature = "acl")]
    fn add_acl(&mut self, config: &Config) {
        let Some(acl) = &config.acl else { return };
        acl.endpoints.iter().for_each(|endpoint| self.listen(endpoint));
        if let Some(folder) = acl.service.store.folder() {
            self.write(folder);
        }
    }

    #[cfg(feature = "gateway")]
    fn add_gateway(&mut self, config: &Config) {
        let Some(gateway) = &config.gateway else { return };
        gateway.endpoints.iter().for_each(|endpoint| self.listen(endpoint));
        self.write_file(&gateway.local_token.file);
        if let Some(file) = &gateway.terraform_config_file {
            self.write_file(&file.file);
        }
    }

    fn listen(&mut self, endpoint: &Endpoint) {
        match endpoint {
            Endpoint::Unix(socket) => self.write_file(&socket.path),
            Endpoint::Tcp(address) => self.low_ports |= (1..1024).contains(&address.port()),
            Endpoint::Activated(_) => {}
        }
    }

    fn write_file(&mut self, file: &Path) {
        if let Some(folder) = file.parent() {
            self.write(folder);
        }
    }

    fn write(&mut self, folder: &Path) {
        // A placeholder for a path that is unknown on this machine.
        if folder.is_absolute()
            && folder != Path::new("/")
            && !UNIT_FOLDERS.iter().any(|parent| folder.starts_with(parent))
        {
            self.writable.insert(folder.to_owned());
        }
    }

    fn run(&mut self, argv: &[String]) {
        for line in command_lines(argv) {
            self.unit_actions.extend(unit_actions(&line));
        }
    }

    /// Removes folders that another folder of the list covers.
    fn drop_covered(&mut self) {
        let all = self.writable.clone();
        self.writable.retain(|path| !all.iter().any(|folder| path != folder && path.starts_with(folder)));
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
