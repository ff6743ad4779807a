//! What makes the server fail, and what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::leases::{LeasedCredential, Leases};
use super::tokens::Tokens;
use crate::clock::ClockReading;

/// Makes the server fail, and counts what it is asked. Clones turn the same dials.
#[derive(Debug, Clone, Default)]
pub struct SecretsFaultInjector(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// What is wanted of the listener.
    away: watch::Sender<bool>,
    /// What the listener does.
    is_away: watch::Sender<bool>,
    hang: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next: BTreeMap<Operation, VecDeque<CannedResponse>>,
    always: BTreeMap<Operation, CannedResponse>,
    garbage: bool,
    /// Answers dead tokens as OpenBao does.
    openbao: bool,
    skew_seconds: i64,
    counts: OperationCounts,
    tokens: Tokens,
    leases: Leases,
}

/// What a client asks for.
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
    /// What is below the mount of an engine: `secret/...`, `kv/...`, `terraform/...`, `database/...`, `pki/...`.
    Secret,
    /// `sys/leases/renew`, `sys/renew`.
    RenewLease,
    /// `sys/leases/revoke`, `sys/leases/revoke-prefix`, `sys/revoke`.
    RevokeLease,
    /// `sys/leases/lookup`.
    LookupLease,
    /// `auth/token/create`, `auth/token/create-orphan`.
    CreateToken,
    /// Any other call of `auth/token` that is not about the caller's own token.
    OtherToken,
    /// `sys/wrapping/wrap`, `sys/wrapping/lookup`.
    Wrap,
    /// `sys/mounts`, `sys/internal/ui/mounts`, `sys/capabilities-self`.
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

    /// Its name on the dials over HTTP.
    pub const fn name(self) -> &'static str {
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

/// An answer given in place of the real one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannedResponse {
    /// Its status.
    pub status: u16,
    /// Its body, as it stands.
    pub body: String,
    /// Its `Retry-After`.
    pub retry_after: Option<String>,
}

impl CannedResponse {
    /// An answer with this status and body.
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, body: body.into(), retry_after: None }
    }

    /// A refusal in Vault's form.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, serde_json::json!({ "errors": [message] }).to_string())
    }

    /// The same with a `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        self.retry_after = Some(value.into());
        self
    }
}

/// How often each operation was asked for, answered or not. What came while the server was away is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCounts([u64; Operation::ALL.len()]);

impl OperationCounts {
    /// How often one operation was asked for.
    pub const fn get(&self, operation: Operation) -> u64 {
        self.0[operation as usize]
    }

    /// How often anything was asked for.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl SecretsFaultInjector {
    /// The next `count` logins are answered with HTTP 500.
    pub fn fail_next_login(&self, count: u32) {
        for _ in 0..count {
            self.answer_next(Operation::Login, CannedResponse::error(500, "internal error"));
        }
    }

    /// The next login is answered with this.
    pub fn answer_next_login(&self, status: u16, body: impl Into<String>) {
        self.answer_next(Operation::Login, CannedResponse::new(status, body));
    }

    /// The next call of `operation` that nothing is in line for yet is answered with this.
    pub fn answer_next(&self, operation: Operation, answer: CannedResponse) {
        self.state().next.entry(operation).or_default().push_back(answer);
    }

    /// Every call of `operation` is answered with this, until told otherwise.
    pub fn answer_always(&self, operation: Operation, answer: Option<CannedResponse>) {
        match answer {
            Some(answer) => self.state().always.insert(operation, answer),
            None => self.state().always.remove(&operation),
        };
    }

    /// Whether renewals are refused with HTTP 403, as by a policy.
    pub fn refuse_renewals(&self, refuse: bool) {
        self.answer_always(Operation::Renew, refuse.then(|| CannedResponse::error(403, PERMISSION_DENIED)));
    }

    /// Whether look-ups are refused with HTTP 403, as by a policy.
    pub fn refuse_lookups(&self, refuse: bool) {
        self.answer_always(Operation::Lookup, refuse.then(|| CannedResponse::error(403, PERMISSION_DENIED)));
    }

    /// Stops listening and drops every connection; returns when a new connection is refused.
    pub async fn go_away(&self) {
        self.set_away(true).await;
    }

    /// Listens again at the same address; returns when it does.
    pub async fn come_back(&self) {
        self.set_away(false).await;
    }

