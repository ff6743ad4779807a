//! Facts about the process at the other end of a connection.

use std::path::Path;
use std::sync::Arc;

/// Facts about a process, as the kernel reports them. A fact that it does not report is absent and matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerFacts {
    /// Process id when it connected; absent over TCP and for processes of other pid namespaces.
    pub pid: Option<u32>,
    /// Effective user; absent if the user has no id in the user namespace of this process.
    pub uid: Option<u32>,
    /// Effective group; absent over TCP, and like the user.
    pub gid: Option<u32>,
    /// Supplementary groups when it connected; empty over TCP.
    pub groups: Arc<[u32]>,
    /// Path of its cgroup of version 2, such as `/system.slice/nginx.service`.
    pub cgroup: Option<Arc<str>>,
    /// Executable, if it is one that was asked for.
    pub executable: Option<ExecutableFacts>,
    /// Origin of the facts.
    pub source: FactSource,
}

impl PeerFacts {
    /// Returns facts of which none is known.
    pub(super) fn unknown(source: FactSource) -> Self {
        let groups = Arc::new([]);
        Self { pid: None, uid: None, gid: None, groups, cgroup: None, executable: None, source }
    }

    /// Returns the facts that the kernel reports about the same process over TCP: its user and cgroup.
    #[must_use]
    pub fn restrict_to_tcp(&self) -> Self {
        Self { pid: None, gid: None, groups: Arc::new([]), executable: None, ..self.clone() }
    }
}

/// An executable that was asked for and that a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutableFacts {
    /// Path that was asked for.
    pub path: Arc<Path>,
    /// SHA-256 digest of its content, if that was asked for.
    pub sha256: Option<[u8; 32]>,
}

/// Origin of facts, from the strongest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactSource {
    /// The socket names the process, and the kernel reports its state by its descriptor.
    PidfdInfo,
    /// The socket or the process id names the process, and `/proc` reports its state.
    Procfs,
    /// Only the connection reports its user and groups, as of the connect.
    Credentials,
    /// The socket diagnostics report the user and the cgroup of a TCP socket.
    SocketDiagnostics,
}

impl FactSource {
    /// Name in logs and in the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PidfdInfo => "pidfd_info",
            Self::Procfs => "procfs",
            Self::Credentials => "credentials",
            Self::SocketDiagnostics => "sock_diag",
        }
    }
}
