//! Identity of one connection's peer: read when it connects, compared for each request.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::facts::{FactSource, PeerFacts};
use super::process::{CgroupRef, PinnedProcess, ProcessState};
use super::reader::{PeerReader, PeerReading};
use super::sock_diag;

/// Identity of a connection's peer.
///
/// The facts are those of the process that connected, however the socket was passed on. They are compared with the process's
/// present state for each request, so that neither a program that it starts later nor an end of the process goes unnoticed.
#[derive(Debug)]
pub(crate) struct PeerIdentity {
    reader: Arc<PeerReader>,
    facts: PeerFacts,
    /// `None` over TCP, and for a process that had ended when its connection was accepted.
    process: Option<(Arc<PinnedProcess>, PeerReading)>,
    is_unix: bool,
    /// Counts the connection for its caller while it is open.
    hold: OnceLock<ConnectionHold>,
}

/// Comparison of a peer with its state when it connected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PeerChange {
    /// Nothing has changed.
    Same,
    /// The process has changed since: its present facts.
    Changed(PeerFacts),
    /// The process has ended; another one may hold its socket.
    Ended,
}

impl PeerIdentity {
    /// Reads the identity of the process that connected a unix socket: `pid`, `uid`, `gid` as `SO_PEERCRED` has them.
    pub(crate) fn from_unix(reader: &Arc<PeerReader>, socket: impl AsFd, peer: (u32, u32, u32)) -> Self {
        let (pid, uid, gid) = peer;
        let support = reader.support();
        let groups = crate::os::peer_groups(&socket).unwrap_or_default();
        let connected = PeerFacts {
            pid: Some(pid).filter(|pid| *pid != 0),
            uid: support.known_user(uid),
            gid: support.known_group(gid),
            groups: groups.into_iter().filter_map(|gid| support.known_group(gid)).collect(),
            ..PeerFacts::unknown(FactSource::Credentials)
        };
        let process = reader.pin(socket, peer).and_then(|process| {
            let reading = reader.read(&process).ok()?;
            Some((Arc::new(process), reading))
        });
        let facts = match &process {
            // User and group stay those of the connection; a process that has changed them since is noticed below.
            Some((process, reading)) => {
                let PeerFacts { cgroup, executable, source, .. } = reader.facts(&connected, Some(process), reading);
                PeerFacts { cgroup, executable, source, ..connected }
            }
            None => connected,
        };
        Self { reader: Arc::clone(reader), facts, process, is_unix: true, hold: OnceLock::new() }
    }

    /// Reads the identity of a TCP peer that is connected to `local`, as the socket diagnostics have it.
    pub(crate) fn from_tcp(reader: &Arc<PeerReader>, peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        let local = local.map(|local| {
            let ip = local.ip().to_canonical();
            SocketAddr::new(if ip.is_unspecified() { peer.ip() } else { ip }, local.port())
        });
        let owner = local.filter(|_| peer.ip().is_loopback()).and_then(|local| sock_diag::owner(peer, local));
        let state = ProcessState {
            uid: owner.and_then(|owner| reader.support().known_user(owner.uid)),
            cgroup: owner.and_then(|owner| owner.cgroup_id).map_or(CgroupRef::Unknown, CgroupRef::Id),
            ..ProcessState::default()
        };
        let facts = reader.facts(
            &PeerFacts::unknown(FactSource::SocketDiagnostics),
            None,
            &PeerReading { state, executable: None },
        );
        Self { reader: Arc::clone(reader), facts, process: None, is_unix: false, hold: OnceLock::new() }
    }

    /// Facts when the peer connected.
    pub(crate) fn facts(&self) -> &PeerFacts {
        &self.facts
    }

    /// Returns the process that connected; `None` over TCP, and for one that had ended when its connection was accepted.
    pub(crate) fn process(&self) -> Option<&Arc<PinnedProcess>> {
        self.process.as_ref().map(|(process, _)| process)
    }

    /// Compares the peer with its state when it connected: one `PIDFD_GET_INFO` where the kernel has it, and the inode of
    /// the executable if one was asked for.
    pub(crate) fn compare(&self) -> PeerChange {
        let Some((process, first)) = &self.process else {
            // The diagnostics tell who created a TCP socket, which does not change.
            return if self.is_unix { PeerChange::Ended } else { PeerChange::Same };
        };
        let Ok(reading) = self.reader.read(process) else { return PeerChange::Ended };
        let same_user = reading.state.uid.is_none_or(|uid| Some(uid) == self.facts.uid);
        let same_group = reading.state.gid.is_none_or(|gid| Some(gid) == self.facts.gid);
        let same_place = reading.state.cgroup == first.state.cgroup && reading.executable == first.executable;
        if same_user && same_group && same_place {
            return PeerChange::Same;
        }
        PeerChange::Changed(self.reader.facts(&self.facts, Some(process), &reading))
    }

    /// Counts the connection in `open` until it ends, the first time that this is called. Returns false if `most`
    /// connections are counted already.
    pub(crate) fn hold(&self, open: &Arc<AtomicUsize>, most: usize) -> bool {
        if self.hold.get().is_some() {
            return true;
        }
        let take = |count: usize| (count < most).then_some(count + 1);
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
