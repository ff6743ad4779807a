//! Lists of records that a caller may read, page by page: memory is bounded by one page.

use serde::de::DeserializeOwned;

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::record_keys;
use super::records::RecordKind;
use super::restore_lock::Epoch;
use super::typed_store::Stored;
use crate::model::names::NamespaceName;
use crate::model::namespace::NamespaceRecord;
use crate::store::{Freshness, Key, Page, Revision};

/// Reasons why a list is incomplete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Records were omitted that the caller may not read.
    pub forbidden: bool,
    /// Records were omitted that are damaged.
    pub unreadable: bool,
}

/// List of one kind of records that is read page by page.
#[derive(Debug)]
pub(crate) struct RecordPages {
    /// Omitted records, as far as known: any page may contain an unreadable one.
    pub omitted: Omitted,
    /// Key of the first unreadable record found.
    pub unreadable: Option<Key>,
    /// Revision of the last change of the kind, read before the list.
    pub revision: Revision,
    freshness: Freshness,
    /// Pages of different epochs must not be mixed.
    epoch: Epoch,
    /// Remaining key prefixes, the next one last.
    prefixes: Vec<String>,
    /// Key to continue after under the current prefix.
    after: Option<Key>,
}

impl RecordPages {
    async fn open(service: &AclService, kind: &str, freshness: Freshness) -> Result<Self, ServiceError> {
        let epoch = service.epoch(freshness).await?;
        let revision = service.typed_store.revision(&record_keys::kind_prefix(kind, None), freshness).await?;
        let (omitted, unreadable, prefixes, after) = (Omitted::default(), None, Vec::new(), None);
        Ok(Self { omitted, unreadable, revision, freshness, epoch, prefixes, after })
    }

    fn add(&mut self, service: &AclService, prefix: String) {
        self.omitted.unreadable |= service.typed_store.has_unreadable(&prefix);
        self.prefixes.push(prefix);
    }

    /// Returns the next page in key order; it may be empty. `None` at the end.
    pub(super) async fn next<T: DeserializeOwned>(
        &mut self,
        service: &AclService,
    ) -> Result<Option<Vec<Stored<T>>>, ServiceError> {
        let Some(prefix) = self.prefixes.last() else { return Ok(None) };
        let page = service.typed_store.page::<T>(prefix, self.after.take(), self.freshness).await?;
        self.omitted.unreadable |= page.unreadable.is_some();
        self.unreadable = self.unreadable.take().or(page.unreadable);
        self.after = page.next;
        if self.after.is_none() {
            self.prefixes.pop();
        }
        Ok(Some(page.entries.into_iter().map(|(_, record)| record).collect()))
    }

    /// Returns the next page of a kind like [`RecordPages::next`]; with a filter only the records that it selects.
    pub(crate) async fn next_selected<K: RecordKind>(
        &mut self,
        service: &AclService,
        filter: Option<&str>,
    ) -> Result<Option<Vec<Stored<K>>>, ServiceError> {
        let Some(mut records) = self.next::<K>(service).await? else { return Ok(None) };
        if let Some(text) = filter {
            let is_selected = K::filter(text);
            records.retain(|record| is_selected(&record.value));
        }
        K::retain_existing(&mut records, &service.records, self.freshness).await?;
        Ok(Some(records))
    }

    /// Returns the consistency of the list's reads.
    pub(crate) fn freshness(&self) -> Freshness {
        self.freshness
    }

    /// Fails if a restore has begun since the list was opened. Call it after everything that a page shows was read.
    pub(crate) async fn require_same_epoch(&self, service: &AclService) -> Result<(), ServiceError> {
        let is_same = service.epoch(self.freshness).await?.is(self.epoch);
        if is_same { Ok(()) } else { Err(ServiceError::Restoring) }
    }
}

impl AclService {
    /// Opens the list of a kind in one namespace, or with `None` in all namespaces where the caller has `acl:read`. Needs
    /// `acl:read` in the given namespace.
    pub(crate) async fn open_list(
        &self,
        caller: &Caller,
        kind: &str,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<RecordPages, ServiceError> {
        let Some(namespace) = namespace else { return self.open_list_of_all(caller, kind, freshness).await };
        caller.require(Privilege::AclRead, namespace)?;
        let mut pages = RecordPages::open(self, kind, freshness).await?;
        self.records.require_namespace(namespace, freshness).await?;
        pages.add(self, record_keys::kind_prefix(kind, Some(namespace)));
        Ok(pages)
    }

    async fn open_list_of_all(
        &self,
        caller: &Caller,
        kind: &str,
        freshness: Freshness,
    ) -> Result<RecordPages, ServiceError> {
        let mut pages = RecordPages::open(self, kind, freshness).await?;
        let mut namespaces = self.open_namespaces(freshness).await?;
        while let Some(page) = namespaces.next::<NamespaceRecord>(self).await? {
            for namespace in page {
                let prefix = record_keys::kind_prefix(kind, Some(&namespace.value.name));
                if caller.has(Privilege::AclRead, &namespace.value.name) {
                    pages.add(self, prefix);
                } else if !pages.omitted.forbidden {
                    // One record is enough: the header only says that some were omitted.
                    let first = Page { after: None, limit: 1 };
                    let listing = self.typed_store.store().list(&prefix, first, freshness).await?;
                    pages.omitted.forbidden = !listing.entries.is_empty();
                }
            }
        }
        pages.omitted.unreadable |= namespaces.unreadable.is_some();
        // The next one is the last.
        pages.prefixes.reverse();
        Ok(pages)
    }

    /// Opens the list of all namespaces, whatever the caller may see.
    pub(super) async fn open_namespaces(&self, freshness: Freshness) -> Result<RecordPages, ServiceError> {
        let mut pages = RecordPages::open(self, "namespace", freshness).await?;
        pages.add(self, "namespace/".to_owned());
        Ok(pages)
    }
}
