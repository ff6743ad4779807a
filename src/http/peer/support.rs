//! Tests at start which facts about peers this kernel reports, so that a missing one is logged once, not guessed.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use keyward_machine::command::ExecutableOpener;
use keyward_machine::os;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{procfs, sock_diag};

/// Facts about peers that this kernel reports to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSupport {
    /// `SO_PEERPIDFD` (Linux 6.5): the socket itself names the process that connected.
    pub(crate) peer_pidfd: bool,
    /// `PIDFD_GET_INFO` (Linux 6.13): the process's present state without `/proc`.
    pub(crate) pidfd_info: bool,
    /// `pidfd_open` (Linux 5.3).
    pub(crate) pidfd_open: bool,
    /// `sock_diag`: the owner of a loopback TCP socket.
    pub(crate) tcp_owners: bool,
    /// Mount point of the cgroups of version 2.
    pub(crate) cgroups: Option<PathBuf>,
    /// `CAP_SYS_PTRACE`: executables of other users' processes.
    pub(crate) executables: bool,
    /// Every user has an id in this process's user namespace (`PrivateUsers=` takes that away).
    pub(crate) all_users: bool,
}

impl KernelSupport {
    /// Tries each feature on this process itself.
    pub fn probe() -> Self {
        let pair = UnixStream::pair().and_then(|(near, _far)| os::peer_pidfd(&near));
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty());
        let info = pidfd.as_ref().is_ok_and(|pidfd| os::pidfd_info(pidfd.as_fd()).is_ok());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Self {
            peer_pidfd: pair.is_ok(),
            pidfd_info: info,
            pidfd_open: pidfd.is_ok(),
            tcp_owners: sock_diag::reports_tcp_owners(),
            cgroups: parse_cgroup_mount(&mounts),
            executables: ExecutableOpener::default().opens_all(),
            all_users: maps_all_users(&map),
        }
    }

    /// Each feature by its name, and if it is there.
    pub fn features(&self) -> [(&'static str, bool); 7] {
        [
            ("peer_pidfd", self.peer_pidfd),
            ("pidfd_info", self.pidfd_info),
            ("pidfd_open", self.pidfd_open),
            ("tcp_owners", self.tcp_owners),
            ("cgroups", self.cgroups.is_some()),
            ("executables", self.executables),
            ("all_users", self.all_users),
        ]
    }

    /// Drops the id that stands for every user without one: it would make strangers equal.
    pub(super) fn known_user(&self, uid: u32) -> Option<u32> {
        Some(uid).filter(|uid| self.all_users || *uid != overflow_id("uid"))
    }

    /// Drops the id that stands for every group without one.
    pub(super) fn known_group(&self, gid: u32) -> Option<u32> {
        Some(gid).filter(|gid| self.all_users || *gid != overflow_id("gid"))
    }

    /// Reads the process's groups in `/proc`; none if it may not.
    pub(super) fn groups_of(&self, pid: u32) -> Vec<u32> {
        procfs::groups(pid).unwrap_or_default().into_iter().filter_map(|gid| self.known_group(gid)).collect()
    }
}

/// Drops the group id that the kernel shows for every group without one in this process's user namespace: compared with
/// itself, it would make strangers members.
pub(crate) fn known_group(gid: u32) -> Option<u32> {
    let maps_all = || maps_all_users(&std::fs::read_to_string("/proc/self/gid_map").unwrap_or_default());
    Some(gid).filter(|gid| *gid != overflow_id("gid") || maps_all())
}

/// Id that the kernel shows for one that has none in this user namespace.
fn overflow_id(kind: &str) -> u32 {
    const USUAL: u32 = 65534;
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

/// Finds the mount point of the cgroups of version 2 whose root is shown (`proc_pid_mountinfo(5)`).
fn parse_cgroup_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let root = fields.next()?;
        let point = fields.next()?;
        // A mount of a part of the tree has other paths than `/proc/PID/cgroup`.
        (kind.starts_with("cgroup2 ") && root == "/" && !point.contains('\\')).then(|| point.into())
    })
}

/// True if a user namespace maps all ids to themselves, as the first one does.
fn maps_all_users(map: &str) -> bool {
    let mut fields = map.split_whitespace();
    let starts_at_zero = fields.next() == Some("0") && fields.next() == Some("0");
    starts_at_zero
        && fields.next().and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_cgroup_tree_is_found_in_hybrid_and_unified_layouts() {
        let line =
            |root: &str, point: &str| format!("30 25 0:26 {root} {point} rw,relatime shared:9 - cgroup2 cgroup2 rw");
        let found = |text: &str| parse_cgroup_mount(text);
        let hybrid = format!(
            "29 25 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n{}\n",
            line("/", "/sys/fs/cgroup/unified")
        );
        assert_eq!(found(&hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(found(&line("/", "/sys/fs/cgroup")), Some("/sys/fs/cgroup".into()));
        assert_eq!(found(&line("/kubepods", "/sys/fs/cgroup")), None, "a part of the tree");
        assert_eq!(found("1 2 3"), None);
    }

    #[test]
    fn only_the_identity_map_knows_every_user() {
        assert!(maps_all_users("         0          0 4294967295\n"));
        for map in ["0 100000 65536\n", "0 0 1\n", "33 33 1\n", ""] {
            assert!(!maps_all_users(map), "{map}");
        }
    }
}
