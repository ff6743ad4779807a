//! Faults of the emulated platform as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::edition::Edition;
use super::faults::{FaultInjector, MintedToken, NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES};
use super::page::Paging;
use crate::control_listener::FaultApi;

/// A fault of the emulated platform, such as `{"limit": 7}` or `"revoke-all"`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// See [`FaultInjector::blob_mib`].
    Blobs(Option<u32>),
    /// See [`FaultInjector::delay`]; in milliseconds.
    Delay(u64),
    /// See [`FaultInjector::edition`].
    Edition(Edition),
    /// See [`FaultInjector::fail_next`].
    FailNext {
        /// Number of requests.
        count: usize,
        /// HTTP status; 500 by default.
        status: Option<u16>,
        /// `Retry-After` in seconds.
        retry_after: Option<u64>,
    },
    /// See [`FaultInjector::fill`].
    Fill {
        /// One of the ten lists of 2021-11-17.
        list: String,
        /// Its parent, such as the organization.
        #[serde(default)]
        parent: String,
        /// Number of entries.
        count: usize,
    },
    /// See [`FaultInjector::forget_calls`].
    ForgetCalls,
    /// See [`FaultInjector::limit`].
    Limit(Option<u32>),
    /// See [`FaultInjector::lose_next_responses`].
    LoseNextResponses(usize),
    /// See [`FaultInjector::mint`]; returns the token for this description.
    Mint(String),
    /// Adds or removes [`NEW_REGISTRY_ROUTES`].
    NewRegistryRoutes(bool),
    /// Adds or removes [`OLD_REGISTRY_ROUTES`].
    OldRegistryRoutes(bool),
    /// See [`FaultInjector::paging`].
    Paging(Paging),
    /// See [`FaultInjector::relative_downloads`].
    RelativeDownloads(bool),
    /// See [`FaultInjector::revoke`].
    Revoke(String),
    /// See [`FaultInjector::revoke_all`].
    RevokeAll,
    /// See [`FaultInjector::rotate`]; returns the token.
    Rotate,
}

impl FaultApi for FaultInjector {
    type Fault = Fault;

    async fn inject(&self, fault: Fault) -> Result<Value, &'static str> {
        let show =
            |minted: &MintedToken| json!({"emulated": true, "id": minted.id, "token": minted.token.expose_secret()});
        match fault {
            Fault::Blobs(mib) => self.blob_mib(mib),
            Fault::Delay(milliseconds) => self.delay(Duration::from_millis(milliseconds)),
            Fault::Edition(edition) => self.edition(edition),
            Fault::FailNext { count, status, retry_after } => self.fail_next(count, status.unwrap_or(500), retry_after),
            Fault::Fill { list, parent, count } => {
                if self.fill(&list, &parent, count) < count {
                    return Err("list is none of those of 2021-11-17, or there is no room for so many");
                }
            }
            Fault::ForgetCalls => self.forget_calls(),
            Fault::Limit(per_second) => self.limit(per_second),
            Fault::LoseNextResponses(count) => self.lose_next_responses(count),
            Fault::Mint(description) => return Ok(show(&self.mint(&description))),
            Fault::NewRegistryRoutes(on) => self.routes(NEW_REGISTRY_ROUTES, on),
            Fault::OldRegistryRoutes(on) => self.routes(OLD_REGISTRY_ROUTES, on),
            Fault::Paging(paging) => self.paging(paging),
            Fault::RelativeDownloads(on) => self.relative_downloads(on),
            Fault::Revoke(id) => {
                if !self.revoke(&id) {
                    return Err("there is no token with this id");
                }
            }
            Fault::RevokeAll => drop(self.revoke_all()),
            Fault::Rotate => return Ok(show(&self.rotate())),
        }
        Ok(FaultApi::state(self))
    }

    fn state(&self) -> Value {
        let state = Self::state(self);
        let settings = &state.settings;
        json!({
            "emulated": true, "requests": state.call_log.total(), "tokens": state.tokens.list(|_| true).len(),
            "edition": settings.edition, "paging": settings.paging, "requests_per_second": settings.limit,
            "removed_routes": settings.removed, "failing": settings.failing.len(), "losing": settings.lost_responses_left,
            "delay_milliseconds": settings.delay.as_millis(), "blob_mib": settings.blob_mib,
        })
    }
}
