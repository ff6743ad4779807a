//! Lists, filtered by the caller's permissions.

use serde::de::DeserializeOwned;

use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::typed_store::Stored;
use crate::model::names::NamespaceName;
use crate::model::namespace::NamespaceRecord;
use crate::store::{Freshness, Page, Revision};

/// Reasons why a list is incomplete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Records were omitted that the caller may not read.
    pub forbidden: bool,
    /// Records were omitted that are damaged.
    pub unreadable: bool,
}

/// List of records that a caller may read.
#[derive(Debug)]
pub(crate) struct RecordList<T> {
    /// Records.
    pub entries: Vec<Stored<T>>,
    /// Omitted records.
    pub omitted: Omitted,
    /// Revision of the last change of any record of the kind.
    pub revision: Revision,
}

/// Namespaces that a caller may list a kind in.
#[derive(Debug)]
pub(super) struct ReadableNamespaces {
    /// Names, in key order.
    pub(super) namespaces: Vec<NamespaceName>,
    /// Records omitted in other namespaces.
    pub(super) omitted: Omitted,
    /// Revision of the last change of the kind, read before the list.
    pub(super) revision: Revision,
}

impl NamespacedRecords {
    /// Lists records of a kind in one namespace, or with `None` in all namespaces where the caller has `acl:read`.
    /// Needs `acl:read` in the given namespace.
    pub(super) async fn list_records<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        kind: &str,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<RecordList<T>, ServiceError> {
        let readable = self.readable_namespaces(caller, kind, namespace, freshness).await?;
        let mut entries = Vec::new();
        let mut omitted = readable.omitted;
        for namespace in &readable.namespaces {
            let all = self.typed_store.all(&record_keys::kind_prefix(kind, Some(namespace)), freshness).await?;
            entries.extend(all.entries);
            omitted.unreadable |= all.unreadable;
        }
        omitted.unreadable |= self.typed_store.has_unreadable(&record_keys::kind_prefix(kind, namespace));
        Ok(RecordList { entries, omitted, revision: readable.revision })
    }

    /// Returns the namespaces that [`NamespacedRecords::list_records`] reads.
    pub(super) async fn readable_namespaces(
        &self,
        caller: &Caller,
        kind: &str,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<ReadableNamespaces, ServiceError> {
        if let Some(namespace) = namespace {
            caller.require(Privilege::AclRead, namespace)?;
        }
        let revision = self.typed_store.revision(&record_keys::kind_prefix(kind, None), freshness).await?;
        let mut readable = ReadableNamespaces { namespaces: Vec::new(), omitted: Omitted::default(), revision };
        if let Some(namespace) = namespace {
            self.require_namespace(namespace, freshness).await?;
            readable.namespaces.push(namespace.clone());
            return Ok(readable);
        }
        let all = self.typed_store.all::<NamespaceRecord>("namespace/", freshness).await?;
        readable.omitted.unreadable = all.unreadable;
        for namespace in all.entries {
            let name = &namespace.value.name;
            if caller.has(Privilege::AclRead, name) {
                readable.namespaces.push(name.clone());
            } else if !readable.omitted.forbidden {
                // One record is enough: the header only says that some were omitted.
                let first = Page { after: None, limit: 1 };
                let listing = self
                    .typed_store
                    .store()
                    .list(&record_keys::kind_prefix(kind, Some(name)), first, freshness)
                    .await?;
                readable.omitted.forbidden = !listing.entries.is_empty();
            }
        }
        Ok(readable)
    }
}
