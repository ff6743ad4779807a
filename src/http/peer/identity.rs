//! Identity of one connection's peer: read when it connects, compared for each request.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::executable::FileId;
use super::facts::{FactSource, PeerFacts};
use super::process::{CgroupRef, PinnedProcess, ProcessState};
use super::reader::{PeerReader, PeerReading};
use super::sock_diag::SocketOwner;

/// Identity of a connection's peer.
///
/// The facts are those of the process that connected, however the socket was passed on. They are compared with the process's
/// present state for each request, so that neither a program that it starts later nor an end of the process goes unnoticed.
#[derive(Debug)]
pub struct PeerIdentity {
    reader: Arc<PeerReader>,
    facts: PeerFacts,
    /// `None` over TCP, and for a process that had ended when its connection was accepted.
    process: Option<(Arc<PinnedProcess>, PeerReading)>,
    /// Result of the last check of the executable; the first one is made at connect.
    last_snapshot: Mutex<ExecutableSnapshot>,
    is_unix: bool,
    /// Cgroup whose path only a search tells.
    unknown_cgroup: Option<u64>,
    /// Counts the connection for its caller while it is open.
    hold: OnceLock<ConnectionHold>,
}

/// Executable of a process, as it was at a moment.
#[derive(Debug, Clone, Copy)]
struct ExecutableSnapshot {
    at: Instant,
    file: Option<FileId>,
}

/// Greatest age of the executable that a comparison goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutableAge {
    /// It is read now.
    Current,
    /// May be up to 100 ms old: a check costs half as much as a forwarded request.
    Recent,
}

/// Age up to which a result counts as recent.
const RECENT: Duration = Duration::from_millis(100);

/// Comparison of a peer with its state when it connected.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// Nothing has changed.
    Same,
    /// The process has changed since: its present facts.
    Changed(PeerFacts),
    /// The process has ended; another one may hold its socket.
    Ended,
}

impl PeerIdentity {
    /// Reads the identity of the process that connected a unix socket: `pid`, `uid`, `gid` as `SO_PEERCRED` has them.
    pub fn from_unix(reader: &Arc<PeerReader>, socket: impl AsFd, pid: u32, uid: u32, gid: u32) -> Self {
        let support = reader.support();
        let groups = keyward_machine::os::peer_groups(&socket).unwrap_or_default();
        let connected = PeerFacts {
            pid: Some(pid).filter(|pid| *pid != 0),
            uid: support.known_user(uid),
            gid: support.known_group(gid),
            groups: groups.into_iter().filter_map(|gid| support.known_group(gid)).collect(),
            ..PeerFacts::unknown(FactSource::Credentials)
        };
        let process = reader.pin(socket, pid, uid, gid).and_then(|process| {
            let reading = reader.read(&process, reader.executable_of(&process)).ok()?;
            Some((Arc::new(process), reading))
        });
        let (facts, unknown_cgroup) = match &process {
            // User and group stay those of the connection; a process that has changed them since is noticed below.
            Some((process, reading)) => {
                let (present, unknown_cgroup) = reader.facts(&connected, Some(process), reading);
                let PeerFacts { cgroup, executable, source, .. } = present;
                (PeerFacts { cgroup, executable, source, ..connected }, unknown_cgroup)
            }
            None => (connected, None),
        };
        Self { is_unix: true, unknown_cgroup, ..Self::new(reader, facts, process) }
    }

    /// Returns the identity of the peer of a TCP connection, by the owner of its socket.
    pub(crate) fn from_tcp(reader: &Arc<PeerReader>, owner: Option<SocketOwner>) -> Self {
        let state = ProcessState {
            uid: owner.and_then(|owner| reader.support().known_user(owner.uid)),
            cgroup: owner.and_then(|owner| owner.cgroup_id).map_or(CgroupRef::Unknown, CgroupRef::Id),
            ..ProcessState::default()
        };
        let (facts, unknown_cgroup) = reader.facts(
            &PeerFacts::unknown(FactSource::SocketDiagnostics),
            None,
            &PeerReading { state, executable: None },
        );
        Self { unknown_cgroup, ..Self::new(reader, facts, None) }
    }

