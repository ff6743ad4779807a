//! What makes the platform behave differently, and what it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;

use super::call_log::RecordedCall;
use super::edition::Edition;
use super::ids;
use super::lists_table::TEN;
use super::page::Paging;
use super::state::{Failure, State};
use super::store::Resource;
use super::tokens::{PlatformTokenKind, TokenRequest};
use crate::clock::Clock;

/// Makes the platform behave differently, and tells what it was asked. Clones turn the same dials.
#[derive(Debug, Clone)]
pub struct PlatformFaultInjector {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

/// A new token.
#[derive(Debug, Clone)]
pub struct MintedToken {
    /// What the platform calls it, and what [`RecordedCall::token`] says.
    pub id: String,
    /// The token itself.
    pub token: SecretString,
}

/// The six routes that the entry of 2021-06-8 replaced.
pub const OLD_REGISTRY_ROUTES: [&str; 6] = [
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}/{provider}/{version}",
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}/{provider}",
    "POST /api/v2/registry-modules/actions/delete/{organization}/{name}",
    "POST /api/v2/registry-modules",
    "POST /api/v2/registry-modules/{organization}/{name}/{provider}/versions",
    "GET /api/v2/registry-modules/show/{organization}/{name}/{provider}",
];

/// What replaced them, in the same order.
pub const NEW_REGISTRY_ROUTES: [&str; 6] = [
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}/{version}",
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}",
    "DELETE /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}",
    "POST /api/v2/organizations/{organization}/registry-modules/vcs",
    "POST /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}/versions",
    "GET /api/v2/organizations/{organization}/registry-modules/{registry}/{namespace}/{name}/{provider}",
];

impl PlatformFaultInjector {
    pub(super) fn new(state: State, clock: Clock) -> Self {
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Which product it is, from now on.
    pub fn edition(&self, edition: Edition) {
        self.state().settings.edition = edition;
    }

    /// How the ten lists of 2021-11-17 behave.
    pub fn paging(&self, paging: Paging) {
        self.state().settings.paging = paging;
    }

    /// Requests that a user may make in a second, by whatever token; `None` for any number.
    pub fn limit(&self, limit: Option<u32>) {
        self.state().settings.limit = limit;
    }

    /// Whether these routes are there. A route is a method and a path with names in braces, as in [`RecordedCall::route`].
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

    /// The next `count` requests, uploads and downloads not counted, are answered with this status, and with a
    /// `Retry-After` of so many seconds.
    pub fn fail_next(&self, count: usize, status: u16, retry_after: Option<u64>) {
        // Nobody wants more; what is in line takes memory.
        let failures = std::iter::repeat_n(Failure { status, retry_after }, count.min(10_000));
        let mut state = self.state();
        state.settings.failing.truncate(10_000);
        state.settings.failing.extend(failures);
    }

    /// The next `count` writes are done, and answered with 504 as by a load balancer that has waited too long.
    pub fn lose_next_answers(&self, count: usize) {
        self.state().settings.losing = count;
    }

    /// How long every answer takes in addition.
    pub fn delay(&self, delay: Duration) {
        self.state().settings.delay = delay;
    }

    /// Every download is this many MiB of no meaning, in the place of what was uploaded.
    pub fn blob_mib(&self, mib: Option<u32>) {
        self.state().settings.blob_mib = mib;
    }

    /// Whether `X-Terraform-Get` is a path rather than a URL.
    pub fn relative_downloads(&self, relative: bool) {
        self.state().settings.relative_downloads = relative;
    }

    /// Makes a token of the platform's one user.
    pub fn mint(&self, description: &str) -> MintedToken {
        let now = self.clock.now().wall;
        let mut state = self.state();
        let text = ids::token();
        let request = TokenRequest {
            kind: PlatformTokenKind::User,
            owner: state.user.clone(),
            description: Some(description.to_owned()),
            expires: None,
            created_by: state.user.clone(),
        };
        // Refused only when thousands are there; then the text is no token, which is told as such.
        let id = state.tokens.make(request, &text, now).map(|token| token.id).unwrap_or_default();
        MintedToken { id, token: SecretString::from(text) }
    }

    /// Makes a token of the platform's one user, and ends all that the user had before.
    pub fn rotate(&self) -> MintedToken {
        let next = self.mint("rotated");
        let mut state = self.state();
        let user = state.user.clone();
        state.tokens.revoke_where(|token| token.owner == user && token.id != next.id);
        drop(state);
        next
    }

    /// Ends a token at once; says whether there was one.
    pub fn revoke(&self, id: &str) -> bool {
        self.state().tokens.revoke(id)
    }

    /// Ends every token; gives how many.
    pub fn revoke_all(&self) -> usize {
        self.state().tokens.revoke_where(|_| true)
    }

    /// Adds `count` made-up entries to one of the ten lists of 2021-11-17, such as `ssh-keys` of an organization. What
    /// they belong to need not be there. Gives how many were added.
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

    /// The last twenty thousand requests, oldest first.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.state().call_log.calls()
    }

    /// How many requests there were.
    pub fn total(&self) -> u64 {
        self.state().call_log.total()
    }

    /// Forgets the requests.
    pub fn forget_calls(&self) {
        self.state().call_log.forget();
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