    /// Whether connections are taken and requests never answered. Those that wait are answered when it ends.
    pub fn hang(&self, hang: bool) {
        self.0.hang.send_replace(hang);
    }

    /// Whether everything is answered with a page that no client expects.
    pub fn garbage(&self, garbage: bool) {
        self.state().garbage = garbage;
    }

    /// Refuses a token that is not there as OpenBao does, without a reason, or as Vault does.
    pub fn answer_as_openbao(&self, openbao: bool) {
        self.state().openbao = openbao;
    }

    /// Dates answers as if the server's clock were this far ahead of ours (behind, if negative). Tokens do not notice.
    pub fn skew(&self, seconds: i64) {
        self.state().skew_seconds = seconds;
    }

    /// Revokes every token, but batch tokens, which are not kept and cannot be.
    pub fn revoke_all(&self) {
        self.state().tokens.revoke_all();
    }

    /// Forgets every token, as a server does that kept them in memory and was started anew.
    pub fn lose_state(&self) {
        self.state().tokens = Tokens::default();
    }

    /// What was asked so far.
    pub fn counts(&self) -> OperationCounts {
        self.state().counts
    }

    /// How many tokens are kept, ended ones that nobody asked for since included.
    pub fn tokens(&self) -> usize {
        self.state().tokens.len()
    }

    /// How many credentials are lent, those included whose time is over and that nothing was asked for since.
    pub fn leases(&self) -> usize {
        self.state().leases.len()
    }

    /// How many credentials were lent so far, those included that ended.
    pub fn leases_issued(&self) -> u64 {
        self.state().leases.ever()
    }

    /// Counts a call, and gives what is to be answered in place of the real answer.
    pub(super) fn record_call(&self, operation: Operation) -> Option<CannedResponse> {
        let mut state = self.state();
        state.counts.0[operation as usize] += 1;
        let next = state.next.get_mut(&operation).and_then(VecDeque::pop_front);
        next.or_else(|| state.always.get(&operation).cloned())
    }

    pub(super) fn is_garbage(&self) -> bool {
        self.state().garbage
    }

    /// The refusal of a token that is not there.
    pub(super) fn dead_token(&self) -> &'static str {
        if self.state().openbao { OPENBAO_DEAD_TOKEN } else { VAULT_DEAD_TOKEN }
    }

    /// The wall clock as the server says that it is.
    pub(super) fn apply_skew(&self, wall: SystemTime) -> SystemTime {
        let seconds = self.state().skew_seconds;
        let shift = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { wall.checked_sub(shift) } else { wall.checked_add(shift) }.unwrap_or(wall)
    }

    pub(super) fn with_tokens<R>(&self, look: impl FnOnce(&mut Tokens) -> R) -> R {
        look(&mut self.state().tokens)
    }

    pub(super) fn with_leases<R>(&self, look: impl FnOnce(&mut Leases) -> R) -> R {
        look(&mut self.state().leases)
    }

    /// Leases whose time, or whose token's, is over: their credentials.
    pub(super) fn sweep_leases(&self, now: ClockReading) -> Vec<LeasedCredential> {
        let State { tokens, leases, .. } = &mut *self.state();
        leases.sweep(now, |owner| tokens.lives(owner, now))
    }

    /// Returns when requests are to be answered.
    pub(super) async fn wait_until_released(&self) {
        // Its sender is in our hands, so the wait ends only when the dial is turned.
        let _ = self.0.hang.subscribe().wait_for(|hang| !hang).await;
    }

    pub(super) fn subscribe_away(&self) -> watch::Receiver<bool> {
        self.0.away.subscribe()
    }

    pub(super) fn set_is_away(&self, away: bool) {
        self.0.is_away.send_replace(away);
    }

    async fn set_away(&self, away: bool) {
        self.0.away.send_replace(away);
        let _ = self.0.is_away.subscribe().wait_for(|is_away| *is_away == away).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How OpenBao refuses a token that was revoked, has ended or never was.
const OPENBAO_DEAD_TOKEN: &str = "permission denied";

/// How Vault refuses the same.
const VAULT_DEAD_TOKEN: &str = "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n";

/// How Vault and OpenBao say that a policy does not allow a call.
pub(super) const PERMISSION_DENIED: &str = "1 error occurred:\n\t* permission denied\n\n";
