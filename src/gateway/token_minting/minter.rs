//! Keeps a minted token fresh: mints the next one before it expires, and deletes replaced ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::{Availability, CredentialPublisher, RefreshSignal, credential_channel};
use keyward_http::client::{self, ServerAddress, TlsOptions};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::file_watch::FileWatch;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::time_format::seconds;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::description::DescriptionPrefix;
use super::lock::MintLock;
use super::plan::{MintFailure, MintRetryPolicy, MintedLifetime, renewal_time, token_lifetime};
use super::token_api::{MintedToken, TokenApi, TokenApiError, read_parent_token};
use super::token_cleanup::{CleanupOutcome, TokenCleanup};
use super::{MintOptions, MinterDependencies, MinterError};
use crate::platform_token::{PlatformToken, PlatformTokenSource, watch_token_file};

/// Mints tokens, publishes the current one, and deletes those it has minted.
#[derive(Debug)]
pub struct Minter {
    options: MintOptions,
    calls: Arc<TokenApi>,
    clock: Clock,
    health: HealthHandle,
    publisher: CredentialPublisher<PlatformToken>,
    refresh_signal: RefreshSignal,
    prefix: DescriptionPrefix,
    lock: MintLock,
    retry_policy: MintRetryPolicy,
    /// The published token.
    current: Option<PublishedToken>,
    /// Time of the next mint or retry.
    next: ClockReading,
    /// Error of the last attempt, if it failed.
    last_error: Option<String>,
    parent: ParentState,
    cleanup: TokenCleanup,
}

#[derive(Debug)]
struct PublishedToken {
    id: String,
    expires_at: Option<ClockReading>,
}

/// State of the parent token at its last use.
#[derive(Debug)]
enum ParentState {
    /// It worked, or something else failed.
    Ok,
    /// It could not be read.
    Missing,
    /// The platform refused to mint with it.
    Rejected(PlatformToken),
}

/// Event that the loop handles next.
enum WakeReason {
    TokenExpired,
    RefreshRequested,
    MintDue,
    CleanupDue,
    CleanupEnded(CleanupOutcome),
    ParentChanged,
}

impl Minter {
    /// Opens the lock; mints nothing yet. Blocks for a few file operations.
    pub fn new(options: MintOptions, parts: MinterDependencies) -> Result<(Self, PlatformTokenSource), MinterError> {
        let MinterDependencies { upstream, ca_file, proxy, local_token_file, clock, health } = parts;
        let client = client::ClientOptions {
            address: ServerAddress::Url(upstream),
            tls: TlsOptions { ca_file, ..TlsOptions::default() },
            proxy,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
        };
        let owner = options.owner.clone();
        let clock_offset = Mutex::default();
        let calls = Arc::new(TokenApi { client: client.build()?, owner, clock: clock.clone(), clock_offset });
        let path = lock_file(&options, &local_token_file);
        let lock = MintLock::open(path.clone()).map_err(|source| MinterError::Lock { path, source })?;
        let (publisher, watch) = credential_channel("the platform token has not been minted yet");
        let refresh_signal = RefreshSignal::new(clock.clone());
        let source = PlatformTokenSource {
            watch,
            refresh_signal: refresh_signal.clone(),
            origin: format!("minted for {}", options.owner),
        };
        let prefix = DescriptionPrefix::for_gateway(&local_token_file);
        let cleanup =
            TokenCleanup::new(Arc::clone(&calls), options.parent_token_file.clone(), prefix.clone(), clock.clone());
        let next = clock.now();
        let retry_policy = MintRetryPolicy::new();
        let current = None;
        let last_error = None;
        let parent = ParentState::Ok;
        let minter = Self {
            options,
            calls,
            clock,
            health,
            publisher,
            refresh_signal,
            prefix,
            lock,
            retry_policy,
            current,
            next,
            last_error,
            parent,
            cleanup,
        };
        Ok((minter, source))
    }

    /// Keeps a token until `stop`, then deletes it. While minting fails, the current token is served until it expires.
    pub async fn run(mut self, stop: CancellationToken) {
        let watch = watch_token_file();
        watch.follow(&self.options.parent_token_file);
        while let Some(event) = stop.run_until_cancelled(self.wait(&watch)).await {
            match event {
                WakeReason::TokenExpired => self.expire(),
                // A call in flight is completed at a stop too: its token has to be deleted.
                WakeReason::MintDue => self.mint().await,
                WakeReason::RefreshRequested => self.handle_refresh_request().await,
                WakeReason::CleanupDue => {
                    let is_only_process = self.lock.try_acquire();
                    self.cleanup.start_due(is_only_process);
                }
                WakeReason::CleanupEnded(outcome) => {
                    let current = self.current.as_ref().map(|current| current.id.as_str());
                    self.cleanup.record(outcome, current);
                }
                WakeReason::ParentChanged => {
                    tokio::time::sleep(SETTLE_TIME).await;
                    watch.follow(&self.options.parent_token_file);
                    self.check_parent();
                }
            }
        }
        self.cleanup.shut_down(self.current.map(|current| current.id)).await;
    }

