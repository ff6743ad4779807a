//! Keeps a token that is made here: makes the next one before it ends, and ends those that were replaced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::call::{CallError, Calls, Made, parent};
use super::description::Prefix;
use super::lock::Lock;
use super::plan::{Failure, Life, Pace, life, replaced_at};
use super::token_cleanup::Leftovers;
use super::{MinterError, Options, Parts};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{Availability, CredentialPublisher, RefreshSignal, credential_channel};
use crate::file_watch::FileWatch;
use crate::gateway::platform_token::{PlatformToken, Source, watch};
use crate::health::HealthHandle;
use crate::http::client::{self, ServerAddress, TlsOptions};

/// Makes tokens, and ends what it has made.
#[derive(Debug)]
pub struct Minter {
    options: Options,
    calls: Arc<Calls>,
    clock: Clock,
    health: HealthHandle,
    publisher: CredentialPublisher<PlatformToken>,
    refresh_signal: RefreshSignal,
    prefix: Prefix,
    lock: Lock,
    pace: Pace,
    /// The token that is published.
    held: Option<Held>,
    /// When the next token is made, or its making is tried again.
    next: ClockReading,
    /// Why the last attempt failed, if it did.
    trouble: Option<String>,
    parent: Parent,
    leftovers: Leftovers,
}

#[derive(Debug)]
struct Held {
    id: String,
    ends: Option<ClockReading>,
}

/// How the parent token was when it was last used.
#[derive(Debug)]
enum Parent {
    /// It did, or something else was wrong.
    Fine,
    /// There was none.
    Missing,
    /// The platform did not do what it was asked with it.
    Refused(PlatformToken),
}

/// What the loop woke up for.
enum Event {
    Ended,
    Ring,
    Make,
    Leftovers,
    Parent,
}

impl Minter {
    /// Opens the lock; no token is made yet. Blocks for a few file operations.
    ///
    /// # Errors
    /// The lock cannot be opened, or a certificate cannot be read.
    pub fn new(options: Options, parts: Parts) -> Result<(Self, Source), MinterError> {
        let Parts { upstream, ca_file, proxy, local_token_file, clock, health } = parts;
        let client = client::ClientOptions {
            address: ServerAddress::Url(upstream),
            tls: TlsOptions { ca_file, ..TlsOptions::default() },
            proxy,
            connect_timeout: CONNECT_WITHIN,
            answer_timeout: ANSWER_WITHIN,
        };
        let (owner, ahead) = (options.owner.clone(), Mutex::default());
        let calls = Arc::new(Calls { client: client.build()?, owner, clock: clock.clone(), ahead });
        let path = lock_file(&options, &local_token_file);
        let lock = Lock::open(path.clone()).map_err(|source| MinterError::Lock { path, source })?;
        let (publisher, watch) = credential_channel("the platform token has not been made yet");
        let refresh_signal = RefreshSignal::new(clock.clone());
        let source = Source {
            watch,
            refresh_signal: refresh_signal.clone(),
            origin: format!("made here for {}", options.owner),
        };
        let prefix = Prefix::of(&local_token_file);
        let leftovers =
            Leftovers::new(Arc::clone(&calls), options.parent_token_file.clone(), prefix.clone(), clock.clone());
        let (next, pace) = (clock.now(), Pace::new());
        let (held, trouble) = (None, None);
        let parent = Parent::Fine;
        #[rustfmt::skip]
        let minter = Self {
            options, calls, clock, health, publisher, refresh_signal, prefix, lock, pace, held, next, trouble, parent, leftovers,
        };
        Ok((minter, source))
    }

    /// Keeps a token until `stop`, then ends it. While the next one cannot be made, the one that is there is served to its
    /// end.
    pub async fn run(mut self, stop: CancellationToken) {
        let watch = watch();
        watch.follow(&self.options.parent_token_file);
        while let Some(event) = stop.run_until_cancelled(self.wait(&watch)).await {
            match event {
                Event::Ended => self.ended(),
                // A call that was begun is waited for at a stop too: what it makes is to be ended.
                Event::Make => self.make().await,
                Event::Ring => self.ring().await,
                Event::Leftovers => {
                    let alone = self.lock.take();
                    let held = self.held.as_ref().map(|held| held.id.as_str());
                    stop.run_until_cancelled(self.leftovers.work(held, alone)).await;
                }
                Event::Parent => {
                    tokio::time::sleep(SETTLES_WITHIN).await;
                    watch.follow(&self.options.parent_token_file);
                    self.look_at_parent();
                }
            }
        }
        self.leftovers.leave(self.held.map(|held| held.id)).await;
    }

    async fn wait(&self, watch: &FileWatch) -> Event {
        let clock = &self.clock;
        tokio::select! {
            biased;
            () = clock.sleep_until_some(self.ends()) => Event::Ended,
            () = self.refresh_signal.requested() => Event::Ring,
            () = clock.sleep_until(self.next) => Event::Make,
            () = clock.sleep_until_some(self.leftovers.next()) => Event::Leftovers,
            () = watch.changed(), if !matches!(self.parent, Parent::Fine) => Event::Parent,
        }
    }

    fn ends(&self) -> Option<ClockReading> {
        self.held.as_ref().and_then(|held| held.ends)
    }

    /// The platform has refused the token that is published.
    async fn ring(&mut self) {
        // After a failure the pace says when the platform is asked again, whoever rings.
        if self.trouble.is_none() || self.clock.has_reached(self.next) {
            self.make().await;
        }
        if let Some(why) = &self.trouble {
            self.health.not_ready(why);
        }
        self.refresh_signal.complete();
    }

