//! The ACL service: shared state of all operations. Each kind of record has a file of its own.

use std::sync::Arc;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::metrics::Metrics;

use super::callers_cache::CallersCache;
use super::error::ServiceError;
use super::links::LinkResolver;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::restore_lock::{Epoch, RestoreLock};
use super::rules_cache::RulesCache;
use super::seal::Sealer;
use super::typed_store::TypedStore;
use crate::model::authorize::DefaultPolicy;
use crate::model::timestamp::Timestamp;
use crate::store::{Freshness, Store};

/// ACL records, with the caches, keys and clock that operations on them share.
#[derive(Debug)]
pub(crate) struct AclService {
    pub(super) typed_store: TypedStore,
    /// Records of namespaces, with the operations that all kinds share.
    pub(crate) records: NamespacedRecords,
    pub(super) sealer: Sealer,
    pub(super) rules: RulesCache,
    pub(super) callers: CallersCache,
    pub(super) restore_lock: RestoreLock,
    /// Datacenter of this server; policies limited to others do not apply here.
    pub datacenter: String,
    /// Decision for resources that no rule of the token covers.
    pub default_policy: DefaultPolicy,
    pub(super) clock: Clock,
}

impl AclService {
    /// Creates the service over a store. [`AclService::create_builtins`] creates the built-in records.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        sealer: Sealer,
        datacenter: String,
        default_policy: DefaultPolicy,
        clock: Clock,
    ) -> Self {
        let typed_store = TypedStore::new(store);
        let rules = RulesCache::default();
        let callers = CallersCache::default();
        Self {
            records: NamespacedRecords::new(typed_store.clone()),
            typed_store,
            sealer,
            rules,
            callers,
            restore_lock: RestoreLock::default(),
            datacenter,
            default_policy,
            clock,
        }
    }

    /// Counts unreadable records in `metrics`.
    #[must_use]
    pub(crate) fn with_metrics(self, metrics: &Metrics) -> Self {
        let typed_store = self.typed_store.with_metrics(metrics);
        Self { records: NamespacedRecords::new(typed_store.clone()), typed_store, ..self }
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_system_time(self.clock.now().wall)
    }

    /// Returns a reading of both clocks.
    pub(crate) fn clock_reading(&self) -> ClockReading {
        self.clock.now()
    }

    /// Returns the typed store, to read revisions and to wait for changes.
    pub(crate) fn typed_store(&self) -> &TypedStore {
        &self.typed_store
    }

    /// Returns the current epoch: answers read in one epoch come from one state between two restores. Fails with
    /// [`ServiceError::Restoring`] during a restore.
    pub(crate) async fn epoch(&self, freshness: Freshness) -> Result<Epoch, ServiceError> {
        self.restore_lock.load_state(&self.typed_store, freshness).await?.epoch()
    }

    /// Waits until a restore may have begun or ended since `epoch` was read.
    pub(crate) async fn wait_for_restore_since(&self, epoch: Epoch) -> Result<(), ServiceError> {
        self.typed_store.store().changed(record_keys::RESTORES, epoch.seen).await?;
        Ok(())
    }

    /// Waits until no restore is in progress. A store error counts as open, so that the caller's next operation reports
    /// it.
    pub(super) async fn wait_until_open(&self) {
        while let Ok(state) = self.restore_lock.load_state(&self.typed_store, Freshness::Linearizable).await {
            let restoring = state.epoch().is_err();
            if !restoring || self.typed_store.store().changed(record_keys::RESTORES, state.at()).await.is_err() {
                return;
            }
        }
    }

    /// Returns whether a restore was in progress at the last check; does not access the store.
    pub(crate) fn was_restoring(&self) -> bool {
        self.restore_lock.was_restoring()
    }

    /// Returns the resolver of links between records.
    pub(crate) fn links(&self) -> LinkResolver<'_> {
        self.records.links()
    }
}
