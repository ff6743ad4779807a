//! Fault injection of the emulated platform, and its request log.

use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use parking_lot::{Mutex, MutexGuard};

use super::call_log::RecordedCall;
use super::edition::Edition;
use super::ids;
use super::lists_table::TEN;
use super::page::Paging;
use super::resources::Resource;
use super::state::{Failure, State};
use super::tokens::{TokenKind, TokenRequest};

/// Handle for injecting faults and reading the request log; clones share their state.
#[derive(Debug, Clone)]
pub struct FaultInjector {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

/// A new token.
#[derive(Debug, Clone)]
pub struct MintedToken {
    /// Id at the platform, also in [`RecordedCall::token`].
    pub id: String,
    /// Text of the token.
    pub token: SecretString,
}

/// The six routes replaced by the changelog entry of 2021-06-8.
pub const OLD_REGISTRY_ROUTES: [&str; 6] = [
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}/{provider}/{version}",
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}/{provider}",
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}",
    "POST /api/v2/registry-modules",
    "POST /api/v2/registry-modules/{organization}/{name}/{provider}/versions",
    "GET /api/v2/registry-modules/show/{organization}/{name}/{provider}",
];

/// Their replacements, in the same order.
pub const NEW_REGISTRY_ROUTES: [&str; 6] = [
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}/{version}",
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}",
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}",
    "POST /api/v2/organizations/{organization}/registry-modules/vcs",
    "POST /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}/versions",
    "GET /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}",
];

impl FaultInjector {
    pub(super) fn new(state: State, clock: Clock) -> Self {
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Changes the product.
    pub fn edition(&self, edition: Edition) {
        self.state().settings.edition = edition;
    }

    /// Changes the paging of the ten lists of 2021-11-17.
    pub fn paging(&self, paging: Paging) {
        self.state().settings.paging = paging;
    }

    /// Limits requests per second and user, whatever token is used; `None` for no limit.
    pub fn limit(&self, limit: Option<u32>) {
        self.state().settings.limit = limit;
    }

    /// Adds or removes routes. A route is a method and a path with parameters in braces, as in [`RecordedCall::route`].
    pub fn routes<'a>(&self, routes: impl IntoIterator<Item = &'a str>, present: bool) {
        let mut state = self.state();
        for route in routes {
            if present {
                state.settings.removed.remove(route);
            } else {
                state.settings.removed.insert(route.to_owned());
            }
        }
    }

    /// Fails the next `count` requests, except uploads and downloads, with this status and `Retry-After` in seconds.
    pub fn fail_next(&self, count: usize, status: u16, retry_after: Option<u64>) {
        // Bounds the memory of the queue.
        let failures = std::iter::repeat_n(Failure { status, retry_after }, count.min(10_000));
        let mut state = self.state();
        state.settings.failing.truncate(10_000);
        state.settings.failing.extend(failures);
    }

    /// Executes the next `count` writes, but answers 504 as a load balancer does after a timeout.
    pub fn lose_next_responses(&self, count: usize) {
        self.state().settings.lost_responses_left = count;
    }

    /// Delays every response.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state().settings.delay = delay;
    }

    /// Replaces every download by this many MiB of filler.
    pub fn blob_mib(&self, mib: Option<u32>) {
        self.state().settings.blob_mib = mib;
    }

    /// Makes `X-Terraform-Get` a path instead of a URL.
    pub fn relative_downloads(&self, relative: bool) {
        self.state().settings.relative_downloads = relative;
    }

    /// Mints a token for the platform's only user.
    pub fn mint(&self, description: &str) -> MintedToken {
        let now = self.clock.now().wall;
        let mut state = self.state();
        let text = ids::token();
        let request = TokenRequest {
            kind: TokenKind::User,
            owner: state.user.clone(),
            description: Some(description.to_owned()),
            expires: None,
            created_by: state.user.clone(),
        };
        // Fails only with thousands of tokens; then the string is not a valid token, which calls will show.
        let id = state.tokens.make(request, &text, now).map(|token| token.id).unwrap_or_default();
        MintedToken { id, token: SecretString::from(text) }
    }

    /// Mints a token for the platform's only user, and revokes all previous ones.
    pub(crate) fn rotate(&self) -> MintedToken {
        let next = self.mint("rotated");
        let mut state = self.state();
        let user = state.user.clone();
        state.tokens.revoke_where(|token| token.owner == user && token.id != next.id);
        drop(state);
        next
    }

    /// Revokes a token at once; returns false if there is none.
    pub fn revoke(&self, id: &str) -> bool {
        self.state().tokens.revoke(id)
    }

    /// Revokes every token; returns their number.
    pub(crate) fn revoke_all(&self) -> usize {
        self.state().tokens.revoke_where(|_| true)
    }

    /// Adds `count` generated entries to one of the ten lists of 2021-11-17, such as `ssh-keys` of an organization.
    /// Their parent need not exist. Returns the number of added entries.
    pub fn fill(&self, list: &str, parent: &str, count: usize) -> usize {
        let mut state = self.state();
        let Some((kind, prefix)) = TEN.iter().find(|(kind, _)| *kind == list) else { return 0 };
        let mut add = |number: usize| {
            let name = format!("{list}-{number}");
            let mut entry = match list {
                "organizations" => super::state::organization(&name),
                _ => Resource::new(kind, prefix, parent),
            };
            entry.set("name", name);
            state.store.put(entry).is_ok()
        };
        (1..=count).take_while(|number| add(*number)).count()
    }

    /// Returns the last twenty thousand requests, oldest first.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.state().call_log.calls()
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.state().call_log.total()
    }

    /// Clears the request log.
    pub fn forget_calls(&self) {
        self.state().call_log.forget();
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
