//! What the doors open to.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::login_rate_limit::{Limiter, LoginLimit};
use super::response_cache::Answers;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::bootstrap::ResetFile;
use crate::acl::service::login::Methods;
use crate::acl::service::snapshot::Restores;
use crate::metrics::Metrics;

/// How the API is spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What stands before `/v1` in every path, such as `/acl-server`; empty for nothing.
    pub base_path: String,
    /// Whether a secret may come as `token` in the query. Queries tend to be written down on the way.
    pub token_in_query: bool,
    /// How often one source may log in, whatever by.
    pub login_limit: LoginLimit,
    /// Names that `Host` may carry besides `localhost` and the socket's own address. Checked on loopback always, and
    /// elsewhere if there is one.
    pub allowed_hosts: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Self {
        let (login_limit, allowed_hosts) = (LoginLimit::default(), BTreeSet::new());
        Self { base_path: String::new(), token_in_query: true, login_limit, allowed_hosts }
    }
}

/// What the doors open to.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// The records.
    pub directory: Arc<Directory>,
    /// The auth methods of the configuration.
    pub methods: Arc<Methods>,
    /// The restores of this server.
    pub restores: Arc<Restores>,
    /// Logins, by where they come from.
    pub limiter: Arc<Limiter>,
    /// Answers that were given already.
    pub answers: Arc<Answers>,
    /// How it is spoken.
    pub options: Arc<Options>,
    /// What lets the first token be made once more.
    pub reset: ResetFile,
    /// Where requests are counted.
    pub metrics: Metrics,
    /// Cancelled when the server stops: those who wait are answered then.
    pub stop: CancellationToken,
}
