//! One rule: the processes that it matches, and their rights. Pure.

use std::fmt;
use std::path::PathBuf;

use keyward_http::peer::PeerFacts;
use keyward_telemetry::hex::encode_hex;

use super::cgroup_path;
use super::grants::CallerGrants;
use super::pattern::{CgroupPattern, NamePattern, PodPattern};

/// A caller: the processes that are it, and their rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerRule {
    /// Name of its section.
    pub name: String,
    /// Processes that it matches.
    pub matches: CallerMatch,
    /// Rights of these processes.
    pub grants: CallerGrants,
}

/// Criteria of a rule. A process must meet each that has values, by one of them; without any, the rule matches everyone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerMatch {
    /// Effective users.
    pub uids: Vec<u32>,
    /// Effective groups.
    pub gids: Vec<u32>,
    /// Groups, effective or supplementary.
    pub groups: Vec<u32>,
    /// Units of the system manager.
    pub units: Vec<NamePattern>,
    /// Cgroups of version 2.
    pub cgroups: Vec<CgroupPattern>,
    /// Pods.
    pub pods: Vec<PodPattern>,
    /// Executables.
    pub executables: Vec<ExecutableRule>,
}

/// An executable, perhaps of one content only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutableRule {
    /// Path in the file system of the agent.
    pub path: PathBuf,
    /// SHA-256 digest of its content.
    pub sha256: Option<[u8; 32]>,
}

/// Criterion of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// Effective user.
    Uid,
    /// Effective group.
    Gid,
    /// Any group.
    Group,
    /// Unit.
    Unit,
    /// Cgroup.
    Cgroup,
    /// Pod.
    Pod,
    /// Executable and its digest.
    Executable,
}

impl Criterion {
    /// Key in the configuration.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::Gid => "gid",
            Self::Group => "group",
            Self::Unit => "unit",
            Self::Cgroup => "cgroup",
            Self::Pod => "pod",
            Self::Executable => "executable",
        }
    }
}

impl CallerMatch {
    /// Returns true without any criterion.
    pub fn is_everyone(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first criterion that a process does not meet; `None` if the rule matches it. A fact that the kernel does
    /// not report meets nothing.
    pub(crate) fn unmet(&self, facts: &PeerFacts) -> Option<Criterion> {
        fn any_matches<T>(expected: &[T], matches: impl Fn(&T) -> bool) -> bool {
            expected.is_empty() || expected.iter().any(matches)
        }
        let cgroup = facts.cgroup.as_deref();
        let in_group = |group: &u32| facts.gid == Some(*group) || facts.groups.contains(group);
        let runs = |expected: &ExecutableRule| {
            let digest = |sha256: Option<[u8; 32]>| expected.sha256.is_none() || expected.sha256 == sha256;
            facts
                .executable
                .as_ref()
                .is_some_and(|executable| *executable.path == expected.path && digest(executable.sha256))
        };
        let unit =
            |expected: &NamePattern| cgroup.and_then(cgroup_path::unit).is_some_and(|unit| expected.matches(unit));
        let pod = |expected: &PodPattern| cgroup.and_then(cgroup_path::pod).is_some_and(|uid| expected.matches(&uid));
        [
            (Criterion::Uid, any_matches(&self.uids, |uid| facts.uid == Some(*uid))),
            (Criterion::Gid, any_matches(&self.gids, |gid| facts.gid == Some(*gid))),
            (Criterion::Group, any_matches(&self.groups, in_group)),
            (Criterion::Unit, any_matches(&self.units, unit)),
            (
                Criterion::Cgroup,
                any_matches(&self.cgroups, |expected| cgroup.is_some_and(|path| expected.matches(path))),
            ),
            (Criterion::Pod, any_matches(&self.pods, pod)),
            (Criterion::Executable, any_matches(&self.executables, runs)),
        ]
        .into_iter()
        .find_map(|(criterion, is_met)| (!is_met).then_some(criterion))
    }

    /// Returns true if it matches every process that `other` matches, as far as the rules themselves tell.
    pub fn covers(&self, other: &Self) -> bool {
        fn all<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            let covered = |narrow: &T| wide.iter().any(|wide| covers(wide, narrow));
            wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
        }
        let program = |wide: &ExecutableRule, narrow: &ExecutableRule| {
            wide.path == narrow.path && (wide.sha256.is_none() || wide.sha256 == narrow.sha256)
        };
        // A process's effective group is one of its groups.
        let groups = all(&self.groups, &other.groups, PartialEq::eq) || all(&self.groups, &other.gids, PartialEq::eq);
        all(&self.uids, &other.uids, PartialEq::eq)
            && all(&self.gids, &other.gids, PartialEq::eq)
            && groups
            && all(&self.units, &other.units, NamePattern::covers)
            && all(&self.cgroups, &other.cgroups, CgroupPattern::covers)
            && all(&self.pods, &other.pods, PodPattern::covers)
            && all(&self.executables, &other.executables, program)
    }

    /// Returns a unit and a cgroup of the rule that no process has at once.
    pub fn contradiction(&self) -> Option<(&NamePattern, &CgroupPattern)> {
        let first = self.units.first()?;
        let cgroup = self.cgroups.first()?;
        let possible = |cgroup: &CgroupPattern| {
            cgroup.unit().is_none_or(|unit| self.units.iter().any(|pattern| pattern.matches(&unit)))
        };
        (!self.cgroups.iter().any(possible)).then_some((first, cgroup))
    }
}

impl fmt::Display for CallerMatch {
    /// Formats the criteria as `uid 33, unit nginx.service`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: ToString>(name: &str, values: &[T]) -> Option<String> {
            let values: Vec<_> = values.iter().map(T::to_string).collect();
            (!values.is_empty()).then(|| format!("{name} {}", values.join(" or ")))
        }
        let programs: Vec<_> = self.executables.iter().map(ToString::to_string).collect();
        let criteria = [
            list("uid", &self.uids),
            list("gid", &self.gids),
            list("group", &self.groups),
            list("unit", &self.units),
            list("cgroup", &self.cgroups),
            list("pod", &self.pods),
            list("executable", &programs),
        ];
        let criteria: Vec<_> = criteria.into_iter().flatten().collect();
        f.write_str(if criteria.is_empty() { "everyone".to_owned() } else { criteria.join(", ") }.as_str())
    }
}

impl fmt::Display for ExecutableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.sha256.as_ref().map_or(Ok(()), |digest| write!(f, " (sha256 {})", encode_hex(digest)))
    }
}

#[cfg(test)]
mod tests;
