//! Options of the pages' listener.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use keyward_machine::secret_string::SecretString;

/// Options of the pages of one listener.
#[derive(Debug, Clone)]
pub struct UiOptions {
    /// Key that opens the pages of the agent and the gateway.
    pub key: SecretString,
    /// Names allowed in `Host` besides the listener's own address, and `localhost` on loopback.
    pub allowed_hosts: BTreeSet<String>,
    /// Address that the listener is bound to.
    pub address: SocketAddr,
    /// The listener serves TLS.
    pub tls: bool,
}
