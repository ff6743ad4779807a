//! All records of the service, and what may be done with them: each kind's operations stand in a file of their own.

use std::sync::Arc;

use super::callers_cache::CallersCache;
use super::error::ServiceError;
use super::keys;
use super::repository::{Changes, Records, Stored};
use super::restore_lock::{Epoch, Gate};
use super::rules_cache::RulesCache;
use super::seal::Sealer;
use crate::acl::model::authorize::DefaultPolicy;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::NamespaceRecord;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::store::{Freshness, Key, Revision, Store};
use crate::clock::{Clock, ClockReading};
use crate::metrics::Metrics;

/// The records and the rules that hold for them.
#[derive(Debug)]
pub struct Directory {
    pub(super) records: Records,
    pub(super) sealer: Sealer,
    pub(super) rules: RulesCache,
    pub(super) callers: CallersCache,
    pub(super) gate: Gate,
    /// This server's datacenter.
    pub datacenter: String,
    /// What holds where no rule says anything.
    pub default_policy: DefaultPolicy,
    pub(super) clock: Clock,
}

/// A namespace that something is about to be written into.
#[derive(Debug, Clone)]
pub struct Home {
    /// Its name, as it was written when it was made.
    pub name: NamespaceName,
    key: Key,
    at: Revision,
}

impl Home {
    /// Lets the changes happen only if the namespace is still as it was seen: not marked for deletion, and there.
    pub(super) fn hold(&self, changes: Changes) -> Changes {
        changes.unchanged(&self.key, self.at)
    }
}

impl Directory {
    /// Puts it together; [`Directory::prepare`] makes what is built in.
    pub fn new(
        store: Arc<dyn Store>,
        sealer: Sealer,
        datacenter: String,
        default_policy: DefaultPolicy,
        clock: Clock,
    ) -> Self {
        let (records, rules, callers) = (Records::new(store), RulesCache::default(), CallersCache::default());
        Self { records, sealer, rules, callers, gate: Gate::default(), datacenter, default_policy, clock }
    }

    /// The same, which counts in these metrics what it finds wrong with its store.
    #[must_use]
    pub fn counting(self, metrics: &Metrics) -> Self {
        Self { records: self.records.counting(metrics), ..self }
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        Timestamp::of(self.clock.now().wall)
    }

    /// Now, by both clocks.
    pub fn moment(&self) -> ClockReading {
        self.clock.now()
    }

    /// The records, for those who wait on them.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The epoch of the store, in which everything is asked that wants an answer.
    ///
    /// # Errors
    /// [`ServiceError::Restoring`] while there is nothing to ask; the store failed.
    pub async fn epoch(&self, freshness: Freshness) -> Result<Epoch, ServiceError> {
        self.gate.look(&self.records, freshness).await?.epoch()
    }

    /// Returns once a restore may have begun or ended since that epoch was seen.
    ///
    /// # Errors
    /// The store failed.
    pub async fn restored_since(&self, epoch: Epoch) -> Result<(), ServiceError> {
        self.records.store().changed(keys::RESTORES, epoch.seen).await?;
        Ok(())
    }

    /// Returns at once while the store is open, or else when it is again. A store that fails is taken for open: who asks it
    /// is told.
    pub(super) async fn opened(&self) {
        while let Ok(seen) = self.gate.look(&self.records, Freshness::Linearizable).await {
            let restoring = seen.epoch().is_err();
            if !restoring || self.records.store().changed(keys::RESTORES, seen.at()).await.is_err() {
                return;
            }
        }
    }

    /// Whether the store was being restored when this server looked last: who must not wait for the store asks so.
    pub fn was_shut(&self) -> bool {
        self.gate.was_shut()
    }

    /// The namespace of that name; `None` if there is none.
    ///
    /// # Errors
    /// The store failed.
    pub async fn namespace(
        &self,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<Option<Stored<NamespaceRecord>>, ServiceError> {
        self.records.get(&keys::namespace(name), freshness).await
    }

    /// The namespace of that name, to write into it.
    ///
    /// # Errors
    /// There is none, or it is being deleted.
    pub(super) async fn home(&self, name: &NamespaceName) -> Result<Home, ServiceError> {
        let found = self.unmarked(name).await?;
        Ok(Home { name: found.value.name.clone(), key: keys::namespace(name), at: found.modified })
    }

    /// The namespace of that name, which is not being deleted.
    ///
    /// # Errors
    /// There is none, or it is.
    pub(super) async fn unmarked(&self, name: &NamespaceName) -> Result<Stored<NamespaceRecord>, ServiceError> {
        let Some(found) = self.namespace(name, Freshness::Linearizable).await? else {
            return Err(no_namespace(name));
        };
        if found.value.deleted_at.is_some() { Err(marked(&found.value.name)) } else { Ok(found) }
    }

    /// Refuses a namespace that is not there, for reads in it.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn existing(&self, name: &NamespaceName, freshness: Freshness) -> Result<(), ServiceError> {
        if self.namespace(name, freshness).await?.is_some() { Ok(()) } else { Err(no_namespace(name)) }
    }
}

pub(super) fn no_namespace(name: &NamespaceName) -> ServiceError {
    ServiceError::Missing(format!("Namespace {:?} does not exist", name.as_str()))
}

pub(super) fn marked(name: &NamespaceName) -> ServiceError {
    ServiceError::Taken(format!("Namespace {:?} is marked for deletion", name.as_str()))
}
