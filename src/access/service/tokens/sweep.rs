//! Tokens whose end has come are destroyed. Nothing depends on it: a token is refused from its end on, swept or not.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::make::TOKEN_ROWS;
use crate::access::model::id::Id;
use crate::access::model::names::NamespaceName;
use crate::access::model::token::TokenRecord;
use crate::access::service::directory::Directory;
use crate::access::service::error::ServiceError;
use crate::access::service::records::Changes;
use crate::access::service::rows;
use crate::access::store::{Batch, Freshness, Key};
use crate::metrics::Metrics;

/// Between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

impl Directory {
    /// Destroys the tokens whose end has come, and says how many there were.
    ///
    /// # Errors
    /// The store failed. What was destroyed before stays so.
    pub async fn sweep(&self) -> Result<usize, ServiceError> {
        let until = self.now().sort_key();
        let mut swept = 0;
        let mut after = None;
        loop {
            let part = self.records.page::<NamespaceName>("token-end/", after, Freshness::Linearizable).await?;
            let mut changes = Changes::default();
            for (key, namespace) in &part.entries {
                let Some((end, accessor)) = ended(key) else { continue };
                if end > until.as_str() {
                    break;
                }
                if changes.writes() + TOKEN_ROWS + 1 > Batch::MAX_OPERATIONS {
                    self.records.commit(std::mem::take(&mut changes)).await?;
                }
                let token = rows::token(&namespace.value, accessor);
                if let Some(token) = self.records.get::<TokenRecord>(&token, Freshness::Linearizable).await?
                    && token.value.is_expired(self.now())
                {
                    changes = self.without_token(&token.value, changes);
                    swept += 1;
                }
                changes = changes.delete(key.clone());
            }
            if changes.writes() > 0 {
                self.records.commit(changes).await?;
            }
            let past = part.entries.last().and_then(|(key, _)| ended(key)).is_some_and(|(end, _)| end > until.as_str());
            after = part.next;
            if past || after.is_none() {
                return Ok(swept);
            }
        }
    }

    /// Sweeps once a minute until `stop`, and counts what was destroyed.
    pub async fn sweep_until(&self, stop: CancellationToken, metrics: &Metrics) {
        while stop.run_until_cancelled(self.clock.sleep(SWEEP_EVERY)).await.is_some() {
            match self.sweep().await {
                Ok(0) => {}
                Ok(swept) => {
                    metrics.access_tokens_swept.inc_by(swept.try_into().unwrap_or(u64::MAX));
                    tracing::info!(event = "access.token.swept", swept, "destroyed tokens whose end has come");
                }
                Err(error) => {
                    tracing::warn!(event = "access.sweep.failed", %error, "cannot destroy tokens whose end has come");
                }
            }
        }
    }
}

fn ended(key: &Key) -> Option<(&str, Id)> {
    let mut segments = key.as_str().split('/').skip(1);
    Some((segments.next()?, segments.next()?.parse().ok()?))
}
