//! Fault injection of the emulated Vault, and request counters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_machine::clock::ClockReading;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::leases::{LeasedCredential, Leases};
use super::tokens::Tokens;

/// Handle for injecting faults and reading counters; clones share their state.
#[derive(Debug, Clone, Default)]
pub struct FaultInjector(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Requested state of the listener.
    offline: watch::Sender<bool>,
    /// Actual state of the listener.
    is_offline: watch::Sender<bool>,
    held: watch::Sender<HeldRequests>,
}

/// Requests that are accepted but not answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum HeldRequests {
    #[default]
    None,
    All,
    Only(Operation),
}

#[derive(Debug, Default)]
struct State {
    next: BTreeMap<Operation, VecDeque<CannedResponse>>,
    always: BTreeMap<Operation, CannedResponse>,
    garbage: bool,
    sealed: bool,
    wording: Wording,
    skew_seconds: i64,
    counts: OperationCounts,
    tokens: Tokens,
    leases: Leases,
}

/// Server whose texts are sent, where Vault and OpenBao differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Wording {
    /// The default: it says less.
    #[default]
    OpenBao,
    Vault,
}

impl Wording {
    /// Returns the error for a token that was revoked, has expired or never existed.
    pub(super) const fn dead_token(self) -> &'static str {
        match self {
            Self::OpenBao => "permission denied",
            Self::Vault => "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n",
        }
    }

    /// Returns the error for a body that is not JSON.
    pub(super) fn invalid_json(self, body: &[u8], error: &serde_json::Error) -> String {
        let found = error
            .column()
            .checked_sub(1)
            .and_then(|at| body.split(|byte| *byte == b'\n').nth(error.line() - 1)?.get(at));
        match (self, found) {
            (Self::Vault, _) => "error parsing JSON".to_owned(),
            (Self::OpenBao, Some(found)) if !error.is_eof() => {
                format!("failed to decode JSON input: invalid character '{}'", found.escape_ascii())
            }
            (Self::OpenBao, _) => "failed to decode JSON input: unexpected EOF".to_owned(),
        }
    }
}

/// Kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `auth/MOUNT/login`.
    Login,
    /// `auth/token/lookup-self`.
    Lookup,
    /// `auth/token/renew-self`.
    Renew,
    /// `auth/token/revoke-self`.
    Revoke,
    /// `sys/wrapping/unwrap`.
    Unwrap,
    /// Anything below the mount of an engine: `secret/...`, `kv/...`, `terraform/...`, `database/...`, `pki/...`.
    Secret,
    /// `sys/leases/renew`, `sys/renew`.
    RenewLease,
    /// `sys/leases/revoke`, `sys/leases/revoke-prefix`, `sys/revoke`.
    RevokeLease,
    /// `sys/leases/lookup`.
    LookupLease,
    /// `auth/token/create`, `auth/token/create/ROLE`, `auth/token/create-orphan`.
    CreateToken,
    /// Any other call of `auth/token` that is not about the caller's own token, and calls about ids of `AppRole`.
    OtherToken,
    /// `sys/wrapping/wrap`, `sys/wrapping/lookup`.
    Wrap,
    /// `sys/mounts`, `sys/internal/ui/mounts`, `sys/capabilities-self`, `sys/seal`.
    System,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 13] = [
        Self::Login,
        Self::Lookup,
        Self::Renew,
        Self::Revoke,
        Self::Unwrap,
        Self::Secret,
        Self::RenewLease,
        Self::RevokeLease,
        Self::LookupLease,
        Self::CreateToken,
        Self::OtherToken,
        Self::Wrap,
        Self::System,
    ];

    /// Returns the name in the HTTP API of fault injection.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Lookup => "lookup",
            Self::Renew => "renew",
            Self::Revoke => "revoke",
            Self::Unwrap => "unwrap",
            Self::Secret => "secret",
            Self::RenewLease => "renew-lease",
            Self::RevokeLease => "revoke-lease",
            Self::LookupLease => "lookup-lease",
            Self::CreateToken => "create-token",
            Self::OtherToken => "other-token",
            Self::Wrap => "wrap",
            Self::System => "system",
        }
    }
}

