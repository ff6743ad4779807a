//! Deletes the binding rules and tokens of deleted auth methods in batches.
//!
//! Timing does not matter: the tokens are invalid and the rules unused from the deletion on, and a new method of the
//! same name has another id.

use std::time::Duration;

use keyward_telemetry::error_chain::format_chain;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::AuthMethods;
use super::batch_budget::{BatchBudget, BatchOutcome};
use crate::model::binding_rule::BindingRuleRecord;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::tokens::MAX_TOKEN_RECORDS;
use crate::service::transaction::Transaction;
use crate::store::{Batch, CommitError, Freshness, Key, Revision, StoreError};

/// Record of a deleted method whose dependents are not all deleted yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Removal {
    pub(super) method: Id,
    pub(super) namespace: NamespaceName,
}

const REMOVAL_PREFIX: &str = "removal/auth-method/";

/// Batches that the deleting request executes itself.
/// Bounds the time of that request, however many tokens the method has.
pub(super) const INLINE_BATCHES: usize = 8;

/// Delay before a failed removal is retried.
const RETRY_DELAY: Duration = Duration::from_secs(30);

impl AuthMethods<'_> {
    /// Deletes dependents of deleted methods until `stop`, starting with those from before a restart. Several servers
    /// may do so at once.
    pub(crate) async fn run_removals(self, stop: CancellationToken) {
        let work = async {
            loop {
                self.service.wait_until_open().await;
                let Some((listed_at, all_complete)) = self.resume_removals().await else { continue };
                let store = self.service.typed_store.store();
                tokio::select! {
                    Ok(_) = store.changed(REMOVAL_PREFIX, listed_at), if all_complete => {}
                    () = self.service.clock.sleep(RETRY_DELAY), if !all_complete => {}
                    else => self.service.clock.sleep(RETRY_DELAY).await,
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Runs all pending removals. Returns the revision at which they were listed and whether all are complete; `None`
    /// if a restore interrupted them.
    async fn resume_removals(self) -> Option<(Revision, bool)> {
        let listing = self.service.typed_store.all::<Removal>(REMOVAL_PREFIX, Freshness::Linearizable).await;
        let (removals, listed_at) = match listing {
            Ok(listing) => (listing.entries, listing.revision),
            Err(error) => {
                tracing::warn!(
                    event = "acl.removal.failed",
                    error = format_chain(&error),
                    "cannot list pending deletions of auth methods"
                );
                return Some((Revision(0), false));
            }
        };
        let mut all_complete = true;
        for removal in removals {
            let method = removal.value.method;
            match self.delete_dependents(&removal.value, removal.modified, usize::MAX).await {
                Ok(records) => {
                    tracing::info!(
                        event = "acl.method.removed",
                        method = method.to_string(),
                        records,
                        "deleted the tokens and rules of a deleted auth method"
                    );
                }
                Err(ServiceError::Restoring) => return None,
                Err(error) => {
                    all_complete = false;
                    tracing::warn!(
                        event = "acl.removal.failed",
                        method = method.to_string(),
                        error = format_chain(&error),
                        "cannot delete the tokens and rules of a deleted auth method"
                    );
                }
            }
        }
        Some((listed_at, all_complete))
    }

    /// Deletes the dependents of a method in at most `batches` batches; returns the number of deleted records. `written`
    /// is the revision of the removal's record, which is deleted last. Fails at a record that cannot be read: it may be
    /// a dependent, so the removal's record stays.
    pub(super) async fn delete_dependents(
        self,
        removal: &Removal,
        written: Revision,
        batches: usize,
    ) -> Result<usize, ServiceError> {
        let mut budget = BatchBudget { batches, removed: 0 };
        let rule = self.delete_rules(removal, &mut budget).await?;
        let token = self.delete_tokens(removal, &mut budget).await?;
        if let Some(unreadable) = rule.or(token) {
            return Err(unreadable);
        }
        if budget.batches > 0 {
            let key = record_keys::removal("auth-method", &removal.method.to_string());
            let end_removal = Transaction::default().require_unchanged(&key, written).delete(key);
            match self.service.typed_store.commit(end_removal).await {
                // The deleting request and the background task work at the same time: only one of them ends the
                // removal, so that a deletion has the same revisions each time.
                Ok(_) | Err(ServiceError::Commit(CommitError::Conflict(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(budget.removed)
    }

    /// Deletes the rules of a method. Returns the error of a rule of the namespace that cannot be read: it may be one of
    /// them.
    async fn delete_rules(
        self,
        removal: &Removal,
        budget: &mut BatchBudget,
    ) -> Result<Option<ServiceError>, ServiceError> {
        let prefix = record_keys::kind_prefix("binding-rule", Some(&removal.namespace));
        let mut after = None;
        let mut unreadable = None;
        loop {
            let part = self
                .service
                .typed_store
                .page::<BindingRuleRecord>(&prefix, after.clone(), Freshness::Linearizable)
                .await?;
            unreadable = unreadable.or_else(|| part.unreadable.as_ref().map(unreadable_record));
            let of_method = part.entries.into_iter().filter(|(_, rule)| rule.value.method_id == removal.method);
            let rules: Vec<(Key, Revision)> = of_method.map(|(key, rule)| (key, rule.modified)).collect();
            let mut all_deleted = true;
            for chunk in rules.chunks(MAX_CHECKED) {
                // A rule that another remover has deleted must not be deleted again: each commit takes a revision, which
                // wakes blocking queries.
                let transaction = chunk.iter().fold(Transaction::default(), |transaction, (key, modified)| {
                    transaction.require_unchanged(key, *modified).delete(key.clone())
                });
                match budget.commit(self.service, transaction).await? {
                    BatchOutcome::Committed => {}
                    BatchOutcome::Conflict => all_deleted = false,
                    BatchOutcome::Exhausted => return Ok(unreadable),
                }
            }
            if !all_deleted {
                continue;
            }
            after = part.next;
            if after.is_none() {
                return Ok(unreadable);
            }
        }
    }

    /// Deletes the tokens of a method. Returns the error of one that cannot be read, or whose index entry cannot.
    async fn delete_tokens(
        self,
        removal: &Removal,
        budget: &mut BatchBudget,
    ) -> Result<Option<ServiceError>, ServiceError> {
        let prefix = format!("token-login/{}/", removal.method);
        let mut after = None;
        let mut unreadable = None;
        loop {
            // Always from the same key: entries before it are deleted, and only unreadable ones move the start.
            let part =
                self.service.typed_store.page::<NamespaceName>(&prefix, after.clone(), Freshness::Linearizable).await?;
            unreadable = unreadable.or_else(|| part.unreadable.as_ref().map(unreadable_record));
            let mut tokens = Vec::with_capacity(part.entries.len());
            for (key, namespace) in part.entries {
                let token = match key.last_segment().parse() {
                    Ok(accessor) => {
                        self.service
                            .typed_store
                            .get(&record_keys::token(&namespace.value, accessor), Freshness::Linearizable)
                            .await
                    }
                    Err(_) => Ok(None),
                };
                match token {
                    Ok(token) => tokens.push((key, namespace.modified, token)),
                    Err(error) if self.service.typed_store.skip_unreadable(&error) => unreadable = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if tokens.is_empty() {
                after = part.next;
                if after.is_some() {
                    continue;
                }
                return Ok(unreadable);
            }
            for chunk in tokens.chunks(Batch::MAX_OPERATIONS / (MAX_TOKEN_RECORDS + 1)) {
                let mut transaction = Transaction::default();
                for (key, modified, token) in chunk {
                    if let Some(token) = token {
                        transaction = self.service.token_records().delete(token, transaction).await?;
                    }
                    transaction = transaction.require_unchanged(key, *modified).delete(key.clone());
                }
                if budget.commit(self.service, transaction).await? == BatchOutcome::Exhausted {
                    return Ok(unreadable);
                }
            }
        }
    }
}

fn unreadable_record(key: &Key) -> ServiceError {
    StoreError::Unreadable { key: key.as_str().to_owned() }.into()
}

/// Maximum number of checked records in a batch: a commit adds its own check.
const MAX_CHECKED: usize = Batch::MAX_OPERATIONS - 1;