    /// Makes a token and publishes it. Meanwhile the one that is there may end.
    async fn make(&mut self) {
        if self.options.owner.is_single() && !self.lock.take() {
            let (owner, lock) = (&self.options.owner, self.lock.path.display());
            let why = format!("another gateway of this machine keeps the token of {owner} and has locked {lock}");
            return self.failed(why, Failure::Waiting);
        }
        let parent = match parent(&self.options.parent_token_file, &self.clock) {
            Ok(parent) => parent,
            Err(why) => {
                self.parent = Parent::Missing;
                return self.failed(format!("there is no parent token: {why}"), Failure::Refused);
            }
        };
        let Some(description) = self.prefix.next() else {
            return self.failed("the system gives no random numbers".to_owned(), Failure::Passing(None));
        };
        let (calls, clock) = (Arc::clone(&self.calls), self.clock.clone());
        let made = {
            let mut call = std::pin::pin!(calls.make(&parent, &description, self.options.ttl));
            loop {
                let ends = self.ends();
                tokio::select! {
                    made = &mut call => break made,
                    () = clock.sleep_until_some(ends) => self.ended(),
                }
            }
        };
        match made {
            Ok(made) => self.take(made).await,
            Err(error) => self.refused(&error, parent),
        }
    }

    async fn take(&mut self, made: Made) {
        let (now, ttl) = (self.clock.now(), self.options.ttl);
        let life = life(ttl, made.created, made.expires);
        let Made { id, token, .. } = made;
        let token = match usable(token, life, ttl, now) {
            Ok(token) => token,
            Err(why) => {
                self.leftovers.end_at(id, now);
                return self.failed(why, Failure::Refused);
            }
        };
        let ends = match life {
            Life::Ends(life) => Some(now + life),
            Life::Endless | Life::TooShort(_) => None,
        };
        if ends.is_none() && self.options.owner.tells_an_end() {
            tracing::warn!(
                event = "gateway.mint.endless",
                "the platform does not end its tokens by itself; the gateway ends each when it is replaced"
            );
        }
        let seconds = ends.map(|ends| now.until(ends).as_secs());
        tracing::info!(event = "gateway.mint.made", owner = %self.options.owner, id, seconds, "a platform token was made");
        let before = self.held.replace(Held { id, ends });
        self.publisher.publish(Availability::Available(Arc::new(token)), Some(now));
        self.health.ready();
        self.pace.succeeded();
        (self.trouble, self.parent) = (None, Parent::Fine);
        self.next = replaced_at(now, ttl, life, random_unit());
        if !self.options.owner.is_single() {
            if let Some(before) = before {
                self.leftovers.end_at(before.id, now + self.options.grace);
            }
            self.leftovers.may_look();
        }
        // Who has rung meanwhile was refused with the token before this one.
        tokio::select! {
            biased;
            () = self.refresh_signal.requested() => {}
            () = std::future::ready(()) => {}
        }
        self.refresh_signal.complete();
    }

    fn refused(&mut self, error: &CallError, parent: PlatformToken) {
        let failure = error.failure();
        if error.in_doubt() {
            self.leftovers.doubt();
        }
        self.parent = if failure == Failure::Refused { Parent::Refused(parent) } else { Parent::Fine };
        let advice = error.advice(&self.options.owner, &self.options.parent_token_file);
        self.failed(format!("no platform token could be made: {error}{advice}"), failure);
    }

    fn failed(&mut self, why: String, failure: Failure) {
        let wait = self.pace.failed(failure, random_unit());
        self.next = self.clock.now() + wait;
        let again = wait.as_secs();
        // Waiting for a lock is tried each second, and told once.
        if self.trouble.as_ref() != Some(&why) || failure != Failure::Waiting {
            tracing::warn!(event = "gateway.mint.failed", why, again, "no platform token was made");
        }
        if self.held.is_none() {
            self.absent(&why, wait);
        }
        self.trouble = Some(why);
    }

    fn ended(&mut self) {
        self.held = None;
        let why = self.trouble.clone().unwrap_or_else(|| "the platform token has ended".to_owned());
        self.absent(&why, self.clock.now().until(self.next));
    }

    fn absent(&self, why: &str, retry_after: Duration) {
        self.health.not_ready(why);
        let retry_after = retry_after.max(Duration::from_secs(1));
        self.publisher.publish(Availability::Unavailable { reason: why.into(), retry_after }, None);
    }

    /// Makes another attempt at once where the parent token is another than the one that did not do.
    fn look_at_parent(&mut self) {
        let Ok(now) = parent(&self.options.parent_token_file, &self.clock) else { return };
        let changed = match &self.parent {
            Parent::Fine => false,
            Parent::Missing => true,
            Parent::Refused(before) => !before.same(&now),
        };
        if changed {
            self.next = self.clock.now();
        }
    }
}

/// Many gateways may keep a token of their own of one owner; then the lock tells a gateway from the process before it.
fn lock_file(options: &Options, local_token_file: &Path) -> PathBuf {
    if options.owner.is_single() {
        let [.., of, id, _] = options.owner.made_at();
        return local_token_file.with_file_name(format!("mint-{of}-{id}.lock"));
    }
    let mut name = local_token_file.file_name().unwrap_or_default().to_owned();
    name.push(".mint.lock");
    local_token_file.with_file_name(name)
}

fn usable(token: SecretString, life: Life, ttl: Duration, now: ClockReading) -> Result<PlatformToken, String> {
    if let Life::TooShort(life) = life {
        let (life, ttl) = (life.as_secs(), ttl.as_secs());
        return Err(format!(
            "a token that was to live {ttl} s ends after {life} s: the platform's clock and this machine's differ"
        ));
    }
    PlatformToken::parse(token, now).map_err(|error| format!("the platform made a token, and {error}"))
}

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// How long after a change the parent token's file is read: several in a row are one.
const SETTLES_WITHIN: Duration = Duration::from_millis(20);
