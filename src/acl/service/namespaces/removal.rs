//! Deletes namespaces that are marked for deletion: first their contents, then their own record.
//!
//! Nothing is written into them, so one pass sees everything. Each batch checks that the marked record is unchanged:
//! several servers may delete at once, and a late one must not touch a new namespace of the same name.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyward_telemetry::error_chain::format_chain;
use tokio_util::sync::CancellationToken;

use super::Namespaces;
use crate::model::namespace::NamespaceRecord;
use crate::model::token::TokenRecord;
use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::tokens::MAX_TOKEN_RECORDS;
use crate::service::transaction::{Transaction, retry_on_conflict};
use crate::service::typed_store::{PAGE, Stored, decode};
use crate::store::{Batch, CommitError, Freshness, Page, Revision};

/// Kinds of records in a namespace besides tokens.
const KINDS: [&str; 6] = ["binding-rule", "auth-method", "role", "role-name", "policy", "policy-name"];

/// Delay before a failed removal is retried.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Outcome of a removal.
enum RemovalOutcome {
    /// Everything is deleted; the number of records.
    Complete(usize),
    /// Another server deleted or changed the namespace.
    Superseded,
    /// The number of records that cannot be read and remain.
    Unreadable(usize),
}

impl Namespaces<'_> {
    /// Deletes marked namespaces until `stop`, starting with those from before a restart.
    pub(crate) async fn run_removals(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.run()).await;
    }

    async fn run(self) {
        loop {
            self.service.wait_until_open().await;
            let all_complete = match self.delete_marked().await {
                Ok((listed_at, all_complete)) => {
                    let changed = self.service.typed_store.store().changed("namespace/", listed_at);
                    tokio::select! {
                        changed = changed => changed.is_ok(),
                        () = self.service.clock.sleep(RETRY_DELAY), if !all_complete => true,
                    }
                }
                Err(ServiceError::Restoring) => continue,
                Err(error) => {
                    tracing::warn!(
                        event = "acl.removal.failed",
                        error = format_chain(&error),
                        "cannot list namespaces to delete"
                    );
                    false
                }
            };
            if !all_complete {
                self.service.clock.sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Deletes all marked namespaces. Returns the revision at which they were listed and whether all are complete.
    async fn delete_marked(self) -> Result<(Revision, bool), ServiceError> {
        let all = self.service.typed_store.all::<NamespaceRecord>("namespace/", Freshness::Linearizable).await?;
        let listed_at = all.revision;
        let mut all_complete = true;
        for marked in all.entries.iter().filter(|namespace| namespace.value.deleted_at.is_some()) {
            let namespace = marked.value.name.as_str();
            match self.delete_one(marked).await {
                Ok(RemovalOutcome::Complete(records)) => {
                    tracing::info!(event = "acl.namespace.removed", namespace, records, "deleted a namespace");
                }
                Ok(RemovalOutcome::Superseded) => {}
                Err(ServiceError::Restoring) => return Err(ServiceError::Restoring),
                Ok(RemovalOutcome::Unreadable(records)) => {
                    all_complete = false;
                    tracing::warn!(
                        event = "acl.removal.stuck",
                        namespace,
                        records,
                        "the namespace has tokens that cannot be read: delete them"
                    );
                }
                Err(error) => {
                    all_complete = false;
                    tracing::warn!(
                        event = "acl.removal.failed",
                        namespace,
                        error = format_chain(&error),
                        "cannot delete a namespace"
                    );
                }
            }
        }
        Ok((listed_at, all_complete))
    }

    async fn delete_one(self, marked: &Stored<NamespaceRecord>) -> Result<RemovalOutcome, ServiceError> {
        let namespace_key = record_keys::namespace(&marked.value.name);
        let removed = AtomicUsize::new(0);
        retry_on_conflict(async || match self.delete_contents(marked, &removed).await {
            Err(ServiceError::Commit(CommitError::Conflict(key))) if key == namespace_key => {
                Ok(RemovalOutcome::Superseded)
            }
            outcome => outcome,
        })
        .await
    }

    /// Deletes the contents and then the namespace record; counts deleted records in `removed`. Fails with a conflict
    /// if a token changes meanwhile.
    async fn delete_contents(
        self,
        marked: &Stored<NamespaceRecord>,
        removed: &AtomicUsize,
    ) -> Result<RemovalOutcome, ServiceError> {
        let name = &marked.value.name;
        let namespace_key = record_keys::namespace(name);
        let while_marked = || Transaction::default().require_unchanged(&namespace_key, marked.modified);
        let mut transaction = while_marked();
        let mut pending = 0;
        let mut unreadable = 0;
        for kind in ["token"].into_iter().chain(KINDS) {
            let prefix = record_keys::kind_prefix(kind, Some(name));
            let mut after = None;
            loop {
                let page = Page { after, limit: PAGE };
                let listing = self.service.typed_store.store().list(&prefix, page, Freshness::Linearizable).await?;
                after = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
                for (key, record) in listing.entries {
                    // One more for the namespace record itself.
                    if transaction.writes() + MAX_TOKEN_RECORDS + 1 > Batch::MAX_OPERATIONS {
                        self.service.typed_store.commit(std::mem::replace(&mut transaction, while_marked())).await?;
                        removed.fetch_add(std::mem::take(&mut pending), Ordering::Relaxed);
                    }
                    transaction = if kind != "token" {
                        transaction.delete(key)
                    } else if let Ok(token) = decode::<TokenRecord>(&key, &record) {
                        self.service.token_records().delete(&token, transaction).await?
                    } else {
                        // The index entry by secret would remain, as the hash of the secret is unknown.
                        unreadable += 1;
                        continue;
                    };
                    pending += 1;
                }
                if after.is_none() {
                    break;
                }
            }
        }
        if unreadable > 0 {
            self.service.typed_store.commit(transaction).await?;
            return Ok(RemovalOutcome::Unreadable(unreadable));
        }
        self.service.typed_store.commit(transaction.delete(namespace_key.clone())).await?;
        Ok(RemovalOutcome::Complete(removed.load(Ordering::Relaxed) + pending))
    }
}
