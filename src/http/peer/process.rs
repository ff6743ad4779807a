//! A process that is pinned, so that its id cannot come to mean another one, and its present state.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::os;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::procfs;
use super::support::KernelSupport;

/// A process by its id, and the means to verify that it still is that process.
#[derive(Debug)]
pub struct PinnedProcess {
    pub(super) pid: u32,
    pin: Pin,
}

#[derive(Debug)]
enum Pin {
    /// A descriptor of the process.
    Descriptor(OwnedFd),
    /// Start time in clock ticks since the boot, on kernels without descriptors of processes.
    StartTime(u64),
}

/// Poll interval for processes without a descriptor.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// State of a process that may change while it lives. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProcessState {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) cgroup: CgroupRef,
    /// Read only by its descriptor.
    pub(super) by_descriptor: bool,
}

/// Cgroup of a process, as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum CgroupRef {
    Id(u64),
    Path(Arc<str>),
    #[default]
    Unknown,
}

/// The process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEnded;

impl PinnedProcess {
    /// Pins the process that connected a unix socket, whose id is `pid`.
    ///
    /// # Errors
    /// It has ended, or another process may have its id already.
    pub(super) fn from_socket(
        socket: impl AsFd,
        pid: u32,
        uid: u32,
        gid: u32,
        support: &KernelSupport,
    ) -> Result<Self, ProcessEnded> {
        if support.peer_pidfd {
            let descriptor = os::peer_pidfd(socket).map_err(|_| ProcessEnded)?;
            return Ok(Self { pid, pin: Pin::Descriptor(descriptor) });
        }
        let process = Self::from_pid(pid, support)?;
        // Between `connect` and here the id may have passed to another process. One of the same user and group remains
        // possible; docs/callers.md says so.
        match procfs::owner(pid) {
            Ok(owner) if (owner.uid, owner.gid) != (uid, gid) => Err(ProcessEnded),
            Ok(_) if !process.is_alive() => Err(ProcessEnded),
            Ok(_) | Err(_) => Ok(process),
        }
    }

    /// Pins the process that has this id now.
    pub(super) fn from_pid(pid: u32, support: &KernelSupport) -> Result<Self, ProcessEnded> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ProcessEnded)?;
        let pin = if support.pidfd_open {
            Pin::Descriptor(pidfd_open(raw, PidfdFlags::empty()).map_err(|_| ProcessEnded)?)
        } else {
            Pin::StartTime(procfs::start_time(pid).map_err(|_| ProcessEnded)?)
        };
        Ok(Self { pid, pin })
    }

    /// Returns its process id; `None` for a process of a pid namespace that this process does not see.
    pub fn id(&self) -> Option<u32> {
        Some(self.pid).filter(|pid| *pid != 0)
    }

    /// Waits for its end: by its descriptor, or by a look each second on kernels without descriptors of processes.
    pub async fn wait_for_end(&self) {
        if let Pin::Descriptor(descriptor) = &self.pin
            // A copy, as one descriptor can be watched once.
            && let Ok(copy) = descriptor.try_clone()
            && let Ok(watched) = os::readable(copy)
        {
            while self.is_alive() {
                let Ok(mut ready) = watched.readable().await else { break };
                if self.is_alive() {
                    ready.clear_ready();
                }
            }
        }
        while self.is_alive() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns true while the process lives. Files in `/proc` that were read before the call belong to this process then.
    pub fn is_alive(&self) -> bool {
        match &self.pin {
            Pin::Descriptor(descriptor) => {
                let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
                matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
            }
            Pin::StartTime(started) => procfs::start_time(self.pid).is_ok_and(|now| now == *started),
        }
    }

    /// Reads its state: by its descriptor in one call, else in `/proc`.
    pub(super) fn state(&self, support: &KernelSupport) -> Result<ProcessState, ProcessEnded> {
        if let (true, Pin::Descriptor(descriptor)) = (support.pidfd_info, &self.pin) {
            let info = os::pidfd_info(descriptor);
            // The kernel reports the state of a zombie until its parent waits for it.
            if !self.is_alive() {
                return Err(ProcessEnded);
            }
            return Ok(match info {
                Ok(info) => ProcessState {
                    uid: support.known_user(info.euid),
                    gid: support.known_group(info.egid),
                    cgroup: CgroupRef::Id(info.cgroup_id),
                    by_descriptor: true,
                },
                // It is in a pid namespace that this process does not see.
                Err(_) => ProcessState::default(),
            });
        }
        let owner = procfs::owner(self.pid);
        let cgroup = match procfs::cgroup(self.pid) {
            Ok(Some(path)) => CgroupRef::Path(path.into()),
            Ok(None) | Err(_) => CgroupRef::Unknown,
        };
        // Not before the reads: they may have been of a later process with this id.
        if !self.is_alive() {
            return Err(ProcessEnded);
        }
        let of = |read: fn(procfs::ProcessOwner) -> u32| owner.as_ref().ok().copied().map(read);
        Ok(ProcessState {
            uid: of(|owner| owner.uid).and_then(|uid| support.known_user(uid)),
            gid: of(|owner| owner.gid).and_then(|gid| support.known_group(gid)),
            cgroup,
            by_descriptor: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn kernels() -> Vec<KernelSupport> {
        let all = KernelSupport::probe();
        let without = |peer, info, open| KernelSupport {
            peer_pidfd: all.peer_pidfd && peer,
            pidfd_info: all.pidfd_info && info,
            pidfd_open: all.pidfd_open && open,
            ..all.clone()
        };
        vec![all.clone(), without(true, false, true), without(false, false, true), without(false, false, false)]
    }

    #[test]
    fn the_state_of_a_process_is_read_on_each_kernel_until_it_ends() {
        for support in kernels() {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let process = PinnedProcess::from_pid(child.id(), &support).unwrap();
            let state = process.state(&support).unwrap();
            assert_eq!(state.uid, Some(rustix::process::geteuid().as_raw()), "{support:?}");
            assert_eq!(state.by_descriptor, support.pidfd_info);
            assert!(process.is_alive());
            drop(child.stdin.take());
            // It has ended before this process, its parent, takes notice.
            let mut waited = 0;
            while process.state(&support).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
                waited += 1;
                assert!(waited < 10_000, "{support:?}");
            }
            child.wait().unwrap();
            assert!(!process.is_alive(), "{support:?}");
            assert_eq!(process.state(&support), Err(ProcessEnded));
            assert!(PinnedProcess::from_pid(u32::MAX, &support).is_err());
        }
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed_on_each_kernel() {
        for support in kernels() {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let process = PinnedProcess::from_pid(child.id(), &support).unwrap();
            let early = tokio::time::timeout(Duration::from_millis(50), process.wait_for_end()).await;
            assert!(early.is_err(), "it lives: {support:?}");
            drop(child.stdin.take());
            // Twice, as each caller of a descriptor watches a copy of its own.
            for _ in 0..2 {
                let ended = tokio::time::timeout(Duration::from_secs(5), process.wait_for_end()).await;
                assert!(ended.is_ok(), "{support:?}");
            }
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_peer_whose_id_belongs_to_another_user_by_now_is_not_pinned() {
        let support = KernelSupport { peer_pidfd: false, ..KernelSupport::probe() };
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let pid = std::process::id();
        assert!(PinnedProcess::from_socket(&near, pid, uid, gid, &support).is_ok());
        assert!(PinnedProcess::from_socket(&near, pid, uid + 1, gid, &support).is_err());
        assert!(PinnedProcess::from_socket(&near, pid, uid, gid + 1, &support).is_err());
    }
}