    async fn wait(&mut self, watch: &FileWatch) -> WakeReason {
        let clock = &self.clock;
        let expires_at = self.expires_at();
        let cleanup_at = self.cleanup.next_deadline();
        // The path of an owner's single token names the owner: a deletion under way would delete the next token.
        let may_mint = !self.options.owner.is_single() || !self.cleanup.is_running();
        tokio::select! {
            biased;
            () = clock.sleep_until_some(expires_at) => WakeReason::TokenExpired,
            () = self.refresh_signal.requested(), if may_mint => WakeReason::RefreshRequested,
            () = clock.sleep_until(self.next), if may_mint => WakeReason::MintDue,
            () = clock.sleep_until_some(cleanup_at) => WakeReason::CleanupDue,
            Some(outcome) = self.cleanup.next_outcome() => WakeReason::CleanupEnded(outcome),
            () = watch.changed(), if !matches!(self.parent, ParentState::Ok) => WakeReason::ParentChanged,
        }
    }

    fn expires_at(&self) -> Option<ClockReading> {
        self.current.as_ref().and_then(|current| current.expires_at)
    }

    /// Handles a rejection of the published token by the platform.
    async fn handle_refresh_request(&mut self) {
        // After a failure the retry policy decides about the next call, whatever was requested.
        if self.last_error.is_none() || self.clock.has_reached(self.next) {
            self.mint().await;
        }
        if let Some(why) = &self.last_error {
            self.health.set_failed(ErrorCode::PlatformTokenNotMinted, why);
        }
        self.refresh_signal.complete();
    }

    /// Mints a token and publishes it. The current one may expire meanwhile.
    async fn mint(&mut self) {
        if self.options.owner.is_single() && !self.lock.try_acquire() {
            let owner = &self.options.owner;
            let lock = self.lock.path.display();
            let why = format!("another gateway on this machine mints the token of {owner} (lock {lock})");
            return self.record_failure(why, MintFailure::Locked);
        }
        let parent = match read_parent_token(&self.options.parent_token_file, &self.clock) {
            Ok(parent) => parent,
            Err(why) => {
                self.parent = ParentState::Missing;
                return self.record_failure(format!("there is no parent token: {why}"), MintFailure::Rejected);
            }
        };
        let Some(description) = self.prefix.next_description() else {
            return self.record_failure("the kernel returned no random bytes".to_owned(), MintFailure::Transient(None));
        };
        let calls = Arc::clone(&self.calls);
        let clock = self.clock.clone();
        let minted = {
            let mut call = std::pin::pin!(calls.create(&parent, &description, self.options.ttl));
            loop {
                let expires_at = self.expires_at();
                tokio::select! {
                    minted = &mut call => break minted,
                    () = clock.sleep_until_some(expires_at) => self.expire(),
                }
            }
        };
        match minted {
            Ok(minted) => self.accept(minted).await,
            Err(error) => self.record_api_error(&error, parent),
        }
    }

    async fn accept(&mut self, minted: MintedToken) {
        let now = self.clock.now();
        let ttl = self.options.ttl;
        let lifetime = token_lifetime(ttl, minted.created, minted.expires);
        let MintedToken { id, token, .. } = minted;
        let token = match validate(token, lifetime, ttl, now) {
            Ok(token) => token,
            Err(why) => {
                self.cleanup.schedule_deletion(id, now);
                return self.record_failure(why, MintFailure::Rejected);
            }
        };
        let expires_at = match lifetime {
            MintedLifetime::Ends(life) => Some(now + life),
            MintedLifetime::NoExpiry | MintedLifetime::TooShort(_) => None,
        };
        if expires_at.is_none() && self.options.owner.has_expiry() {
            tracing::warn!(
                event = "gateway.mint.no_expiry",
                "the platform's tokens do not expire; the gateway deletes each when it is replaced"
            );
        }
        let ttl_seconds = expires_at.map(|expires_at| now.until(expires_at).as_secs());
        tracing::info!(
            event = "gateway.mint.made",
            owner = self.options.owner.to_string(),
            id,
            ttl_seconds,
            "minted a platform token"
        );
        let previous = self.current.replace(PublishedToken { id, expires_at });
        self.publisher.publish(Availability::Available(Arc::new(token)), Some(now));
        self.health.record_update();
        self.health.clear_warning();
        self.health.set_ready();
        self.retry_policy.reset();
        (self.last_error, self.parent) = (None, ParentState::Ok);
        self.next = renewal_time(now, ttl, lifetime, random_unit());
        if !self.options.owner.is_single() {
            if let Some(previous) = previous {
                self.cleanup.schedule_deletion(previous.id, now + self.options.grace);
            }
            self.cleanup.schedule_sweep();
        }
        // Requests that came meanwhile were about the previous token.
        tokio::select! {
            biased;
            () = self.refresh_signal.requested() => {}
            () = std::future::ready(()) => {}
        }
        self.refresh_signal.complete();
    }

