//! Accesses that a configuration needs, and what of them a sandbox lacks. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyward_machine::command::ConfiguredPrograms;
use rustix::thread::CapabilitySet;

/// Accesses that a configuration needs of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Files and folders that are read.
    pub(crate) read: BTreeSet<PathBuf>,
    /// Folders in which files are created, replaced and removed.
    pub(crate) write: BTreeSet<PathBuf>,
    /// Paths of these that are not shown: they came from a reference, which may hold a secret.
    pub(crate) hidden: BTreeSet<PathBuf>,
    /// TCP ports that are listened on; 0 is a port of the kernel's choice.
    pub(crate) bind: BTreeSet<u16>,
    /// TCP ports that are connected to; `None` is any.
    pub(crate) connect: Option<BTreeSet<u16>>,
    /// Programs that are started.
    pub programs: ConfiguredPrograms,
    /// Capabilities that are kept if the process has them.
    pub(crate) capabilities: CapabilitySet,
    /// True if the executables of callers are opened, which Landlock denies (`ptrace_may_access`): the spawner does it.
    pub(crate) executables: bool,
    /// True if the service manager is notified at an abstract socket.
    pub(crate) abstract_socket: bool,
}

impl Default for SandboxPlan {
    fn default() -> Self {
        Self {
            read: BTreeSet::new(),
            write: BTreeSet::new(),
            hidden: BTreeSet::new(),
            bind: BTreeSet::new(),
            connect: Some(BTreeSet::new()),
            programs: ConfiguredPrograms::default(),
            capabilities: CapabilitySet::empty(),
            executables: false,
            abstract_socket: false,
        }
    }
}

impl SandboxPlan {
    /// Returns true if something is needed that a process in a sandbox cannot do.
    pub fn needs_spawner(&self) -> bool {
        !self.programs.commands.is_empty() || self.executables
    }

    /// Formats a path for operators.
    pub(super) fn show(&self, path: &Path) -> String {
        let is_hidden = self.hidden.iter().any(|hidden| hidden.starts_with(path));
        if is_hidden { "a path from a reference".to_owned() } else { path.display().to_string() }
    }
}

/// Accesses that a running sandbox allows. `None` means that the sandbox does not limit the field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedAccess {
    /// Files and folders that may be read, and folders that may be written.
    pub(crate) files: Option<AllowedFiles>,
    /// TCP ports that may be listened on.
    pub(crate) bind: Option<BTreeSet<u16>>,
    /// TCP ports that may be connected to.
    pub(crate) connect: Option<BTreeSet<u16>>,
    /// Capabilities that are left.
    pub(crate) capabilities: Option<CapabilitySet>,
    /// True if programs can be started, and executables of callers opened, with the rights that the process began with.
    pub(crate) spawner: bool,
}

/// Files and folders that a sandbox allows, without symlinks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AllowedFiles {
    /// Files that may be read, and folders with all that is below.
    pub read: BTreeSet<PathBuf>,
    /// Folders that may also be written, with all that is below.
    pub write: BTreeSet<PathBuf>,
    /// Paths of the plan that the sandbox was made from, as it has them. Some may not exist and have no rule: a plan that still
    /// has them needs no more than that one did.
    pub planned_read: BTreeSet<PathBuf>,
    /// The same, of folders that are written.
    pub planned_write: BTreeSet<PathBuf>,
}

impl AllowedFiles {
    fn may_write(&self, path: &Path) -> bool {
        self.write.iter().any(|folder| path.starts_with(folder))
    }

    pub(super) fn may_read(&self, path: &Path) -> bool {
        self.may_write(path) || self.read.iter().any(|allowed| path.starts_with(allowed))
    }
}

impl AllowedAccess {
    /// Lists what `plan` needs and this sandbox does not allow, as predicates such as `writes /run/app`. `resolve` follows the
    /// symlinks of a path, up to its nearest parent that exists.
    pub(crate) fn missing(&self, plan: &SandboxPlan, resolve: impl Fn(&Path) -> PathBuf) -> Vec<String> {
        let mut missing = Vec::new();
        if let Some(files) = &self.files {
            let denied = plan.write.difference(&files.planned_write).filter(|path| !files.may_write(&resolve(path)));
            missing.extend(denied.map(|path| format!("writes in {}", plan.show(path))));
            let denied = plan.read.difference(&files.planned_read).filter(|path| !files.may_read(&resolve(path)));
            missing.extend(denied.map(|path| format!("reads {}", plan.show(path))));
        }
        if let Some(bind) = &self.bind {
            missing.extend(plan.bind.difference(bind).map(|port| format!("listens on port {port}")));
        }
        match (&self.connect, &plan.connect) {
            (Some(_), None) => missing.push("connects to any port".to_owned()),
            (Some(allowed), Some(ports)) => {
                missing.extend(ports.difference(allowed).map(|port| format!("connects to port {port}")));
            }
            (None, _) => {}
        }
        // Arguments are not shown: they may hold a secret.
        let programs = plan.programs.commands.iter().filter(|_| !self.spawner).filter_map(|command| command.first());
        missing.extend(programs.map(|program| format!("runs {program}")));
        if let Some(capabilities) = self.capabilities {
            let denied = plan.capabilities.difference(capabilities);
            missing.extend(capability_names(denied).map(|name| format!("uses {name}")));
        }
        if plan.executables && !self.spawner {
            missing.push("opens the executables of callers".to_owned());
        }
        missing
    }
}

/// Capabilities that a configuration can need, with their names.
const CAPABILITIES: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
];

/// Returns the names of capabilities.
pub(super) fn capability_names(set: CapabilitySet) -> impl Iterator<Item = &'static str> {
    CAPABILITIES.into_iter().filter(move |(capability, _)| set.contains(*capability)).map(|(_, name)| name)
}

/// Folder whose content a file's rule may include: files such as projected tokens are replaced under the same name, which a
/// rule for only the file would not follow. `None` for folders of the system, which hold much else.
pub(super) fn rule_folder(file: &Path) -> Option<&Path> {
    let folder = file.parent().filter(|folder| folder.is_absolute())?;
    let is_home = folder.parent() == Some(Path::new("/home"));
    (!is_home && !COMMON_FOLDERS.iter().any(|common| folder == Path::new(common))).then_some(folder)
}

const COMMON_FOLDERS: [&str; 18] = [
    "/", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/srv", "/sys",
    "/tmp", "/usr", "/var", "/var/lib",
];

#[cfg(test)]
mod tests;
