//! What a deleted auth method leaves is removed in pieces: its binding rules, and the tokens that it made.
//!
//! Nothing depends on when: the tokens open nothing, the rules bind nothing, and a method that is made anew under the same
//! name is another.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::acl::model::binding_rule::BindingRuleRecord;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::repository::Changes;
use crate::acl::service::tokens::TOKEN_ROWS;
use crate::acl::store::{Batch, CommitError, Freshness, Key, Revision};

/// A method that was deleted, and not all of what it leaves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Removal {
    pub(super) method: Id,
    pub(super) namespace: NamespaceName,
}

const ROWS: &str = "removal/auth-method/";

/// Batches that the call which deletes a method does itself.
pub(super) const AT_ONCE: usize = 8;

/// Before what could not be removed is tried again.
const AGAIN: Duration = Duration::from_secs(30);

impl Directory {
    /// Removes what deleted methods left, those of before a restart first, until `stop`. Several servers may do so at once.
    pub async fn remove_methods_until(&self, stop: CancellationToken) {
        let work = async {
            loop {
                self.opened().await;
                let Some((seen, done)) = self.remove_left().await else { continue };
                let store = self.records.store();
                tokio::select! {
                    Ok(_) = store.changed(ROWS, seen), if done => {}
                    () = self.clock.sleep(AGAIN), if !done => {}
                    else => self.clock.sleep(AGAIN).await,
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Removes what there is to remove; gives when that was looked up, and whether nothing is left to be tried again.
    /// `None` if a restore came in between.
    async fn remove_left(&self) -> Option<(Revision, bool)> {
        let found = self.records.all::<Removal>(ROWS, Freshness::Linearizable).await;
        let (removals, seen) = match found {
            Ok(found) => (found.entries, found.revision),
            Err(error) => {
                tracing::warn!(event = "acl.removal.failed", %error, "cannot look for what deleted methods left");
                return Some((Revision(0), false));
            }
        };
        let mut done = true;
        for removal in removals {
            let method = removal.value.method;
            match self.remove_rest(&removal.value, usize::MAX).await {
                Ok(records) => {
                    tracing::info!(event = "acl.method.removed", %method, records, "removed what a deleted method left");
                }
                Err(ServiceError::Restoring) => return None,
                Err(error) => {
                    done = false;
                    tracing::warn!(event = "acl.removal.failed", %method, %error, "cannot remove what a deleted method left");
                }
            }
        }
        Some((seen, done))
    }

    /// Removes what a method left, in at most so many batches, and says how many records that were.
    pub(super) async fn remove_rest(&self, removal: &Removal, batches: usize) -> Result<usize, ServiceError> {
        let mut left = Pieces { batches, removed: 0 };
        self.remove_rules(removal, &mut left).await?;
        self.remove_tokens(removal, &mut left).await?;
        if left.batches > 0 {
            let key = keys::removal("auth-method", &removal.method.to_string());
            self.records.commit(Changes::default().delete(key)).await?;
        }
        Ok(left.removed)
    }

    async fn remove_rules(&self, removal: &Removal, left: &mut Pieces) -> Result<(), ServiceError> {
        let prefix = keys::within("binding-rule", Some(&removal.namespace));
        let mut after = None;
        loop {
            let part = self.records.page::<BindingRuleRecord>(&prefix, after, Freshness::Linearizable).await?;
            let of_method = part.entries.into_iter().filter(|(_, rule)| rule.value.method_id == removal.method);
            let keys: Vec<Key> = of_method.map(|(key, _)| key).collect();
            for piece in keys.chunks(Batch::MAX_OPERATIONS) {
                let changes = piece.iter().cloned().fold(Changes::default(), Changes::delete);
                if !left.commit(self, changes).await? {
                    return Ok(());
                }
            }
            after = part.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn remove_tokens(&self, removal: &Removal, left: &mut Pieces) -> Result<(), ServiceError> {
        let prefix = format!("token-login/{}/", removal.method);
        let (mut after, mut unreadable) = (None, None);
        loop {
            // From the same place each time: what was there is gone, but for what cannot be read.
            let part = self.records.page::<NamespaceName>(&prefix, after.clone(), Freshness::Linearizable).await?;
            let mut found = Vec::with_capacity(part.entries.len());
            for (key, namespace) in part.entries {
                let token = match key.last().parse() {
                    Ok(accessor) => {
                        self.records.get(&keys::token(&namespace.value, accessor), Freshness::Linearizable).await
                    }
                    Err(_) => Ok(None),
                };
                match token {
                    Ok(token) => found.push((key, token)),
                    Err(error) if self.records.passes_over(&error) => unreadable = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if found.is_empty() {
                after = part.next;
                match unreadable {
                    _ if after.is_some() => continue,
                    Some(error) => return Err(error),
                    None => return Ok(()),
                }
            }
            for piece in found.chunks(Batch::MAX_OPERATIONS / (TOKEN_ROWS + 1)) {
                let mut changes = Changes::default();
                for (key, token) in piece {
                    if let Some(token) = token {
                        changes = self.without_token(token, changes).await?;
                    }
                    changes = changes.delete(key.clone());
                }
                if !left.commit(self, changes).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// How much is still to be done in this go.
struct Pieces {
    batches: usize,
    removed: usize,
}

impl Pieces {
    /// Whether there was a batch left to do it in.
    async fn commit(&mut self, directory: &Directory, changes: Changes) -> Result<bool, ServiceError> {
        if self.batches == 0 {
            return Ok(false);
        }
        self.batches -= 1;
        let writes = changes.writes();
        match directory.records.commit(changes).await {
            Ok(_) => self.removed += writes,
            // Someone was at one of these records. They are still there, and looked up anew.
            Err(ServiceError::Commit(CommitError::Conflict(_))) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}
