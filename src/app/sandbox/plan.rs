//! Accesses that a configuration needs, and what of them a sandbox lacks. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

/// Accesses that a configuration needs of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxPlan {
    /// Files and folders that are read.
    pub read: BTreeSet<PathBuf>,
    /// Folders in which files are created, replaced and removed.
    pub write: BTreeSet<PathBuf>,
    /// Paths of these that are not shown: they came from a reference, which may hold a secret.
    pub hidden: BTreeSet<PathBuf>,
    /// TCP ports that are listened on; 0 is a port of the kernel's choice.
    pub bind: BTreeSet<u16>,
    /// TCP ports that are connected to; `None` is any.
    pub connect: Option<BTreeSet<u16>>,
    /// Programs that are started.
    pub programs: BTreeSet<String>,
    /// Capabilities that are kept if the process has them.
    pub capabilities: CapabilitySet,
    /// True if the executables of callers are opened, which Landlock denies (`ptrace_may_access`): the spawner does it.
    pub executables: bool,
    /// True if the service manager is notified at an abstract socket.
    pub abstract_socket: bool,
}

impl Default for SandboxPlan {
    fn default() -> Self {
        Self {
            read: BTreeSet::new(),
            write: BTreeSet::new(),
            hidden: BTreeSet::new(),
            bind: BTreeSet::new(),
            connect: Some(BTreeSet::new()),
            programs: BTreeSet::new(),
            capabilities: CapabilitySet::empty(),
            executables: false,
            abstract_socket: false,
        }
    }
}

impl SandboxPlan {
    /// Returns true if something is needed that a process in a sandbox cannot do.
    pub(crate) fn needs_spawner(&self) -> bool {
        !self.programs.is_empty() || self.executables
    }

    /// Formats a path for operators.
    pub(super) fn show(&self, path: &Path) -> String {
        let is_hidden = self.hidden.iter().any(|hidden| hidden.starts_with(path));
        if is_hidden { "a path from a reference".to_owned() } else { path.display().to_string() }
    }
}

/// Accesses that a running sandbox allows. `None` means that the sandbox does not limit the field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AllowedAccess {
    /// Files and folders that may be read, and folders that may be written.
    pub files: Option<AllowedFiles>,
    /// TCP ports that may be listened on.
    pub bind: Option<BTreeSet<u16>>,
    /// TCP ports that may be connected to.
    pub connect: Option<BTreeSet<u16>>,
    /// Capabilities that are left.
    pub capabilities: Option<CapabilitySet>,
    /// True if programs can be started, and executables of callers opened, with the rights that the process began with.
    pub spawner: bool,
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
        if !self.spawner {
            missing.extend(plan.programs.iter().map(|program| format!("runs {program}")));
        }
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
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> BTreeSet<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    fn allowed() -> AllowedAccess {
        AllowedAccess {
            files: Some(AllowedFiles {
                read: paths(&["/etc/keyward", "/etc/ca.pem"]),
                write: paths(&["/run/keyward"]),
                planned_read: paths(&["/etc/gai.conf"]),
                planned_write: paths(&["/var/lib/keyward"]),
            }),
            bind: Some([8200].into()),
            connect: Some([443].into()),
            capabilities: Some(CapabilitySet::CHOWN),
            spawner: false,
        }
    }

    fn missing(plan: &SandboxPlan) -> String {
        let resolve = |path: &Path| {
            // As if /link led to /run/keyward.
            path.strip_prefix("/link").map_or_else(|_| path.to_owned(), |rest| Path::new("/run/keyward").join(rest))
        };
        allowed().missing(plan, resolve).join(", ")
    }

    #[test]
    fn what_a_new_configuration_needs_beyond_the_sandbox_is_listed() {
        let plan = SandboxPlan::default;
        let check = |plan: SandboxPlan, expected: &str| assert_eq!(missing(&plan), expected);
        check(plan(), "");
        let read = |path: &str| SandboxPlan { read: paths(&[path]), ..plan() };
        check(read("/etc/keyward/keyward.toml"), "");
        check(read("/etc/ca.pem"), "");
        check(read("/run/keyward/x"), "");
        check(read("/etc/keyward-other"), "reads /etc/keyward-other");
        check(read("/etc/shadow"), "reads /etc/shadow");
        check(read("/etc/gai.conf"), "");
        check(read("/var/lib/keyward"), "reads /var/lib/keyward");
        let write = |path: &str| SandboxPlan { write: paths(&[path]), ..plan() };
        check(write("/run/keyward/below"), "");
        check(write("/link/below"), "");
        check(write("/var/lib/keyward"), "");
        check(write("/run"), "writes in /run");
        check(write("/etc/keyward"), "writes in /etc/keyward");
        let hidden = SandboxPlan { hidden: paths(&["/srv/secret/a"]), ..write("/srv/secret") };
        check(hidden, "writes in a path from a reference");
        check(SandboxPlan { bind: [8200, 8300].into(), ..plan() }, "listens on port 8300");
        check(SandboxPlan { bind: [0].into(), ..plan() }, "listens on port 0");
        check(SandboxPlan { connect: Some([443, 8200].into()), ..plan() }, "connects to port 8200");
        check(SandboxPlan { connect: None, ..plan() }, "connects to any port");
        check(SandboxPlan { programs: ["/bin/sh".to_owned()].into(), ..plan() }, "runs /bin/sh");
        let capabilities = CapabilitySet::CHOWN | CapabilitySet::NET_BIND_SERVICE;
        check(SandboxPlan { capabilities, ..plan() }, "uses CAP_NET_BIND_SERVICE");
        check(SandboxPlan { executables: true, ..plan() }, "opens the executables of callers");
    }

    #[test]
    fn a_sandbox_without_limits_lacks_nothing() {
        let unlimited = AllowedAccess { spawner: true, ..AllowedAccess::default() };
        let plan = SandboxPlan {
            read: paths(&["/etc/shadow"]),
            write: paths(&["/"]),
            hidden: paths(&[]),
            bind: [1].into(),
            connect: None,
            programs: ["sh".to_owned()].into(),
            capabilities: CapabilitySet::CHOWN,
            executables: true,
            abstract_socket: true,
        };
        assert_eq!(unlimited.missing(&plan, Path::to_owned), Vec::<String>::new());
    }

    #[test]
    fn a_file_shares_a_rule_with_its_folder_unless_that_holds_other_things() {
        let check = |file: &str, expected: Option<&str>| {
            assert_eq!(rule_folder(Path::new(file)), expected.map(Path::new), "{file}");
        };
        check("/var/run/secrets/azure/tokens/token", Some("/var/run/secrets/azure/tokens"));
        check("/etc/keyward/keyward.toml", Some("/etc/keyward"));
        check("/etc/ca.pem", None);
        check("/home/me/token", None);
        check("/home/me/keyward/token", Some("/home/me/keyward"));
        check("/tmp/token", None);
        check("/", None);
        check("keyward.toml", None);
    }
}
