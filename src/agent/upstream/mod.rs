//! The secrets server as the agent calls it: login, look-up, renewal, revocation.

use crate::http::client;

/// What a client of one secrets server is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name that the configuration gives the server.
    pub name: String,
    /// Which server it is, where the wire differs.
    pub kind: Kind,
    /// Where it is and how to reach it.
    pub client: client::Options,
    /// Time to wait for a login's answer: a server that checks the machine asks the cloud meanwhile.
    pub login_timeout: std::time::Duration,
}

/// Which secrets server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HashiCorp Vault.
    Vault,
    /// OpenBao.
    OpenBao,
    /// keyward's own access-control service.
    Keyward,
}
