//! The records that an answer shows: it has their index, and a wait for another ends when one of them changes.

use futures_util::future::try_join_all;

use super::error::ApiError;
use super::state::Rooms;
use crate::acl::model::names::NamespaceName;
use crate::acl::service::keys;
use crate::acl::store::{Freshness, Revision};

/// Keys, or starts of keys, with the last change of their kind.
#[derive(Debug)]
pub(super) struct Watched(Vec<(String, Revision)>);

impl Watched {
    /// Takes the last changes. To be called before anything is read: what changes in between is newer than they are.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn take(
        rooms: &Rooms,
        keys: impl IntoIterator<Item = String>,
        freshness: Freshness,
    ) -> Result<Self, ApiError> {
        let records = rooms.directory.records();
        let revisions = keys.into_iter().map(|key| async move {
            let revision = records.revision(&key, freshness).await?;
            Ok::<_, ApiError>((key, revision))
        });
        Ok(Self(try_join_all(revisions).await?))
    }

    /// The names of policies and roles that records of a namespace link.
    pub(super) fn linked(namespace: Option<&NamespaceName>) -> [String; 2] {
        ["policy", "role"].map(|kind| keys::within(kind, namespace))
    }

    /// Drops what is not shown after all: it would wake those who wait for nothing.
    #[must_use]
    pub(super) fn without(mut self, kind: &str, is_shown: bool) -> Self {
        let kind = keys::within(kind, None);
        self.0.retain(|(key, _)| is_shown || !key.starts_with(&kind));
        self
    }

    /// The index of the answer, and what changes it.
    pub(super) fn end(self) -> (Revision, Vec<String>) {
        let index = self.0.iter().map(|(_, revision)| *revision).max().unwrap_or_default();
        (index, self.0.into_iter().map(|(key, _)| key).collect())
    }
}