/// A response that replaces the real one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannedResponse {
    /// HTTP status.
    pub(crate) status: u16,
    /// Body, sent unchanged.
    pub(crate) body: String,
    /// `Retry-After`.
    pub(crate) retry_after: Option<String>,
}

impl CannedResponse {
    /// Creates a response with this status and body.
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, body: body.into(), retry_after: None }
    }

    /// Creates an error in Vault's format.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, serde_json::json!({ "errors": [message] }).to_string())
    }

    /// Adds a `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        self.retry_after = Some(value.into());
        self
    }
}

/// Number of requests by operation, answered or not. Requests while the server was offline are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCounts([u64; Operation::ALL.len()]);

impl OperationCounts {
    /// Returns the number of requests of one operation.
    pub const fn get(&self, operation: Operation) -> u64 {
        self.0[operation as usize]
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl FaultInjector {
    /// Answers the next `count` logins with HTTP 500.
    pub fn fail_next_login(&self, count: u32) {
        for _ in 0..count {
            self.respond_next(Operation::Login, CannedResponse::error(500, "internal error"));
        }
    }

    /// Answers the next login with this response.
    pub fn respond_next_login(&self, status: u16, body: impl Into<String>) {
        self.respond_next(Operation::Login, CannedResponse::new(status, body));
    }

    /// Queues a response for the next call of `operation`.
    pub fn respond_next(&self, operation: Operation, response: CannedResponse) {
        self.0.state.lock().next.entry(operation).or_default().push_back(response);
    }

    /// Answers every call of `operation` with this response; `None` restores the real one.
    pub fn respond_always(&self, operation: Operation, response: Option<CannedResponse>) {
        match response {
            Some(response) => self.0.state.lock().always.insert(operation, response),
            None => self.0.state.lock().always.remove(&operation),
        };
    }

    /// Refuses renewals with HTTP 403, as a policy would; or allows them again.
    pub fn refuse_renewals(&self, refuse: bool) {
        self.respond_always(Operation::Renew, refuse.then(|| CannedResponse::error(403, PERMISSION_DENIED)));
    }

    /// Refuses lookups with HTTP 403, as a policy would; or allows them again.
    pub fn refuse_lookups(&self, refuse: bool) {
        self.respond_always(Operation::Lookup, refuse.then(|| CannedResponse::error(403, PERMISSION_DENIED)));
    }

    /// Stops listening and drops every connection; returns when new connections are refused.
    pub async fn go_away(&self) {
        self.set_offline(true).await;
    }

    /// Listens again at the same address; returns when it does.
    pub async fn come_back(&self) {
        self.set_offline(false).await;
    }

    /// Accepts connections but answers nothing; waiting requests are answered when it ends.
    pub fn set_unresponsive(&self, unresponsive: bool) {
        self.0.held.send_replace(if unresponsive { HeldRequests::All } else { HeldRequests::None });
    }

    /// The same for requests of one kind; others are answered.
    pub fn hang_only(&self, operation: Operation) {
        self.0.held.send_replace(HeldRequests::Only(operation));
    }

    /// Answers everything with an HTML page.
    pub fn garbage(&self, garbage: bool) {
        self.0.state.lock().garbage = garbage;
    }

    /// Seals the server: it answers nothing but its health. Or unseals it.
    pub fn seal(&self, sealed: bool) {
        self.0.state.lock().sealed = sealed;
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.0.state.lock().sealed
    }

    /// Sends the texts of OpenBao (the default) or of Vault, which for one says that a token is invalid.
    pub fn respond_as_openbao(&self, openbao: bool) {
        self.0.state.lock().wording = if openbao { Wording::OpenBao } else { Wording::Vault };
    }

    /// Dates responses by a clock this far ahead of ours (behind, if negative). Tokens are not affected.
    pub fn skew(&self, seconds: i64) {
        self.0.state.lock().skew_seconds = seconds;
    }

    /// Returns how far responses are dated ahead of our clock, in seconds.
    pub(super) fn skew_seconds(&self) -> i64 {
        self.0.state.lock().skew_seconds
    }

    /// Returns true while it does not listen.
    pub(super) fn is_away(&self) -> bool {
        *self.0.offline.borrow()
    }

    /// Revokes every token except batch tokens, which are not stored.
    pub fn revoke_all(&self) {
        self.0.state.lock().tokens.revoke_all();
    }

    /// Forgets every token, like a restart with in-memory storage.
    pub fn lose_state(&self) {
        self.0.state.lock().tokens = Tokens::default();
    }

    /// Returns the request counters.
    pub fn counts(&self) -> OperationCounts {
        self.0.state.lock().counts
    }

    /// Returns the number of stored tokens, including expired ones that were not used since.
    pub fn tokens(&self) -> usize {
        self.0.state.lock().tokens.len()
    }

    /// Returns the number of leases, including expired ones that nothing was requested for since.
    pub fn leases(&self) -> usize {
        self.0.state.lock().leases.len()
    }

    /// Returns the number of leases issued so far, ended ones included.
    pub fn leases_issued(&self) -> u64 {
        self.0.state.lock().leases.total_issued()
    }

    /// Counts a call, and returns the response that replaces the real one, if any.
    pub(super) fn record_call(&self, operation: Operation) -> Option<CannedResponse> {
        let mut state = self.0.state.lock();
        state.counts.0[operation as usize] += 1;
        let next = state.next.get_mut(&operation).and_then(VecDeque::pop_front);
        next.or_else(|| state.always.get(&operation).cloned())
    }

    pub(super) fn is_garbage(&self) -> bool {
        self.0.state.lock().garbage
    }

    pub(super) fn wording(&self) -> Wording {
        self.0.state.lock().wording
    }

    /// Applies the clock skew.
    pub(super) fn apply_skew(&self, wall: SystemTime) -> SystemTime {
        let seconds = self.0.state.lock().skew_seconds;
        let shift = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { wall.checked_sub(shift) } else { wall.checked_add(shift) }.unwrap_or(wall)
    }

    pub(super) fn with_tokens<R>(&self, access: impl FnOnce(&mut Tokens) -> R) -> R {
        access(&mut self.0.state.lock().tokens)
    }

    pub(super) fn with_leases<R>(&self, access: impl FnOnce(&mut Leases) -> R) -> R {
        access(&mut self.0.state.lock().leases)
    }

    /// Removes leases that have ended, or whose token has; returns their credentials.
    pub(super) fn sweep_leases(&self, now: ClockReading) -> Vec<LeasedCredential> {
        let State { tokens, leases, .. } = &mut *self.0.state.lock();
        leases.sweep(now, |owner| tokens.is_alive(owner, now))
    }

    /// Returns when a request of this kind may be answered.
    pub(super) async fn wait_until_released(&self, operation: Option<Operation>) {
        let is_released = |held: &HeldRequests| match held {
            HeldRequests::None => true,
            HeldRequests::All => false,
            HeldRequests::Only(held) => operation != Some(*held),
        };
        // The sender is our own, so the wait ends only when the fault does.
        let _ = self.0.held.subscribe().wait_for(is_released).await;
    }

    pub(super) fn subscribe_offline(&self) -> watch::Receiver<bool> {
        self.0.offline.subscribe()
    }

    pub(super) fn set_is_offline(&self, offline: bool) {
        self.0.is_offline.send_replace(offline);
    }

    async fn set_offline(&self, offline: bool) {
        self.0.offline.send_replace(offline);
        let _ = self.0.is_offline.subscribe().wait_for(|is_offline| *is_offline == offline).await;
    }
}

/// Error of Vault and OpenBao for a call that no policy allows.
pub(super) const PERMISSION_DENIED: &str = "1 error occurred:\n\t* permission denied\n\n";
