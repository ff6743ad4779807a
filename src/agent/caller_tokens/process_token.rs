//! The token of one process: kept while the process lives, and revoked when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::process_tokens::ProcessTable;
use crate::agent::secrets::DerivedTokenManager;
use crate::agent::token::Token;
use crate::http::peer::PinnedProcess;

/// A process that has a token, or whose token is being created.
#[derive(Debug)]
pub(super) struct ProcessToken {
    pub(super) id: u64,
    /// Name in log events.
    pub(super) output: String,
    pub(super) process: Arc<PinnedProcess>,
    pub(super) manager: DerivedTokenManager,
    /// Counts it among the live tokens until its own are revoked.
    pub(super) slot: LiveSlot,
}

impl ProcessToken {
    /// Runs until the process ends, or `stop` is cancelled, or it has no token and gets none; then revokes its tokens.
    pub(super) async fn run(self, table: Arc<ProcessTable>, stop: CancellationToken) {
        let Self { id, output, process, manager, slot } = self;
        let ends = CancellationToken::new();
        let mut managed = std::pin::pin!(manager.run_on_demand(ends.clone()));
        let tokens = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            () = process.wait_for_end() => None,
            tokens = &mut managed => Some(tokens),
        };
        // Nobody gets the token from here on. Another process may have the id already.
        table.remove(&process, id);
        let tokens = if let Some(tokens) = tokens {
            tokens
        } else {
            ends.cancel();
            managed.await
        };
        revoke_all(&table, &tokens, &output, &stop).await;
        drop(slot);
        table.publish();
    }
}

async fn revoke_all(table: &ProcessTable, tokens: &[Arc<Token>], output: &str, stop: &CancellationToken) {
    for token in tokens {
        let outcome = table.revoker.revoke(token, output, stop).await;
        table.count_ended(outcome);
        tracing::info!(
            event = "token.derived.revoked",
            output,
            accessor = token.accessor,
            outcome = outcome.name(),
            "the process has ended, and its token with it"
        );
    }
}

/// One of the live tokens, until it is dropped.
#[derive(Debug)]
pub(super) struct LiveSlot {
    count: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl LiveSlot {
    pub(super) fn new(permit: OwnedSemaphorePermit, count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { count, _permit: permit }
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
