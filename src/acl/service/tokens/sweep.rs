//! Deletes expired tokens. Authentication does not depend on it: an expired token is rejected whether or not it was
//! deleted.

use std::time::Duration;

use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use super::token_records::MAX_TOKEN_RECORDS;
use crate::AclMetrics;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::token::TokenRecord;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::transaction::Transaction;
use crate::store::{Batch, CommitError, Freshness, Key};

/// Interval between sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// Most conflicts before the rest is left to the next sweep.
const MAX_CONFLICTS: usize = 100;

/// Deletion of expired tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenSweeper<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the sweeper of expired tokens.
    pub(crate) fn token_sweeper(&self) -> TokenSweeper<'_> {
        TokenSweeper { service: self }
    }
}

impl TokenSweeper<'_> {
    /// Deletes expired tokens; returns their number. After an error, the deletions so far persist.
    pub(crate) async fn sweep(self) -> Result<usize, ServiceError> {
        self.service.epoch(Freshness::Linearizable).await?;
        let mut swept = 0;
        let mut conflicts = 0;
        let mut after = None;
        loop {
            match self.sweep_page(after.clone(), &mut swept).await {
                Ok(None) => return Ok(swept),
                Ok(next) => after = next,
                // Another server sweeps too, or changed one of these tokens; read them again.
                Err(ServiceError::Commit(CommitError::Conflict(_))) if conflicts < MAX_CONFLICTS => conflicts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes expired tokens of one page; returns the start of the next.
    async fn sweep_page(self, after: Option<Key>, swept: &mut usize) -> Result<Option<Key>, ServiceError> {
        // Read once: with a second reading of a clock that is set back in between, a token would lose its entry and stay.
        let now = self.service.now();
        let until = now.sort_key();
        let page = self.service.typed_store.page::<NamespaceName>("token-end/", after, Freshness::Linearizable).await?;
        let mut transaction = Transaction::default();
        let mut tokens = 0;
        for (key, namespace) in &page.entries {
            let Some((end, accessor)) = parse_end_key(key) else { continue };
            // Keys are in the order of their times: no later one has expired.
            if end > until.as_str() {
                break;
            }
            if transaction.writes() + MAX_TOKEN_RECORDS + 1 > Batch::MAX_OPERATIONS {
                self.service.typed_store.commit(std::mem::take(&mut transaction)).await?;
                *swept += std::mem::take(&mut tokens);
            }
            let token = record_keys::token(&namespace.value, accessor);
            let record = match self.service.typed_store.get::<TokenRecord>(&token, Freshness::Linearizable).await {
                Err(error) if self.service.typed_store.skip_unreadable(&error) => continue,
                result => result?,
            };
            if let Some(token) = record
                && token.value.is_expired(now)
            {
                transaction = self.service.token_records().delete(&token, transaction).await?;
                tokens += 1;
            }
            // Also without a token: a left-over entry would be read by each sweep.
            transaction = transaction.delete(key.clone());
        }
        if transaction.writes() > 0 {
            self.service.typed_store.commit(transaction).await?;
            *swept += tokens;
        }
        let past =
            page.entries.last().and_then(|(key, _)| parse_end_key(key)).is_some_and(|(end, _)| end > until.as_str());
        Ok(page.next.filter(|_| !past))
    }

    /// Sweeps once a minute until `stop`, and counts deletions in `metrics`.
    pub(crate) async fn run(self, stop: CancellationToken, metrics: &Metrics) {
        while stop.run_until_cancelled(self.service.clock.sleep(SWEEP_INTERVAL)).await.is_some() {
            match self.sweep().await {
                Ok(0) | Err(ServiceError::Restoring) => {}
                Ok(swept) => {
                    metrics.get::<AclMetrics>().tokens_swept.inc_by(swept.try_into().unwrap_or(u64::MAX));
                    tracing::info!(event = "acl.token.swept", tokens = swept, "deleted expired tokens");
                }
                Err(error) => {
                    tracing::warn!(
                        event = "acl.sweep.failed",
                        error = format_chain(&error),
                        "cannot delete expired tokens"
                    );
                }
            }
        }
    }
}

fn parse_end_key(key: &Key) -> Option<(&str, Id)> {
    let mut segments = key.as_str().split('/').skip(1);
    Some((segments.next()?, segments.next()?.parse().ok()?))
}
