//! Lists, cut to what the caller may read.

use serde::de::DeserializeOwned;

use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::repository::Stored;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::NamespaceRecord;
use crate::acl::store::{Freshness, Page, Revision};

/// What a list does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Whether something was left out that the caller may not see.
    pub unseen: bool,
    /// Whether something was left out that cannot be read.
    pub unreadable: bool,
}

/// What a list holds for one caller.
#[derive(Debug)]
pub struct Found<T> {
    /// The records.
    pub entries: Vec<Stored<T>>,
    /// What it does not hold.
    pub left_out: LeftOut,
    /// The last change of any record of that kind.
    pub revision: Revision,
}

/// Which namespaces a caller's list of a kind leads to.
#[derive(Debug)]
pub(super) struct Readable {
    /// In the order of their keys.
    pub(super) namespaces: Vec<NamespaceName>,
    /// Whether there is something in others.
    pub(super) left_out: LeftOut,
    /// The last change of any record of that kind, taken before anything was read.
    pub(super) revision: Revision,
}

impl Directory {
    /// The records of a kind in one namespace, or in all where `None` is given: then those of the namespaces in which the
    /// caller has `acl:read`, and whether others were left out.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name; the store failed.
    pub(super) async fn found<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        kind: &str,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<Found<T>, ServiceError> {
        let open = self.readable(caller, kind, namespace, freshness).await?;
        let (mut entries, mut left_out) = (Vec::new(), open.left_out);
        for namespace in &open.namespaces {
            let all = self.records.all(&keys::within(kind, Some(namespace)), freshness).await?;
            entries.extend(all.entries);
            left_out.unreadable |= all.unreadable;
        }
        left_out.unreadable |= self.records.has_unreadable(&keys::within(kind, namespace));
        Ok(Found { entries, left_out, revision: open.revision })
    }

    /// Where [`Directory::found`] looks.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn readable(
        &self,
        caller: &Caller,
        kind: &str,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<Readable, ServiceError> {
        if let Some(namespace) = namespace {
            caller.require(Privilege::AclRead, namespace)?;
        }
        let revision = self.records.revision(&keys::within(kind, None), freshness).await?;
        let mut open = Readable { namespaces: Vec::new(), left_out: LeftOut::default(), revision };
        if let Some(namespace) = namespace {
            self.existing(namespace, freshness).await?;
            open.namespaces.push(namespace.clone());
            return Ok(open);
        }
        let all = self.records.all::<NamespaceRecord>("namespace/", freshness).await?;
        open.left_out.unreadable = all.unreadable;
        for namespace in all.entries {
            let name = &namespace.value.name;
            if caller.has(Privilege::AclRead, name) {
                open.namespaces.push(name.clone());
            } else if !open.left_out.unseen {
                let first = Page { after: None, limit: 1 };
                let listing = self.records.store().list(&keys::within(kind, Some(name)), first, freshness).await?;
                open.left_out.unseen = !listing.entries.is_empty();
            }
        }
        Ok(open)
    }
}
