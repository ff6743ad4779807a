//! Who may call a local listener. Decides from the peer and the head of the request alone.

use std::collections::BTreeSet;

use crate::secret;

/// How a listener is guarded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Names that `Host` may carry besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
    /// Whom to let in.
    pub admit: Admit,
}

/// Whom a listener lets in.
#[derive(Debug, Clone, Default)]
pub enum Admit {
    /// Unix socket: peers of the agent's own uid, root, and members of the socket's group.
    #[default]
    SocketPeers,
    /// Whoever brings this key in `X-Vault-Token` or `Authorization: Bearer`.
    Key(secrecy::SecretString),
    /// Every user of this machine, said so in the configuration.
    AnyLocalUser,
}

impl PartialEq for Admit {
    /// Keys are compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SocketPeers, Self::SocketPeers) | (Self::AnyLocalUser, Self::AnyLocalUser) => true,
            (Self::Key(left), Self::Key(right)) => secret::same_or_none(Some(left), Some(right)),
            _ => false,
        }
    }
}

/// Who is calling, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCaller {
    /// The peer's user id at the time it connected; `None` over TCP.
    pub uid: Option<u32>,
    /// The peer's process id then; `None` over TCP.
    pub pid: Option<u32>,
}
