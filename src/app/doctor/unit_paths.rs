//! Paths in a service's mount namespace: where it may write, read and execute (`systemd.exec(5)`, "Sandboxing").

use std::path::{Path, PathBuf};

use super::unit_parser::{Unit, is_true};

/// Access to a path inside the sandbox, most restrictive first; the most restrictive wins if two settings name one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathAccess {
    /// Not there, and no setting shows anything below it.
    Inaccessible,
    /// Not there, or empty.
    Hidden,
    /// The service's own, empty at its start, and not seen outside.
    Private,
    /// As outside, but not writable.
    ReadOnly,
    /// As outside.
    Open,
}

/// Access below a path, and the setting that makes it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathRule {
    /// The path.
    pub path: PathBuf,
    /// Access to it and to all below.
    pub access: PathAccess,
    /// Setting, such as `ProtectSystem=strict`.
    pub setting: String,
}

/// Rules of one sandbox for paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathRules {
    access: Vec<PathRule>,
    /// Paths and their setting, true for those that may be executed.
    exec: Vec<(PathBuf, bool)>,
    /// Folders that the service manager creates, for the service's user.
    created: Vec<PathBuf>,
    /// Paths that must exist for the unit to start, with their settings.
    required: Vec<(String, PathBuf)>,
}

impl PathRules {
    /// Reads the settings of a unit. `expand` replaces specifiers such as `%t`; `resolve` follows symlinks, as systemd does.
    pub(crate) fn new(unit: &Unit, expand: impl Fn(&str) -> String, resolve: impl Fn(&Path) -> PathBuf) -> Self {
        let mut rules = Self::default();
        rules.protect_system(unit);
        rules.protect_home(unit);
        if unit.last("PrivateTmp").is_some_and(|value| is_true(value) || value == "disconnected") {
            rules.add(PathAccess::Private, "PrivateTmp=yes", ["/tmp", "/var/tmp"]);
        }
        for word in unit.words("TemporaryFileSystem") {
            let (path, options) = word.split_once(':').unwrap_or((&word, ""));
            let is_read_only = options.split(',').any(|option| option == "ro");
            let access = if is_read_only { PathAccess::Hidden } else { PathAccess::Private };
            rules.add(access, "TemporaryFileSystem=", [expand(path)]);
        }
        for (key, access) in [("BindPaths", PathAccess::Open), ("BindReadOnlyPaths", PathAccess::ReadOnly)] {
            for word in unit.words(key) {
                let mut parts = word.trim_start_matches(['-', '+']).split(':');
                let source = parts.next().unwrap_or_default();
                let target = parts.next().unwrap_or(source).trim_start_matches(['-', '+']).to_owned();
                rules.add(access, &format!("{key}="), [expand(&target)]);
                rules.require(key, &word, expand(source));
            }
        }
        for (key, access) in [
            ("ReadWritePaths", PathAccess::Open),
            ("ReadOnlyPaths", PathAccess::ReadOnly),
            ("InaccessiblePaths", PathAccess::Inaccessible),
        ] {
            for word in unit.words(key) {
                let path = expand(word.trim_start_matches(['-', '+']));
                rules.require(key, &word, path.clone());
                rules.add(access, &format!("{key}="), [resolve(Path::new(&path))]);
            }
        }
        for (key, base) in [
            ("RuntimeDirectory", "/run"),
            ("StateDirectory", "/var/lib"),
            ("CacheDirectory", "/var/cache"),
            ("LogsDirectory", "/var/log"),
        ] {
            for word in unit.words(key) {
                let name = expand(word.split(':').next().unwrap_or_default());
                let path = Path::new(base).join(name.trim_start_matches('/'));
                rules.add(PathAccess::Open, &format!("{key}="), [&path]);
                rules.created.push(path);
            }
        }
        for (key, may) in [("NoExecPaths", false), ("ExecPaths", true)] {
            for word in unit.words(key) {
                let path = expand(word.trim_start_matches(['-', '+']));
                rules.require(key, &word, path.clone());
                rules.exec.push((resolve(Path::new(&path)), may));
            }
        }
        rules
    }

    fn protect_system(&mut self, unit: &Unit) {
        let (level, paths): (&str, &[&str]) = match unit.last("ProtectSystem") {
            Some("strict") => ("strict", &["/"]),
            Some("full") => ("full", &["/usr", "/boot", "/efi", "/etc"]),
            Some(value) if is_true(value) => ("yes", &["/usr", "/boot", "/efi"]),
            _ => return,
        };
        self.add(PathAccess::ReadOnly, &format!("ProtectSystem={level}"), paths);
        if level == "strict" {
            self.add(PathAccess::Open, "ProtectSystem=strict", ["/dev", "/proc", "/sys"]);
        }
    }

    fn protect_home(&mut self, unit: &Unit) {
        let (value, access) = match unit.last("ProtectHome") {
            Some("read-only") => ("read-only", PathAccess::ReadOnly),
            Some("tmpfs") => ("tmpfs", PathAccess::Hidden),
            Some(value) if is_true(value) => ("yes", PathAccess::Inaccessible),
            _ => return,
        };
        self.add(access, &format!("ProtectHome={value}"), ["/home", "/root", "/run/user"]);
    }

    fn add(&mut self, access: PathAccess, setting: &str, paths: impl IntoIterator<Item = impl AsRef<Path>>) {
        let rule = |path: &Path| PathRule { path: path.to_owned(), access, setting: setting.to_owned() };
        self.access.extend(paths.into_iter().map(|path| rule(path.as_ref())));
    }

    /// A path without `-` before it must exist, or the unit does not start.
    fn require(&mut self, key: &str, word: &str, path: String) {
        if !word.trim_start_matches('+').starts_with('-') {
            self.required.push((format!("{key}={path}"), path.into()));
        }
    }

