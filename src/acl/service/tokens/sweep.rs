//! Tokens whose end has come are destroyed. Nothing depends on it: a token is refused from its end on, swept or not.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::write::TOKEN_ROWS;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::token::TokenRecord;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::repository::Changes;
use crate::acl::store::{Batch, CommitError, Freshness, Key};
use crate::metrics::Metrics;

/// Between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// Pages of a sweep that are looked up anew before it is left to the next one.
const LOSSES: usize = 100;

impl Directory {
    /// Destroys the tokens whose end has come, and says how many there were.
    ///
    /// # Errors
    /// The store failed, or is being restored. What was destroyed before stays so.
    pub async fn sweep(&self) -> Result<usize, ServiceError> {
        self.epoch(Freshness::Linearizable).await?;
        let (mut swept, mut lost) = (0, 0);
        let mut after = None;
        loop {
            match self.sweep_page(after.clone(), &mut swept).await {
                Ok(None) => return Ok(swept),
                Ok(next) => after = next,
                // Another server sweeps too, or someone was at one of these tokens: what is left of them is looked up anew.
                Err(ServiceError::Commit(CommitError::Conflict(_))) if lost < LOSSES => lost += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for a page of tokens; gives where the next one starts.
    async fn sweep_page(&self, after: Option<Key>, swept: &mut usize) -> Result<Option<Key>, ServiceError> {
        let until = self.now().sort_key();
        let part = self.records.page::<NamespaceName>("token-end/", after, Freshness::Linearizable).await?;
        let (mut changes, mut tokens) = (Changes::default(), 0);
        for (key, namespace) in &part.entries {
            let Some((end, accessor)) = ended(key) else { continue };
            if end > until.as_str() {
                break;
            }
            if changes.writes() + TOKEN_ROWS + 1 > Batch::MAX_OPERATIONS {
                self.records.commit(std::mem::take(&mut changes)).await?;
                *swept += std::mem::take(&mut tokens);
            }
            let token = keys::token(&namespace.value, accessor);
            let found = match self.records.get::<TokenRecord>(&token, Freshness::Linearizable).await {
                Err(error) if self.records.passes_over(&error) => continue,
                found => found?,
            };
            if let Some(token) = found
                && token.value.is_expired(self.now())
            {
                changes = self.without_token(&token, changes).await?;
                tokens += 1;
            }
            changes = changes.delete(key.clone());
        }
        if changes.writes() > 0 {
            self.records.commit(changes).await?;
            *swept += tokens;
        }
        let past = part.entries.last().and_then(|(key, _)| ended(key)).is_some_and(|(end, _)| end > until.as_str());
        Ok(part.next.filter(|_| !past))
    }

    /// Sweeps once a minute until `stop`, and counts what was destroyed.
    pub async fn sweep_until(&self, stop: CancellationToken, metrics: &Metrics) {
        while stop.run_until_cancelled(self.clock.sleep(SWEEP_EVERY)).await.is_some() {
            match self.sweep().await {
                Ok(0) | Err(ServiceError::Restoring) => {}
                Ok(swept) => {
                    metrics.acl_tokens_swept.inc_by(swept.try_into().unwrap_or(u64::MAX));
                    tracing::info!(event = "acl.token.swept", swept, "destroyed tokens whose end has come");
                }
                Err(error) => {
                    tracing::warn!(event = "acl.sweep.failed", %error, "cannot destroy tokens whose end has come");
                }
            }
        }
    }
}

fn ended(key: &Key) -> Option<(&str, Id)> {
    let mut segments = key.as_str().split('/').skip(1);
    Some((segments.next()?, segments.next()?.parse().ok()?))
}