    fn record_api_error(&mut self, error: &TokenApiError, parent: PlatformToken) {
        let failure = error.failure();
        if error.may_have_succeeded() {
            self.cleanup.mark_possible_orphan();
        }
        self.parent = if failure == MintFailure::Rejected { ParentState::Rejected(parent) } else { ParentState::Ok };
        let advice = error.hint(&self.options.owner, &self.options.parent_token_file);
        self.record_failure(format!("cannot mint a platform token: {error}{advice}"), failure);
    }

    fn record_failure(&mut self, error: String, failure: MintFailure) {
        let wait = self.retry_policy.next_delay(failure, random_unit());
        self.next = self.clock.now() + wait;
        let retry_in_seconds = seconds(wait);
        // A locked mint is retried every second, and logged once.
        if self.last_error.as_ref() != Some(&error) || failure != MintFailure::Locked {
            let code = ErrorCode::PlatformTokenNotMinted.as_str();
            tracing::warn!(
                event = "gateway.mint.failed",
                code,
                error,
                retry_in_seconds,
                "cannot mint a platform token"
            );
        }
        if self.current.is_none() {
            self.publish_absence(&error, wait);
            self.health.set_retry_at(self.next);
        } else {
            self.health.warn(ErrorCode::PlatformTokenNotMinted, error.as_str());
        }
        self.last_error = Some(error);
    }

    fn expire(&mut self) {
        self.current = None;
        self.health.set_retry_at(self.next);
        let why = self.last_error.clone().unwrap_or_else(|| "the platform token has expired".to_owned());
        self.publish_absence(&why, self.clock.now().until(self.next));
    }

    fn publish_absence(&self, why: &str, retry_after: Duration) {
        self.health.clear_warning();
        self.health.set_failed(ErrorCode::PlatformTokenNotMinted, why);
        let retry_after = retry_after.max(Duration::from_secs(1));
        self.publisher.publish(Availability::Unavailable { reason: why.into(), retry_after }, None);
    }

    /// Retries at once if the parent token has changed since it failed.
    fn check_parent(&mut self) {
        let Ok(now) = read_parent_token(&self.options.parent_token_file, &self.clock) else { return };
        let changed = match &self.parent {
            ParentState::Ok => false,
            ParentState::Missing => true,
            ParentState::Rejected(previous) => !previous.is_same(&now),
        };
        if changed {
            self.next = self.clock.now();
        }
    }
}

/// If an owner has many tokens, each gateway has its own lock, which separates it from the process it replaces.
fn lock_file(options: &MintOptions, local_token_file: &Path) -> PathBuf {
    if options.owner.is_single() {
        let [.., of, id, _] = options.owner.create_path();
        return local_token_file.with_file_name(format!("mint-{of}-{id}.lock"));
    }
    let mut name = local_token_file.file_name().unwrap_or_default().to_owned();
    name.push(".mint.lock");
    local_token_file.with_file_name(name)
}

fn validate(
    token: SecretString,
    lifetime: MintedLifetime,
    ttl: Duration,
    now: ClockReading,
) -> Result<PlatformToken, String> {
    if let MintedLifetime::TooShort(life) = lifetime {
        let life = life.as_secs();
        let ttl = ttl.as_secs();
        return Err(format!(
            "a token requested for {ttl} s expires after {life} s: the platform's clock and this machine's differ"
        ));
    }
    PlatformToken::parse(token, now).map_err(|error| format!("the platform returned an invalid token: {error}"))
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Delay between a change and the read of the parent token's file: several changes in a row are one.
const SETTLE_TIME: Duration = Duration::from_millis(20);
