//! Options of the pages' listener.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::secret_string::SecretString;

/// Options of the pages of one listener.
#[derive(Debug, Clone)]
pub(crate) struct UiOptions {
    /// Key that opens the pages of the agent and the gateway.
    pub(crate) key: SecretString,
    /// Names allowed in `Host` besides the listener's own address, and `localhost` on loopback.
    pub(crate) allowed_hosts: BTreeSet<String>,
    /// Address that the listener is bound to.
    pub(crate) address: SocketAddr,
    /// The listener serves TLS.
    pub(crate) tls: bool,
}
