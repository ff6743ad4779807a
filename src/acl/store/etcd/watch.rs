//! The one watch of the store: what others change wakes those who wait here.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Event, ResponseHeader, WatchOptions, WatchResponse, WatchStream};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{Kind, Trouble, Troubles};
use super::keys::{Prefix, number, revision};
use super::members::{Member, Members};
use crate::acl::store::revisions::Kinds;
use crate::acl::store::watchers::Watchers;
use crate::acl::store::{Key, Revision};
use crate::backoff::{Backoff, random_unit};

/// Follows all changes, from any member that answers.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) members: Arc<Members>,
    pub(super) prefix: Prefix,
    pub(super) kinds: Arc<Kinds>,
    pub(super) watchers: Arc<Watchers>,
}

/// Between two tries to be told of changes again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A watch that a member has taken on.
pub(super) struct Stream {
    answers: WatchStream,
    member: Arc<str>,
    place: usize,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Stream({})", self.member)
    }
}

/// How a watch went on before it ended.
struct Followed {
    /// From where it is to be taken up: the last revision told, of which there may be more.
    next: Revision,
    why: Trouble,
}

impl Watch {
    /// Finds a member that tells every change from that revision on.
    ///
    /// # Errors
    /// None takes the watch on in time, or the user may not watch.
    pub(super) async fn begin(&self, from: Revision) -> Result<Stream, Troubles> {
        let (end, mut troubles) = (self.members.end(), Troubles::default());
        loop {
            match self.open(from).await {
                Ok(stream) => return Ok(stream),
                Err(trouble) => troubles.add(trouble),
            }
            if matches!(troubles.kind(), Kind::Refused | Kind::LoggedOut) || Instant::now() >= end {
                return Err(troubles);
            }
            sleep(FIRST_WAIT).await;
        }
    }

    /// Asks the preferred member to.
    async fn open(&self, from: Revision) -> Result<Stream, Trouble> {
        let (place, member) = self.members.preferred();
        let mut opened = self.open_at(place, member, from).await;
        if opened.as_ref().is_err_and(|trouble| trouble.kind == Kind::LoggedOut) {
            member.log_in_anew(self.members.end()).await?;
            opened = self.open_at(place, member, from).await;
        }
        if opened.is_err() {
            self.members.avoid(place);
        }
        opened
    }

    async fn open_at(&self, place: usize, member: &Member, from: Revision) -> Result<Stream, Trouble> {
        let end = self.members.end();
        let options = WatchOptions::new().with_prefix().with_start_revision(number(from)).with_fragment();
        let call = |client: Client| {
            let options = options.clone();
            async move { client.watch_client().watch(self.prefix.with(""), Some(options)).await }
        };
        let mut answers = member.ask(end, &call).await?;
        let member = Arc::clone(&member.address);
        let first = timeout_at(end, answers.message()).await.map_err(|_| Trouble::silent(&member))?;
        match first.map_err(|error| Trouble::told(&member, &error))? {
            Some(answer) if answer.created() && !answer.canceled() => Ok(Stream { answers, member, place }),
            Some(answer) => Err(refused(&member, &answer)),
            None => Err(Trouble::not_done(&member, "it ended the watch")),
        }
    }

    /// Follows for ever, from `stream` on, which began at `from`.
    pub(super) async fn run(self, mut stream: Stream, mut from: Revision) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let Followed { next, mut why } = self.follow(stream, from).await;
            from = next;
            tracing::warn!(event = "acl.store.watch_lost", error = %why, "etcd's watch ended: trying again");
            let lost = Instant::now();
            stream = loop {
                if why.kind == Kind::Compacted
                    && let Ok(now) = self.skip().await
                {
                    from = Revision(now.0 + 1);
                }
                sleep(backoff.next(random_unit())).await;
                match self.open(from).await {
                    Ok(stream) => break stream,
                    Err(again) => why = again,
                }
                tracing::debug!(error = %why, "etcd does not take the watch on");
            };
            backoff.reset();
            let (etcd, after) = (&*stream.member, lost.elapsed());
            tracing::info!(event = "acl.store.watch_recovered", etcd, ?after, "etcd is watched again");
        }
    }

    /// What was changed since the watch ended cannot be told any more: everyone is woken.
    async fn skip(&self) -> Result<Revision, Troubles> {
        let key = self.prefix.with("");
        let ask = |client: Client| {
            let key = key.clone();
            async move { client.kv_client().get(key, None).await }
        };
        let answer = self.members.read(self.members.end(), ask).await?;
        let now = revision(answer.header().map_or(0, ResponseHeader::revision));
        self.kinds.unknown_until(now);
        self.watchers.wake_all();
        Ok(now)
    }

    /// Takes what a member tells until it ends.
    async fn follow(&self, Stream { mut answers, member, place }: Stream, from: Revision) -> Followed {
        let mut next = from;
        let why = loop {
            match answers.message().await {
                Ok(Some(answer)) if answer.canceled() => break refused(&member, &answer),
                Ok(Some(answer)) => next = next.max(self.take(&answer)),
                Ok(None) => break Trouble::not_done(&member, "it ended the watch"),
                Err(error) => break Trouble::told(&member, &error),
            }
        };
        self.members.avoid(place);
        Followed { next, why }
    }

    /// Tells those who wait, and gives the last revision that was told.
    fn take(&self, answer: &WatchResponse) -> Revision {
        let changes = || answer.events().iter().filter_map(Event::kv);
        let keys: Vec<_> = changes().filter_map(|record| self.prefix.without(record.key())).collect();
        let last = changes().map(|record| revision(record.mod_revision())).max().unwrap_or_default();
        self.kinds.changed(keys.iter().map(|key| (key.kind(), last)));
        self.watchers.wake_keys(keys.iter().map(Key::as_str));
        last
    }
}

/// Why a member tells nothing more.
fn refused(member: &Arc<str>, answer: &WatchResponse) -> Trouble {
    let (text, kind) = match answer.cancel_reason() {
        _ if answer.compact_revision() > 0 => ("what it should tell was compacted", Kind::Compacted),
        // 3.4 says so of a login that ran out, too.
        reason if reason.contains("permission denied") || reason.contains("auth token") => (reason, Kind::LoggedOut),
        reason => (reason, Kind::NotDone),
    };
    Trouble { kind, ..Trouble::not_done(member, text) }
}