    fn new(reader: &Arc<PeerReader>, facts: PeerFacts, process: Option<(Arc<PinnedProcess>, PeerReading)>) -> Self {
        let file = process.as_ref().and_then(|(_, reading)| reading.executable);
        let last_snapshot = Mutex::new(ExecutableSnapshot { at: Instant::now(), file });
        let (reader, hold) = (Arc::clone(reader), OnceLock::new());
        Self { reader, facts, process, last_snapshot, is_unix: false, unknown_cgroup: None, hold }
    }

    /// Returns true if the facts lack the path of the cgroup, which [`Self::with_cgroup`] adds.
    pub(crate) const fn lacks_cgroup(&self) -> bool {
        self.unknown_cgroup.is_some()
    }

    /// Searches for the cgroup if the facts lack it. That may take seconds, for a user who has made many.
    pub(crate) async fn with_cgroup(mut self) -> Self {
        if let Some(id) = self.unknown_cgroup.take() {
            self.facts.cgroup = self.reader.find_cgroup(id, self.facts.uid).await;
        }
        self
    }

    /// Facts when the peer connected.
    pub fn facts(&self) -> &PeerFacts {
        &self.facts
    }

    /// Returns the process that connected; `None` over TCP, and for one that had ended when its connection was accepted.
    pub fn process(&self) -> Option<&Arc<PinnedProcess>> {
        self.process.as_ref().map(|(process, _)| process)
    }

    /// Compares the peer with its state when it connected: one `PIDFD_GET_INFO` where the kernel has it, and the inode of
    /// the executable if one was asked for.
    pub fn compare(&self, age: ExecutableAge) -> PeerChange {
        let Some((process, first)) = &self.process else {
            // The diagnostics report who created a TCP socket, which does not change.
            return if self.is_unix { PeerChange::Ended } else { PeerChange::Same };
        };
        let executable = self.executable_of(process, age);
        let Ok(reading) = self.reader.read(process, executable) else { return PeerChange::Ended };
        let same_user = reading.state.uid.is_none_or(|uid| Some(uid) == self.facts.uid);
        let same_group = reading.state.gid.is_none_or(|gid| Some(gid) == self.facts.gid);
        let same_place = reading.state.cgroup == first.state.cgroup && reading.executable == first.executable;
        if same_user && same_group && same_place {
            return PeerChange::Same;
        }
        let (facts, unknown_cgroup) = self.reader.facts(&self.facts, Some(process), &reading);
        if let Some(id) = unknown_cgroup {
            // A request cannot wait for it: it is refused as of a process without a cgroup, and a later one is not.
            self.reader.start_search(id, facts.uid);
        }
        PeerChange::Changed(facts)
    }

    /// Returns the file that the process runs, or ran at the last look if that is recent enough.
    fn executable_of(&self, process: &PinnedProcess, age: ExecutableAge) -> Option<FileId> {
        let mut last = self.last_snapshot.lock();
        let now = Instant::now();
        if age == ExecutableAge::Current || now - last.at >= RECENT {
            *last = ExecutableSnapshot { at: now, file: self.reader.executable_of(process) };
        }
        last.file
    }

    /// Counts the connection in `open` until it ends, the first time that this is called. Returns false if `max`
    /// connections are counted already.
    pub fn hold(&self, open: &Arc<AtomicUsize>, max: usize) -> bool {
        if self.hold.get().is_some() {
            return true;
        }
        let take = |count: usize| (count < max).then_some(count + 1);
        if open.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
            return false;
        }
        // A second request of the same connection cannot run beside the first; if it did, its count is dropped here.
        let _ = self.hold.set(ConnectionHold(Arc::clone(open)));
        true
    }
}

/// One counted connection, until it is dropped.
#[derive(Debug)]
struct ConnectionHold(Arc<AtomicUsize>);

impl Drop for ConnectionHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
