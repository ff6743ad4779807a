//! A namespace that is marked for deletion is taken apart in pieces: all that lives in it, and at last its own record.
//!
//! Nothing is written into it any more, so one pass sees all there is. Each piece is removed only while the marked record
//! is there as it was seen: several servers on one store may be at it at once, and one that was late does not touch a new
//! namespace of the same name.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::acl::model::namespace::NamespaceRecord;
use crate::acl::model::token::TokenRecord;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::repository::{Changes, PAGE, Stored, retrying, typed};
use crate::acl::service::tokens::TOKEN_ROWS;
use crate::acl::store::{Batch, CommitError, Freshness, Page, Revision};

/// What lives in a namespace besides tokens, by the first segment of its keys.
const KINDS: [&str; 6] = ["binding-rule", "auth-method", "role", "role-name", "policy", "policy-name"];

/// Before what could not be removed is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// How far a removal came.
enum Came {
    /// All is gone; so many records were.
    Through(usize),
    /// Another server was faster.
    Late,
    /// So many records cannot be read, and are still there.
    Stuck(usize),
}

impl Directory {
    /// Removes the namespaces that are marked for deletion, those of before a restart first, until `stop`.
    pub async fn remove_namespaces_until(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.remove_namespaces()).await;
    }

    async fn remove_namespaces(&self) {
        loop {
            self.opened().await;
            let done = match self.remove_marked().await {
                Ok((seen, done)) => {
                    let changed = self.records.store().changed("namespace/", seen);
                    tokio::select! {
                        changed = changed => changed.is_ok(),
                        () = self.clock.sleep(AGAIN), if !done => true,
                    }
                }
                Err(ServiceError::Restoring) => continue,
                Err(error) => {
                    tracing::warn!(event = "acl.removal.failed", %error, "cannot look for namespaces to remove");
                    false
                }
            };
            if !done {
                self.clock.sleep(AGAIN).await;
            }
        }
    }

    /// Removes what is marked; gives when that was looked up, and whether nothing is left to be tried again.
    async fn remove_marked(&self) -> Result<(Revision, bool), ServiceError> {
        let all = self.records.all::<NamespaceRecord>("namespace/", Freshness::Linearizable).await?;
        let (seen, mut done) = (all.revision, true);
        for marked in all.entries.iter().filter(|namespace| namespace.value.deleted_at.is_some()) {
            let namespace = marked.value.name.as_str();
            match self.remove_namespace(marked).await {
                Ok(Came::Through(records)) => {
                    tracing::info!(event = "acl.namespace.removed", namespace, records, "removed a namespace");
                }
                Ok(Came::Late) => {}
                Err(ServiceError::Restoring) => return Err(ServiceError::Restoring),
                Ok(Came::Stuck(records)) => {
                    done = false;
                    tracing::warn!(event = "acl.removal.stuck", namespace, records, "records cannot be read");
                }
                Err(error) => {
                    done = false;
                    tracing::warn!(event = "acl.removal.failed", namespace, %error, "cannot remove a namespace");
                }
            }
        }
        Ok((seen, done))
    }

    async fn remove_namespace(&self, marked: &Stored<NamespaceRecord>) -> Result<Came, ServiceError> {
        let own = keys::namespace(&marked.value.name);
        let removed = AtomicUsize::new(0);
        retrying(async || match self.take_apart(marked, &removed).await {
            Err(ServiceError::Commit(CommitError::Conflict(key))) if key == own => Ok(Came::Late),
            outcome => outcome,
        })
        .await
    }

    /// Counts what it removes. Loses the race for a token to one who changes it meanwhile.
    async fn take_apart(&self, marked: &Stored<NamespaceRecord>, removed: &AtomicUsize) -> Result<Came, ServiceError> {
        let name = &marked.value.name;
        let own = keys::namespace(name);
        let still = || Changes::default().unchanged(&own, marked.modified);
        let (mut changes, mut pending, mut unreadable) = (still(), 0, 0);
        for kind in ["token"].into_iter().chain(KINDS) {
            let prefix = keys::within(kind, Some(name));
            let mut after = None;
            loop {
                let page = Page { after, limit: PAGE };
                let listing = self.records.store().list(&prefix, page, Freshness::Linearizable).await?;
                after = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
                for (key, record) in listing.entries {
                    // One more for the namespace's own record.
                    if changes.writes() + TOKEN_ROWS + 1 > Batch::MAX_OPERATIONS {
                        self.records.commit(std::mem::replace(&mut changes, still())).await?;
                        removed.fetch_add(std::mem::take(&mut pending), Ordering::Relaxed);
                    }
                    changes = if kind != "token" {
                        changes.delete(key)
                    } else if let Ok(token) = typed::<TokenRecord>(&key, &record) {
                        self.without_token(&token, changes).await?
                    } else {
                        // Without its secret's hash the row that finds it by that would be left behind.
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
            self.records.commit(changes).await?;
            return Ok(Came::Stuck(unreadable));
        }
        self.records.commit(changes.delete(own.clone())).await?;
        Ok(Came::Through(removed.load(Ordering::Relaxed) + pending))
    }
}
