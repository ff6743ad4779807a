//! Deletes tokens that are no longer needed: replaced ones, and orphans left by a crash or a lost response.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::description::DescriptionPrefix;
use super::plan::orphaned_tokens;
use super::token_api::{TokenApi, read_parent_token};
use crate::clock::{Clock, ClockReading};
use crate::error_chain::format_chain;
use crate::gateway::platform_token::PlatformToken;

/// Deletions of one gateway that are due or scheduled.
#[derive(Debug)]
pub(super) struct TokenCleanup {
    calls: Arc<TokenApi>,
    parent: PathBuf,
    prefix: DescriptionPrefix,
    clock: Clock,
    /// Replaced tokens, and when to delete each.
    replaced: Vec<(String, ClockReading)>,
    /// Time of the next search for orphans.
    sweep: Option<ClockReading>,
    /// True if there may be orphans.
    uncertain: bool,
}

impl TokenCleanup {
    /// Assumes orphans of a previous process.
    pub(super) const fn new(calls: Arc<TokenApi>, parent: PathBuf, prefix: DescriptionPrefix, clock: Clock) -> Self {
        Self { calls, parent, prefix, clock, replaced: Vec::new(), sweep: None, uncertain: true }
    }

    /// Returns the time of the next task.
    pub(super) fn next_deadline(&self) -> Option<ClockReading> {
        self.replaced.iter().map(|(_, at)| *at).chain(self.sweep).min_by_key(|at| at.boot)
    }

    /// Schedules the deletion of a token.
    pub(super) fn schedule_deletion(&mut self, id: String, at: ClockReading) {
        self.replaced.push((id, at));
    }

    /// Records that a token may have been minted whose id is unknown.
    pub(super) const fn mark_uncertain(&mut self) {
        self.uncertain = true;
    }

    /// Searches for orphans soon, as the platform has just responded.
    pub(super) fn schedule_sweep(&mut self) {
        if self.uncertain {
            self.sweep = Some(self.clock.now());
        }
    }

    /// Runs the tasks that are due; `current` is in use. `is_only_process` is true if no other process uses tokens of
    /// this gateway: then a token unknown here is an orphan.
    pub(super) async fn run_due(&mut self, current: Option<&str>, is_only_process: bool) {
        let parent = match read_parent_token(&self.parent, &self.clock) {
            Ok(parent) => parent,
            Err(why) => return self.postpone(&why),
        };
        let clock = self.clock.clone();
        while let Some(at) = self.replaced.iter().position(|(_, at)| clock.has_reached(*at)) {
            // It stays in the list until it is deleted: a stop may come in between.
            let Some((id, _)) = self.replaced.get(at).cloned() else { return };
            let deleted = self.delete(&parent, &id).await;
            self.replaced.retain(|(other, _)| *other != id);
            self.uncertain |= !deleted;
            if !deleted {
                self.sweep.get_or_insert(self.clock.now() + RETRY_DELAY);
            }
        }
        if self.sweep.is_some_and(|at| clock.has_reached(at)) {
            if is_only_process {
                self.sweep(&parent, current).await;
            } else {
                self.sweep = Some(clock.now() + LOCK_RETRY_DELAY);
            }
        }
    }

    async fn sweep(&mut self, parent: &PlatformToken, current: Option<&str>) {
        let listed = match self.calls.list(parent).await {
            Ok(listed) => listed,
            Err(error) => return self.postpone(&error.to_string()),
        };
        let known: Vec<&str> = self.replaced.iter().map(|(id, _)| id.as_str()).chain(current).collect();
        let mut failed = false;
        for id in orphaned_tokens(listed, &self.prefix, &known) {
            tracing::info!(event = "gateway.mint.found", id, "found an orphaned platform token");
            failed |= !self.delete(parent, &id).await;
        }
        self.uncertain = failed;
        self.sweep = failed.then(|| self.clock.now() + RETRY_DELAY);
    }

    async fn delete(&self, parent: &PlatformToken, id: &str) -> bool {
        match self.calls.delete(parent, id).await {
            Ok(()) => {
                tracing::info!(event = "gateway.mint.ended", id, "a platform token was deleted");
                true
            }
            Err(error) => {
                tracing::warn!(
                    event = "gateway.mint.cleanup_failed",
                    id,
                    error = format_chain(&error),
                    "a platform token could not be deleted"
                );
                false
            }
        }
    }

    fn postpone(&mut self, error: &str) {
        tracing::warn!(event = "gateway.mint.sweep_failed", error, "orphaned tokens cannot be deleted now");
        let again = self.clock.now() + RETRY_DELAY;
        if self.sweep.is_some() {
            self.sweep = Some(again);
        }
        for (_, at) in self.replaced.iter_mut().filter(|(_, at)| self.clock.has_reached(*at)) {
            *at = again;
        }
    }

    /// Deletes all tokens of this process, `current` too. Those that take too long are left to the next process.
    pub(super) async fn shut_down(self, current: Option<String>) {
        let Ok(parent) = read_parent_token(&self.parent, &self.clock) else { return };
        let all = async {
            for id in current.iter().chain(self.replaced.iter().map(|(id, _)| id)) {
                self.delete(&parent, id).await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!(event = "gateway.mint.cleanup_failed", "not every platform token could be deleted in time");
        }
    }
}

/// Delay after a failed deletion.
const RETRY_DELAY: Duration = Duration::from_mins(5);

/// Delay until the next check whether a replaced process has ended.
const LOCK_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Time limit for deletions at a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
