//! Keeps the token of one process until that ends, then revokes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyward_http::peer::PinnedProcess;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::ProcessTable;
use crate::caller_tokens::metrics::{CallerTokenMetrics, RevocationLabels};
use crate::caller_tokens::token_revoker::Revocation;
use crate::secrets::DerivedTokenManager;
use crate::token::Token;

/// A process that has a token, or whose token is being created.
#[derive(Debug)]
pub(super) struct ProcessToken {
    pub(super) id: u64,
    /// Name in log events.
    pub(super) output: String,
    pub(super) process: Arc<PinnedProcess>,
    pub(super) manager: DerivedTokenManager,
    /// Occupies a slot of the limit until the token is revoked.
    pub(super) slot: LiveSlot,
}

/// Slot in the limit of live tokens; freed on drop.
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

impl ProcessTable {
    /// Manages one token until its process ends, `stop` is cancelled, or creation fails for good; then revokes it.
    pub(super) async fn maintain_token(self: Arc<Self>, token: ProcessToken, stop: CancellationToken) {
        // The slot is free when the task ends, also by a panic.
        let ProcessToken { id, output, process, manager, slot: _slot } = token;
        let _report = PanicReport { table: &self, id, output: &output, process: &process };
        let ends = CancellationToken::new();
        let mut managed = std::pin::pin!(manager.run_on_demand(ends.clone()));
        let tokens = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            () = process.wait_for_end() => None,
            tokens = &mut managed => Some(tokens),
        };
        // From here on no request gets the token: another process may already have the id.
        self.remove(&process, id);
        let tokens = if let Some(tokens) = tokens {
            tokens
        } else {
            ends.cancel();
            managed.await
        };
        self.revoke_all(&tokens, &output, &stop).await;
    }

    async fn revoke_all(&self, tokens: &[Arc<Token>], output: &str, stop: &CancellationToken) {
        for token in tokens {
            let outcome = self.revoker.revoke(token, output, stop).await;
            self.count_ended(outcome);
            tracing::info!(
                event = "token.derived.revoked",
                output,
                accessor = token.accessor,
                outcome = outcome.name(),
                "{}",
                outcome.describe()
            );
        }
    }

    /// Removes an ended process from the table, unless a new process has taken its id.
    fn remove(&self, process: &PinnedProcess, id: u64) {
        let mut entries = self.entries.lock();
        if let Some(pid) = process.id()
            && entries.get(&pid).is_some_and(|entry| entry.token.id == id)
        {
            entries.remove(&pid);
        }
    }

    fn count_ended(&self, outcome: Revocation) {
        let labels = RevocationLabels { caller: self.deps.caller.clone(), outcome: outcome.name() };
        self.deps.metrics.get::<CallerTokenMetrics>().ended.get_or_create(&labels).inc();
    }
}

/// Reports a panic of the task that has it, and lets the process get another token.
struct PanicReport<'a> {
    table: &'a ProcessTable,
    id: u64,
    output: &'a str,
    process: &'a PinnedProcess,
}

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.table.remove(self.process, self.id);
        self.table.count_ended(Revocation::Failed);
        tracing::error!(
            event = "token.derived.panicked",
            output = self.output,
            "the task of a process's token panicked, which is a bug in keyward: the token stays valid until it expires, and the \
             next request of the process creates another; report the panic that was printed before"
        );
    }
}
