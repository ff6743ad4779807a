//! Deletes tokens that are no longer needed: replaced ones, and orphans left by a crash or a lost response.
//!
//! The calls are made by a task of its own, one at a time: a platform that does not respond to them must delay neither
//! the end of a token nor the next mint.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use tokio::task::JoinSet;

use super::description::DescriptionPrefix;
use super::plan::{ListedToken, orphaned_tokens};
use super::token_api::{TokenApi, read_parent_token};
use crate::platform_token::PlatformToken;

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
    /// The task that calls the platform, while it runs.
    running: JoinSet<CleanupOutcome>,
}

/// Outcome of calls to the platform.
pub(super) enum CleanupOutcome {
    /// Ids of tokens, and whether each was deleted.
    Deleted(Vec<(String, bool)>),
    /// The owner's tokens, or the error.
    Listed(Result<Vec<ListedToken>, String>),
}

impl TokenCleanup {
    /// Assumes orphans of a previous process.
    pub(super) fn new(calls: Arc<TokenApi>, parent: PathBuf, prefix: DescriptionPrefix, clock: Clock) -> Self {
        let replaced = Vec::new();
        let running = JoinSet::new();
        Self { calls, parent, prefix, clock, replaced, sweep: None, uncertain: true, running }
    }

    /// Returns the time at which the next task starts; `None` while one runs.
    pub(super) fn next_deadline(&self) -> Option<ClockReading> {
        if self.is_running() {
            return None;
        }
        self.replaced.iter().map(|(_, at)| *at).chain(self.sweep).min_by_key(|at| at.boot)
    }

    /// Returns true while a task runs.
    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Waits until the task has ended; `None` if there is none.
    pub(super) async fn next_outcome(&mut self) -> Option<CleanupOutcome> {
        self.running.join_next().await?.ok()
    }

    /// Schedules the deletion of a token.
    pub(super) fn schedule_deletion(&mut self, id: String, at: ClockReading) {
        self.replaced.push((id, at));
    }

    /// Records that a token may have been minted whose id is unknown.
    pub(super) const fn mark_possible_orphan(&mut self) {
        self.uncertain = true;
    }

    /// Searches for orphans soon, as the platform has just responded.
    pub(super) fn schedule_sweep(&mut self) {
        if self.uncertain {
            self.sweep = Some(self.clock.now());
        }
    }

    /// Starts a task that is due. `is_only_process` is true if no other process uses tokens of this gateway: then a token
    /// unknown here is an orphan.
    pub(super) fn start_due(&mut self, is_only_process: bool) {
        let parent = match read_parent_token(&self.parent, &self.clock) {
            Ok(parent) => parent,
            Err(why) => return self.postpone(&why),
        };
        let due = self.replaced.iter().find(|(_, at)| self.clock.has_reached(*at)).map(|(id, _)| id.clone());
        if let Some(id) = due {
            // It stays in the list until it is deleted: a stop may come in between.
            self.start_deletions(parent, vec![id]);
        } else if self.sweep.is_some_and(|at| self.clock.has_reached(at)) {
            if is_only_process {
                self.start_listing(parent);
            } else {
                self.sweep = Some(self.clock.now() + LOCK_RETRY_DELAY);
            }
        }
    }

    fn start_deletions(&mut self, parent: PlatformToken, ids: Vec<String>) {
        let calls = Arc::clone(&self.calls);
        self.running.spawn(async move {
            let mut outcomes = Vec::with_capacity(ids.len());
            for id in ids {
                let is_deleted = delete(&calls, &parent, &id).await;
                outcomes.push((id, is_deleted));
            }
            CleanupOutcome::Deleted(outcomes)
        });
    }

    fn start_listing(&mut self, parent: PlatformToken) {
        // Cleared now, not at the end: a token that is lost meanwhile may not be in the list.
        (self.sweep, self.uncertain) = (None, false);
        let calls = Arc::clone(&self.calls);
        self.running.spawn(async move {
            let listed = calls.list(&parent).await;
            CleanupOutcome::Listed(listed.map_err(|error| error.to_string()))
        });
    }

    /// Records the outcome of a task, and deletes orphans that it found; `current` is in use. No mint is under way: its
    /// token may be in the list already, and would be taken for an orphan.
    pub(super) fn record(&mut self, outcome: CleanupOutcome, current: Option<&str>) {
        let listed = match outcome {
            CleanupOutcome::Deleted(outcomes) => return self.record_deletions(&outcomes),
            CleanupOutcome::Listed(Ok(listed)) => listed,
            CleanupOutcome::Listed(Err(error)) => return self.repeat_sweep(&error),
        };
        let known_ids: Vec<&str> = self.replaced.iter().map(|(id, _)| id.as_str()).chain(current).collect();
        let orphans = orphaned_tokens(listed, &self.prefix, &known_ids);
        if orphans.is_empty() {
            return;
        }
        for id in &orphans {
            tracing::info!(event = "gateway.mint.found", id, "found an orphaned platform token");
        }
        match read_parent_token(&self.parent, &self.clock) {
            Ok(parent) => self.start_deletions(parent, orphans),
            Err(why) => self.repeat_sweep(&why),
        }
    }

    fn record_deletions(&mut self, outcomes: &[(String, bool)]) {
        for (id, is_deleted) in outcomes {
            self.replaced.retain(|(other, _)| other != id);
            if !is_deleted {
                self.uncertain = true;
                self.sweep.get_or_insert(self.clock.now() + RETRY_DELAY);
            }
        }
    }

    fn repeat_sweep(&mut self, error: &str) {
        (self.sweep, self.uncertain) = (Some(self.clock.now()), true);
        self.postpone(error);
    }

    fn postpone(&mut self, error: &str) {
        tracing::warn!(event = "gateway.mint.sweep_failed", error, "orphaned tokens cannot be deleted now");
        let retry_at = self.clock.now() + RETRY_DELAY;
        if self.sweep.is_some() {
            self.sweep = Some(retry_at);
        }
        for (_, at) in self.replaced.iter_mut().filter(|(_, at)| self.clock.has_reached(*at)) {
            *at = retry_at;
        }
    }

    /// Stops the task that runs, and deletes all tokens of this process, `current` too. Those that take too long are left
    /// to the next process.
    pub(super) async fn shut_down(&mut self, current: Option<String>) {
        // A token that it was deleting is still in the list, and is deleted below.
        self.running.shutdown().await;
        let Ok(parent) = read_parent_token(&self.parent, &self.clock) else { return };
        let all = async {
            for id in current.iter().chain(self.replaced.iter().map(|(id, _)| id)) {
                delete(&self.calls, &parent, id).await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!(event = "gateway.mint.cleanup_failed", "cannot delete every platform token in time");
        }
    }
}

async fn delete(calls: &TokenApi, parent: &PlatformToken, id: &str) -> bool {
    match calls.delete(parent, id).await {
        Ok(()) => {
            tracing::info!(event = "gateway.mint.ended", id, "deleted a platform token");
            true
        }
        Err(error) => {
            tracing::warn!(
                event = "gateway.mint.cleanup_failed",
                id,
                error = format_chain(&error),
                "cannot delete a platform token"
            );
            false
        }
    }
}

/// Delay after a failed deletion.
const RETRY_DELAY: Duration = Duration::from_mins(5);

/// Delay until the next check whether a replaced process has ended.
const LOCK_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Time limit for deletions at a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
