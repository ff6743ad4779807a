//! Reads from the kernel which process is at the other end of a local connection: its user, groups, cgroup and executable.
//!
//! A unix socket names the process that connected (`SO_PEERCRED`), which `SO_PEERPIDFD` pins: its id cannot mean another
//! process then. `PIDFD_GET_INFO` reports the process's present state for each request. Over loopback TCP the socket
//! diagnostics report the user and the cgroup of the peer's socket. Nothing that a peer can choose is believed: no name, no
//! path of its own file system, no environment.

pub(crate) mod sock_diag;
mod facts;
mod procfs;
mod support;
mod cgroup_tree;
mod cgroup_search;
mod executable;
mod process;
mod reader;
mod identity;

pub use executable::WantedExecutable;
#[cfg(any(test, feature = "test-support"))]
pub use facts::ExecutableFacts;
#[cfg(any(test, feature = "test-support"))]
pub use facts::FactSource;
pub use facts::PeerFacts;
pub use identity::{ExecutableAge, PeerChange, PeerIdentity};
pub use process::PinnedProcess;
pub use reader::{PeerKernel, PeerReader};
pub use sock_diag::{SocketOwner, check_tcp_owners, reports_tcp_owners};
pub use support::KernelSupport;
pub(crate) use support::known_group;
