//! All that the platform keeps, and how the dials stand. In memory, and bounded.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::blobs::Blobs;
use super::call_log::CallLog;
use super::edition::Edition;
use super::limits::RateLimitWindows;
use super::page::Paging;
use super::reply::ApiError;
use super::store::{Resource, Store};
use super::tokens::{PlatformTokenKind, Token, Tokens};

#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) tokens: Tokens,
    pub(super) blobs: Blobs,
    pub(super) windows: RateLimitWindows,
    pub(super) call_log: CallLog,
    pub(super) settings: FaultSettings,
    /// The one person on the platform.
    pub(super) user: String,
}

/// How the dials stand.
#[derive(Debug)]
pub(super) struct FaultSettings {
    pub(super) edition: Edition,
    pub(super) paging: Paging,
    /// Requests a user may make in a second; `None` for any number.
    pub(super) limit: Option<u32>,
    /// Routes that are not there, as method and route.
    pub(super) removed: BTreeSet<String>,
    pub(super) failing: VecDeque<Failure>,
    /// So many writes more are done, and their answers lost.
    pub(super) losing: usize,
    pub(super) delay: Duration,
    /// Size of every blob, in MiB, in the place of what was uploaded.
    pub(super) blob_mib: Option<u32>,
    /// Whether `X-Terraform-Get` is a path rather than a URL.
    pub(super) relative_downloads: bool,
}

/// An answer in the place of the real one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) status: u16,
    /// Seconds of its `Retry-After`.
    pub(super) retry_after: Option<u64>,
}

/// What the hosted product allows a user in a second.
pub(super) const USUAL_LIMIT: u32 = 30;

impl State {
    pub(super) fn new(organizations: &[String]) -> Self {
        let mut store = Store::default();
        let mut user = Resource::new("users", "user", "");
        user.set("username", "operator");
        let id = user.id.clone();
        // An empty store has room.
        let _ = store.put(user);
        for name in organizations {
            let _ = store.put(organization(name));
        }
        for (name, agents) in [("free", false), ("standard", true), ("premium", true)] {
            let mut set = Resource::new("feature-sets", "fs", "");
            set.set("name", name);
            set.set("identifier", name);
            set.set("is-current", name == "free");
            set.set("agents", agents);
            // The entry of 2022-05-04.
            set.set("run-tasks", true);
            let _ = store.put(set);
        }
        Self {
            store,
            tokens: Tokens::default(),
            blobs: Blobs::default(),
            windows: RateLimitWindows::default(),
            call_log: CallLog::default(),
            settings: FaultSettings {
                edition: Edition::default(),
                paging: Paging::default(),
                limit: Some(USUAL_LIMIT),
                removed: BTreeSet::new(),
                failing: VecDeque::new(),
                losing: 0,
                delay: Duration::ZERO,
                blob_mib: None,
                relative_downloads: false,
            },
            user: id,
        }
    }

    /// Whether a caller may know of a resource. Who may do what within an organization is not emulated.
    pub(super) fn may_see(&self, caller: &Token, id: &str) -> bool {
        let of_team = || self.store.organization_of(&caller.owner);
        match (caller.kind, self.store.organization_of(id)) {
            (PlatformTokenKind::AuditTrails | PlatformTokenKind::AgentPool, _) => false,
            (PlatformTokenKind::User, _) | (_, None) => true,
            (PlatformTokenKind::Team | PlatformTokenKind::TeamLegacy, Some(organization)) => {
                of_team() == Some(organization)
            }
            (PlatformTokenKind::Organization, Some(organization)) => caller.owner == organization,
        }
    }

    /// A resource of a kind that the caller may know of.
    pub(super) fn find(&self, caller: &Token, kind: &str, id: &str) -> Result<&Resource, ApiError> {
        let found = self.store.find(kind, id)?;
        if self.may_see(caller, id) { Ok(found) } else { Err(ApiError::not_found()) }
    }

    /// Removes a resource with all that belongs to it, tokens and blobs included.
    pub(super) fn remove(&mut self, id: &str) {
        for gone in self.store.remove(id) {
            self.tokens.revoke_where(|token| token.owner == gone.id);
            for secret in gone.hidden.iter().filter(|(name, _)| name.ends_with("blob")).map(|(_, secret)| secret) {
                self.blobs.remove(secret);
            }
        }
    }
}

/// An organization, which has its name as its id and an id of another form beside it.
pub(super) fn organization(name: &str) -> Resource {
    let mut organization = Resource::new("organizations", "org", "");
    let external = std::mem::replace(&mut organization.id, name.to_owned());
    organization.set("name", name);
    organization.set("external-id", external);
    organization.set("email", "operator@example.com");
    organization.set("default-execution-mode", "local");
    let permissions = ["can-update", "can-destroy", "can-create-team", "can-create-workspace", "can-create-module"];
    organization.set(
        "permissions",
        permissions.map(|name| (name.to_owned(), true.into())).into_iter().collect::<serde_json::Map<_, _>>(),
    );
    organization
}
