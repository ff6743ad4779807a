//! Watch of all changes, which wakes local waiting tasks.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Event, ResponseHeader, WatchOptions, WatchResponse, WatchStream};
use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_telemetry::time_format::seconds;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{FailureKind, MemberError, MemberErrors};
use super::keys::{Prefix, number, revision};
use super::members::{Member, Members};
use crate::store::revisions::KindRevisions;
use crate::store::watchers::Watchers;
use crate::store::{Key, Revision};

/// Watches all changes on any available member.
#[derive(Debug, Clone)]
pub(super) struct ChangeWatch {
    pub(super) members: Arc<Members>,
    pub(super) prefix: Prefix,
    pub(super) kinds: Arc<KindRevisions>,
    pub(super) watchers: Arc<Watchers>,
}

/// Delay between attempts to restore the watch.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// A watch that a member has confirmed.
pub(super) struct OpenWatch {
    responses: WatchStream,
    member: Arc<str>,
    index: usize,
}

impl std::fmt::Debug for OpenWatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Stream({})", self.member)
    }
}

/// End of a watch.
struct WatchEnd {
    /// Revision to resume from: the last one received, which may have further changes.
    next: Revision,
    error: MemberError,
}

impl ChangeWatch {
    /// Opens a watch from a revision on any member.
    pub(super) async fn begin(&self, from: Revision) -> Result<OpenWatch, MemberErrors> {
        let end = self.members.deadline();
        let mut errors = MemberErrors::default();
        loop {
            match self.open(from).await {
                Ok(stream) => return Ok(stream),
                Err(error) => errors.add(error),
            }
            if matches!(errors.kind(), FailureKind::Refused | FailureKind::Unauthenticated) || Instant::now() >= end {
                return Err(errors);
            }
            sleep(MIN_RETRY_DELAY).await;
        }
    }

    /// Opens the watch on the preferred member.
    async fn open(&self, from: Revision) -> Result<OpenWatch, MemberError> {
        let (index, member) = self.members.preferred();
        let mut opened = self.open_at(index, member, from).await;
        if opened.as_ref().is_err_and(|error| error.kind == FailureKind::Unauthenticated) {
            member.log_in_again(self.members.deadline()).await?;
            opened = self.open_at(index, member, from).await;
        }
        if opened.is_err() {
            self.members.prefer_next_after(index);
        }
        opened
    }

    async fn open_at(&self, index: usize, member: &Member, from: Revision) -> Result<OpenWatch, MemberError> {
        let end = self.members.deadline();
        let options = WatchOptions::new().with_prefix().with_start_revision(number(from)).with_fragment();
        let call = |client: Client| {
            let options = options.clone();
            async move { client.watch_client().watch(self.prefix.prepend_to(""), Some(options)).await }
        };
        let mut responses = member.call(end, &call).await?;
        let member = Arc::clone(&member.address);
        let first = timeout_at(end, responses.message()).await.map_err(|_| MemberError::timed_out(&member))?;
        match first.map_err(|error| MemberError::from_client(&member, &error))? {
            Some(response) if response.created() && !response.canceled() => Ok(OpenWatch { responses, member, index }),
            Some(response) => Err(watch_canceled(&member, &response)),
            None => Err(MemberError::not_executed(&member, "the etcd member closed the watch")),
        }
    }

    /// Follows the watch until the task is aborted; reopens it after errors. `from` is the start of `stream`.
    pub(super) async fn run(self, mut stream: OpenWatch, mut from: Revision) {
        let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        loop {
            let WatchEnd { next, mut error } = self.follow(stream, from).await;
            from = next;
            tracing::warn!(event = "acl.store.watch_lost", error = error.to_string(), "the etcd watch ended, retrying");
            let disconnected_at = Instant::now();
            stream = loop {
                if error.kind == FailureKind::Compacted
                    && let Ok(now) = self.skip_to_now().await
                {
                    from = Revision(now.0 + 1);
                }
                sleep(backoff.next(random_unit())).await;
                match self.open(from).await {
                    Ok(stream) => break stream,
                    Err(next_error) => error = next_error,
                }
                tracing::debug!(error = error.to_string(), "cannot open the etcd watch");
            };
            backoff.reset();
            let etcd = &*stream.member;
            let lasted_seconds = seconds(disconnected_at.elapsed());
            tracing::info!(event = "acl.store.watch_recovered", etcd, lasted_seconds, "the etcd watch is open again");
        }
    }

    /// Changes since the end of the watch were compacted: wakes all waiting tasks and skips to the current revision.
    async fn skip_to_now(&self) -> Result<Revision, MemberErrors> {
        let key = self.prefix.prepend_to("");
        let ask = |client: Client| {
            let key = key.clone();
            async move { client.kv_client().get(key, None).await }
        };
        let response = self.members.read(self.members.deadline(), ask).await?;
        let now = revision(response.header().map_or(0, ResponseHeader::revision));
        self.kinds.raise_lower_bound(now);
        self.watchers.wake_all();
        Ok(now)
    }

    /// Applies changes until the watch ends.
    async fn follow(&self, OpenWatch { mut responses, member, index }: OpenWatch, from: Revision) -> WatchEnd {
        let mut next = from;
        let error = loop {
            match responses.message().await {
                Ok(Some(response)) if response.canceled() => break watch_canceled(&member, &response),
                Ok(Some(response)) => next = next.max(self.apply(&response)),
                Ok(None) => break MemberError::not_executed(&member, "the etcd member closed the watch"),
                Err(error) => break MemberError::from_client(&member, &error),
            }
        };
        self.members.prefer_next_after(index);
        WatchEnd { next, error }
    }

    /// Wakes waiting tasks; returns the last revision received.
    fn apply(&self, response: &WatchResponse) -> Revision {
        let changes = || response.events().iter().filter_map(Event::kv);
        let keys: Vec<_> = changes().filter_map(|record| self.prefix.strip_from(record.key())).collect();
        let last = changes().map(|record| revision(record.mod_revision())).max().unwrap_or_default();
        self.kinds.record(keys.iter().map(|key| (key.kind(), last)));
        self.watchers.wake_keys(keys.iter().map(Key::as_str));
        last
    }
}

/// Reasons of etcd to cancel a watch that another login may prevent. etcd 3.4 reports each of them as the first.
const LOGIN_REASONS: [&str; 4] =
    ["permission denied", "invalid auth token", "revision of auth store is old", "user name is empty"];

/// Converts the cancellation of a watch into an error.
fn watch_canceled(member: &Arc<str>, response: &WatchResponse) -> MemberError {
    let (text, kind) = match response.cancel_reason() {
        _ if response.compact_revision() > 0 => ("the changes to watch were compacted", FailureKind::Compacted),
        reason if LOGIN_REASONS.iter().any(|text| reason.contains(text)) => (reason, FailureKind::Unauthenticated),
        reason => (reason, FailureKind::NotExecuted),
    };
    MemberError { kind, ..MemberError::not_executed(member, text) }
}
