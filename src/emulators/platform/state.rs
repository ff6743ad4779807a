//! Complete state of the platform, with injected faults. In memory, and bounded.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::blobs::Blobs;
use super::call_log::CallLog;
use super::edition::Edition;
use super::limits::RateLimitWindows;
use super::page::Paging;
use super::reply::ApiError;
use super::resources::{Resource, Store};
use super::tokens::{Token, TokenKind, Tokens};

#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) tokens: Tokens,
    pub(super) blobs: Blobs,
    pub(super) windows: RateLimitWindows,
    pub(super) call_log: CallLog,
    pub(super) settings: FaultSettings,
    /// The platform's only user.
    pub(super) user: String,
}

/// Faults that are currently injected.
#[derive(Debug)]
pub(super) struct FaultSettings {
    pub(super) edition: Edition,
    pub(super) paging: Paging,
    /// Requests per second and user; `None` for no limit.
    pub(super) limit: Option<u32>,
    /// Removed routes, as method and path.
    pub(super) removed: BTreeSet<String>,
    pub(super) failing: VecDeque<Failure>,
    /// Number of further writes whose responses are lost.
    pub(super) lost_responses_left: usize,
    pub(super) delay: Duration,
    /// Size in MiB of every download, instead of the uploaded bytes.
    pub(super) blob_mib: Option<u32>,
    /// True if `X-Terraform-Get` is a path instead of a URL.
    pub(super) relative_downloads: bool,
}

/// An injected error response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub status: u16,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u64>,
}

/// Requests per second and user on HCP Terraform.
pub(super) const USUAL_LIMIT: u32 = 30;

impl State {
    pub(super) fn new(organizations: &[String]) -> Self {
        let mut store = Store::default();
        let mut user = Resource::new("users", "user", "");
        user.set("username", "operator");
        let id = user.id.clone();
        // Cannot fail: the store is empty.
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
            // Changelog entry of 2022-05-04.
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
                lost_responses_left: 0,
                delay: Duration::ZERO,
                blob_mib: None,
                relative_downloads: false,
            },
            user: id,
        }
    }

    /// Returns true if a caller may see a resource. Permissions within an organization are not emulated.
    pub(super) fn may_see(&self, caller: &Token, id: &str) -> bool {
        let of_team = || self.store.organization_of(&caller.owner);
        match (caller.kind, self.store.organization_of(id)) {
            (TokenKind::AuditTrails | TokenKind::AgentPool, _) => false,
            (TokenKind::User, _) | (_, None) => true,
            (TokenKind::Team | TokenKind::TeamLegacy, Some(organization)) => of_team() == Some(organization),
            (TokenKind::Organization, Some(organization)) => caller.owner == organization,
        }
    }

    /// Finds a resource of a kind that the caller may see.
    pub(super) fn find(&self, caller: &Token, kind: &str, id: &str) -> Result<&Resource, ApiError> {
        let resource = self.store.find(kind, id)?;
        if self.may_see(caller, id) { Ok(resource) } else { Err(ApiError::not_found()) }
    }

    /// Deletes a resource with all that belongs to it, tokens and blobs included.
    pub(super) fn remove(&mut self, id: &str) {
        for resource in self.store.remove(id) {
            self.tokens.revoke_where(|token| token.owner == resource.id);
            for secret in resource.hidden.iter().filter(|(name, _)| name.ends_with("blob")).map(|(_, secret)| secret) {
                self.blobs.remove(secret);
            }
        }
    }
}

/// Creates an organization: its id is its name, and it has an external id.
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
