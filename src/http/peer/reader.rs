//! Reads the facts about peers of a listener.

use std::os::fd::AsFd;
use std::sync::Arc;

use keyward_machine::command::ExecutableOpener;

use super::cgroup_search::CgroupSearches;
use super::cgroup_tree::{CgroupLookup, CgroupTree};
use super::executable::{Executables, FileId, WantedExecutable};
use super::facts::{FactSource, PeerFacts};
use super::process::{CgroupRef, PinnedProcess, ProcessEnded, ProcessState};
use super::support::KernelSupport;

/// The kernel's answers that all listeners share.
#[derive(Debug)]
pub struct PeerKernel {
    support: KernelSupport,
    cgroups: Arc<CgroupTree>,
    searches: CgroupSearches,
    executables: ExecutableOpener,
}

impl PeerKernel {
    /// Creates it for a kernel with these features.
    pub fn new(support: KernelSupport) -> Self {
        let cgroups = Arc::new(CgroupTree::new(support.cgroups.clone()));
        let searches = CgroupSearches::new(Arc::clone(&cgroups));
        Self { support, cgroups, searches, executables: ExecutableOpener::default() }
    }

    /// The same, whose executables are opened by `opener`.
    #[must_use]
    pub fn with_opener(mut self, opener: ExecutableOpener) -> Self {
        self.support.executables = opener.opens_all();
        self.executables = opener;
        self
    }

    /// Returns the features of the kernel.
    pub const fn support(&self) -> &KernelSupport {
        &self.support
    }
}

/// Reads the facts about peers.
#[derive(Debug)]
pub struct PeerReader {
    kernel: Arc<PeerKernel>,
    executables: Executables,
}

/// Facts as they were read, and the raw values to compare with later ones.
#[derive(Debug)]
pub(super) struct PeerReading {
    pub(super) state: ProcessState,
    pub(super) executable: Option<FileId>,
}

impl PeerReader {
    /// Creates a reader that looks for these executables.
    pub fn new(kernel: Arc<PeerKernel>, executables: Vec<WantedExecutable>) -> Self {
        let executables = Executables::new(executables, kernel.executables.clone());
        Self { kernel, executables }
    }

    /// Reads the facts about the process that has this id now, for `keyward policy explain`. `None` if there is none.
    pub fn facts_of_process(&self, pid: u32) -> Option<PeerFacts> {
        let process = PinnedProcess::from_pid(pid, self.support()).ok()?;
        let groups = self.support().groups_of(pid);
        let reading = self.read(&process, self.executable_of(&process)).ok()?;
        let unread = PeerFacts { pid: Some(pid), groups: groups.into(), ..PeerFacts::unknown(FactSource::Procfs) };
        let (mut facts, unknown) = self.facts(&unread, Some(&process), &reading);
        if let Some(id) = unknown {
            facts.cgroup = self.kernel.cgroups.search(id, facts.uid);
        }
        Some(facts)
    }

    /// Searches for a cgroup that [`Self::facts`] did not find.
    pub(super) async fn find_cgroup(&self, id: u64, uid: Option<u32>) -> Option<Arc<str>> {
        self.kernel.searches.find(id, uid).await
    }

    /// Starts such a search, for a later call of [`Self::facts`].
    pub(super) fn start_search(&self, id: u64, uid: Option<u32>) {
        self.kernel.searches.start(id, uid);
    }

    pub(super) fn support(&self) -> &KernelSupport {
        &self.kernel.support
    }

    pub(super) fn pin(&self, socket: impl AsFd, pid: u32, uid: u32, gid: u32) -> Option<PinnedProcess> {
        PinnedProcess::from_socket(socket, pid, uid, gid, self.support()).ok()
    }

    /// Returns the file that a process runs; `None` if it cannot be known, or no rule names an executable. The state that is
    /// read after it proves that the process was alive.
    pub(super) fn executable_of(&self, process: &PinnedProcess) -> Option<FileId> {
        self.executables.file_of(process.pid)
    }

    /// Reads a process's state, beside its executable.
    pub(super) fn read(
        &self,
        process: &PinnedProcess,
        executable: Option<FileId>,
    ) -> Result<PeerReading, ProcessEnded> {
        Ok(PeerReading { state: process.state(self.support())?, executable })
    }

    /// Returns `base` with the facts of a reading in place of its own. Facts that the reading lacks stay as they were. The second
    /// value is the id of a cgroup whose path only a search tells.
    pub(super) fn facts(
        &self,
        base: &PeerFacts,
        process: Option<&PinnedProcess>,
        reading: &PeerReading,
    ) -> (PeerFacts, Option<u64>) {
        let pid = process.map(|process| process.pid);
        let uid = reading.state.uid.or(base.uid);
        let (cgroup, unknown) = match &reading.state.cgroup {
            CgroupRef::Id(id) => match self.kernel.cgroups.lookup(*id, pid, uid) {
                CgroupLookup::Known(path) => (path, None),
                CgroupLookup::Unknown => (None, Some(*id)),
            },
            CgroupRef::Path(path) => (Some(Arc::clone(path)), None),
            CgroupRef::Unknown => (None, None),
        };
        let executable = pid.zip(reading.executable).and_then(|(pid, file)| self.executables.identify(pid, file));
        // The file was read by the process's id, which must still have been its own.
        let executable = executable.filter(|_| process.is_some_and(PinnedProcess::is_alive));
        let source = match reading.state {
            ProcessState { by_descriptor: true, .. } => FactSource::PidfdInfo,
            ProcessState { uid: None, cgroup: CgroupRef::Unknown, .. } => base.source,
            _ if base.source == FactSource::SocketDiagnostics => FactSource::SocketDiagnostics,
            _ => FactSource::Procfs,
        };
        let gid = reading.state.gid.or(base.gid);
        (PeerFacts { uid, gid, cgroup, executable, source, ..base.clone() }, unknown)
    }
}
