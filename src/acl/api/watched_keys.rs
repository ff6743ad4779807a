//! Store keys that a response depends on: they give its index, and a blocking query ends when one of them changes.

use futures_util::future::try_join_all;

use super::error::ApiError;
use super::state::ApiState;
use crate::model::names::NamespaceName;
use crate::service::record_keys;
use crate::store::{Freshness, Revision};

/// Keys or key prefixes, each with the revision of the last change of its kind.
#[derive(Debug)]
pub(super) struct WatchedKeys(Vec<(String, Revision)>);

impl WatchedKeys {
    /// Loads the revisions of the last changes. Call it before the read: a change in between is then newer than they are.
    pub(super) async fn load(
        state: &ApiState,
        keys: impl IntoIterator<Item = String>,
        freshness: Freshness,
    ) -> Result<Self, ApiError> {
        let records = state.service.typed_store();
        let revisions = keys.into_iter().map(|key| async move {
            let revision = records.revision(&key, freshness).await?;
            Ok::<_, ApiError>((key, revision))
        });
        Ok(Self(try_join_all(revisions).await?))
    }

    /// Loads like [`WatchedKeys::load`] the revisions of a record, or of its kind, and of the kinds that it may link.
    pub(super) async fn load_with(
        state: &ApiState,
        own: String,
        linked: impl IntoIterator<Item = String>,
        freshness: Freshness,
    ) -> Result<Self, ApiError> {
        let revision = async { Ok(state.service.typed_store().revision(&own, freshness).await?) };
        let (watched, revision) = tokio::try_join!(Self::load(state, linked, freshness), revision)?;
        Ok(watched.with(own, revision))
    }

    /// Adds a key.
    #[must_use]
    pub(super) fn with(mut self, key: String, revision: Revision) -> Self {
        self.0.push((key, revision));
        self
    }

    /// Key prefixes of the policies and roles of a namespace, whose names appear in linking records.
    pub(super) fn policies_and_roles(namespace: Option<&NamespaceName>) -> [String; 2] {
        ["policy", "role"].map(|kind| record_keys::kind_prefix(kind, namespace))
    }

    /// Keeps the keys of a kind only if the response shows records of it: others would wake blocking queries for nothing.
    #[must_use]
    pub(super) fn retain_kind_if(mut self, kind: &str, is_shown: bool) -> Self {
        let kind = record_keys::kind_prefix(kind, None);
        self.0.retain(|(key, _)| is_shown || !key.starts_with(&kind));
        self
    }

    /// Returns the index of the response, and the keys whose change makes it stale.
    pub(super) fn into_parts(self) -> (Revision, Vec<String>) {
        let index = self.0.iter().map(|(_, revision)| *revision).max().unwrap_or_default();
        (index, self.0.into_iter().map(|(key, _)| key).collect())
    }
}