    /// Returns the rule that decides about a path: the one of the deepest folder, unless one above it is inaccessible. `None`
    /// leaves it as outside.
    pub(crate) fn rule(&self, path: &Path) -> Option<&PathRule> {
        let covering = || self.access.iter().filter(|rule| path.starts_with(&rule.path));
        // systemd discards every mount below an inaccessible folder (`drop_inaccessible` in its src/core/namespace.c).
        let inaccessible = covering().find(|rule| rule.access == PathAccess::Inaccessible);
        inaccessible
            .or_else(|| covering().max_by_key(|rule| (rule.path.components().count(), std::cmp::Reverse(rule.access))))
    }

    /// Returns true if a program may be executed.
    pub(crate) fn may_execute(&self, program: &Path) -> bool {
        let covering = self.exec.iter().filter(|(path, _)| program.starts_with(path));
        covering.max_by_key(|(path, may)| (path.components().count(), *may)).is_none_or(|(_, may)| *may)
    }

    /// Returns true if the service manager creates this path, or a folder above it, when the service starts.
    pub(crate) fn is_created(&self, path: &Path) -> bool {
        self.created.iter().any(|created| path.starts_with(created))
    }

    /// Returns true if the service manager makes exactly this folder, with the service's user as its owner.
    pub(crate) fn is_own_folder(&self, path: &Path) -> bool {
        self.created.iter().any(|created| path == created)
    }

    /// Returns the paths that must exist for the unit to start, each with its setting.
    pub(crate) fn required(&self) -> &[(String, PathBuf)] {
        &self.required
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> PathRules {
        let unit = Unit::parse("Service", [format!("[Service]\n{text}").as_str()]);
        PathRules::new(&unit, |text| text.replace("%t", "/run"), Path::to_owned)
    }

    #[test]
    fn the_deepest_setting_decides_what_may_be_written() {
        let rules = rules(
            "ProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\nTemporaryFileSystem=/opt:ro\nBindPaths=/opt/app\n\
             ReadWritePaths=/etc/app -/srv\nReadOnlyPaths=/etc/app/keys\nInaccessiblePaths=/srv/x\nRuntimeDirectory=keyward\n\
             StateDirectory=keyward\nReadWritePaths=%t/site\nBindReadOnlyPaths=/home/ci/ca:/home/ca\nReadWritePaths=/srv/x/y",
        );
        let check = |path: &str, access, setting: &str| {
            let rule = rules.rule(Path::new(path)).unwrap();
            assert_eq!((rule.access, rule.setting.as_str()), (access, setting), "{path}");
        };
        check("/etc/other/file", PathAccess::ReadOnly, "ProtectSystem=strict");
        check("/etc/app/file", PathAccess::Open, "ReadWritePaths=");
        check("/etc/application", PathAccess::ReadOnly, "ProtectSystem=strict");
        check("/etc/app/keys/a", PathAccess::ReadOnly, "ReadOnlyPaths=");
        check("/home/ci/file", PathAccess::Inaccessible, "ProtectHome=yes");
        check("/home/ca/a.pem", PathAccess::Inaccessible, "ProtectHome=yes");
        check("/tmp/x", PathAccess::Private, "PrivateTmp=yes");
        check("/opt/other", PathAccess::Hidden, "TemporaryFileSystem=");
        check("/opt/app/x", PathAccess::Open, "BindPaths=");
        check("/srv/x", PathAccess::Inaccessible, "InaccessiblePaths=");
        check("/srv/x/y/file", PathAccess::Inaccessible, "InaccessiblePaths=");
        check("/srv/y", PathAccess::Open, "ReadWritePaths=");
        check("/run/keyward/token", PathAccess::Open, "RuntimeDirectory=");
        check("/run/site/token", PathAccess::Open, "ReadWritePaths=");
        check("/proc/self", PathAccess::Open, "ProtectSystem=strict");
        assert!(rules.is_created(Path::new("/var/lib/keyward/state")) && !rules.is_created(Path::new("/run/other")));
        let required: Vec<&str> = rules.required().iter().map(|(setting, _)| setting.as_str()).collect();
        assert!(
            required.contains(&"ReadWritePaths=/etc/app") && !required.iter().any(|setting| setting.ends_with("/srv"))
        );
    }

    #[test]
    fn weaker_protection_covers_less() {
        let check = |text: &str, path: &str, access| {
            assert_eq!(rules(text).rule(Path::new(path)).map(|rule| rule.access), access, "{text} {path}");
        };
        check("ProtectSystem=full", "/etc/app", Some(PathAccess::ReadOnly));
        check("ProtectSystem=full", "/var/lib", None);
        check("ProtectSystem=yes", "/etc/app", None);
        check("ProtectSystem=no", "/usr", None);
        check("ProtectHome=read-only", "/home/x", Some(PathAccess::ReadOnly));
        check("ProtectHome=tmpfs", "/home/x", Some(PathAccess::Hidden));
        check("ProtectHome=tmpfs\nBindPaths=/home/x/y", "/home/x/y/z", Some(PathAccess::Open));
        check("", "/home/x", None);
    }

    #[test]
    fn programs_below_the_deepest_exec_path_may_run() {
        let rules = rules("NoExecPaths=/\nExecPaths=/usr/bin/keyward /usr/lib\nNoExecPaths=/usr/lib/sudo");
        for (program, may) in [
            ("/usr/bin/keyward", true),
            ("/usr/bin/systemctl", false),
            ("/usr/lib/ld.so", true),
            ("/usr/lib/sudo/x", false),
        ] {
            assert_eq!(rules.may_execute(Path::new(program)), may, "{program}");
        }
        assert!(PathRules::default().may_execute(Path::new("/bin/sh")));
    }
}
