//! A session in driven time: the real token manager and client against the emulated Vault server, all on one runtime.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use keyward_agent::identity::{
    IdentityError, IdentityErrorKind, IdentityProof, IdentitySource, LoginFields, RequestedAudience, SignedToken,
};
use keyward_agent::login;
use keyward_agent::login::Login;
use keyward_agent::server_client;
use keyward_agent::server_client::ServerClient;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_agent::token::{Token, TokenWatch};
use keyward_agent::token_lifecycle;
use keyward_agent::token_lifecycle::{SessionShutdown, TokenLifecycleOptions, TokenManager, TokenManagerDeps};
use keyward_credentials::credential_watch::{Availability, RefreshRequest, RefreshSignal, credential_channel};
use keyward_credentials::jwt::{UnverifiedClaims, signing_input};
use keyward_emulators::secrets;
use keyward_emulators::secrets::{LeaseTerms, Operation, Role, Secrets};
use keyward_http::client;
use keyward_machine::clock::{Clock, ClockReading, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::identities::{RealIdentity, TestedMethod};

/// A role whose tokens live for an hour and can be renewed for ever.
pub(crate) fn one_hour_role() -> Role {
    Role { max_ttl: None, ..Role::default() }
}

/// An identity source that counts its proofs and fails on demand.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeIdentity(Arc<IdentityFaults>);

#[derive(Debug, Default)]
pub(crate) struct IdentityFaults {
    pub(crate) request_count: AtomicU64,
    pub(crate) missing: AtomicBool,
    pub(crate) hangs: AtomicBool,
    /// Start of the proof's validity in seconds since 1970; zero for no claim.
    pub(crate) not_before: AtomicU64,
    /// Expiry of the proof in seconds since 1970; zero for no claim.
    pub(crate) expires: AtomicU64,
    /// File that each proof reads.
    pub(crate) file: OnceLock<PathBuf>,
}

impl FakeIdentity {
    /// Returns the calls of a real source, which makes two per proof: the token and the instance document.
    const CALLS: u64 = 2;

    pub(crate) fn request_count(&self) -> u64 {
        self.0.request_count.load(Ordering::Relaxed)
    }

    fn claims(&self) -> Option<UnverifiedClaims> {
        let not_before = self.0.not_before.load(Ordering::Relaxed);
        let expires = self.0.expires.load(Ordering::Relaxed);
        let mut claims = serde_json::json!({ "nbf": not_before });
        if expires > 0 {
            claims["exp"] = expires.into();
        }
        let token = signing_input(&serde_json::json!({}), &claims);
        let tells = not_before > 0 || expires > 0;
        UnverifiedClaims::decode(&format!("{token}.c2ln")).ok().filter(|_| tells)
    }

    pub(crate) fn set_missing(&self, missing: bool) {
        self.0.missing.store(missing, Ordering::Relaxed);
    }

    pub(crate) fn not_before(&self, moment: SystemTime) {
        let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        self.0.not_before.store(seconds, Ordering::Relaxed);
    }

    pub(crate) fn expires(&self, moment: SystemTime) {
        let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        self.0.expires.store(seconds, Ordering::Relaxed);
    }

    /// Has each proof read a file.
    pub(crate) fn reads(&self, file: PathBuf) {
        self.0.file.set(file).unwrap();
    }

    pub(crate) fn hangs(&self, hangs: bool) {
        self.0.hangs.store(hangs, Ordering::Relaxed);
    }
}

#[async_trait]
impl IdentitySource for FakeIdentity {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        self.0.request_count.fetch_add(1, Ordering::Relaxed);
        if self.0.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.0.missing.load(Ordering::Relaxed) {
            return Err(IdentityError {
                kind: IdentityErrorKind::NotReady,
                source_name: "fake",
                message: "nobody answers".to_owned(),
                hint: None,
                retry_after: None,
            });
        }
        Ok(IdentityProof::Signed(Box::new(SignedToken {
            jwt: SecretString::from("a.b.c"),
            fields: LoginFields::default(),
            claims: self.claims(),
            audience: Some(RequestedAudience::Azure(String::new())),
        })))
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.0.file.get().cloned().into_iter().collect()
    }
}

/// Hours from 1970 to the wall clock at the start of each world.
const START_HOURS: u64 = 500_000;

/// The server, clock and identity around a session.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) driven: TestClock,
    pub(crate) clock: Clock,
    /// Built once, since each client would load the system's certificates.
    upstream: ServerClient,
    pub(crate) secrets: Secrets,
    pub(crate) identity: FakeIdentity,
    /// Takes the place of the fake one.
    real_identity: Option<RealIdentity>,
    mount: &'static str,
    pub(crate) metrics: Metrics,
    pub(crate) session_statuses: SessionStatusRegistry,
    pub(crate) health: Health,
    pub(crate) wrap_ttl: Option<Duration>,
    pub(crate) auth_method: login::AuthMethodKind,
    pub(crate) role: String,
    pub(crate) fingerprint: String,
    pub(crate) options: TokenLifecycleOptions,
    _tasks: TaskGroup,
}

impl World {
    pub(crate) fn new(role: Role) -> Self {
        Self::with_terraform(role, secrets::terraform::TerraformEngineOptions::default())
    }

    /// A world whose session proves itself by a real source, which the server verifies.
    pub(crate) async fn with_method(role: Role, method: TestedMethod) -> Self {
        let driven = TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_hours(START_HOURS));
        let mut options = secrets::SecretsOptions::for_anyone(Clock::Test(driven.clone()), "dev", role.clone());
        let identity = RealIdentity::start(method, &options.clock.clone(), role, &mut options).await;
        let mount = identity.mount;
        Self { real_identity: Some(identity), mount, ..Self::with_options(driven, options) }
    }

    pub(crate) fn with_terraform(role: Role, terraform: secrets::terraform::TerraformEngineOptions) -> Self {
        let driven = TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_hours(START_HOURS));
        let mut options = secrets::SecretsOptions::for_anyone(Clock::Test(driven.clone()), "dev", role.clone());
        options.roles.insert("ops".to_owned(), role);
        options.terraform = terraform;
        let terms = LeaseTerms { ttl: Duration::from_mins(10), max_ttl: Duration::from_hours(2), renewable: true };
        options.database.insert("dev".to_owned(), terms);
        Self::with_options(driven, options)
    }

    fn with_options(driven: TestClock, options: secrets::SecretsOptions) -> Self {
        let clock = options.clock.clone();
        let mut tasks = TaskGroup::default();
        let secrets = Secrets::start(options, &mut tasks).unwrap();
        // By Vault's texts, which say of a dead token that it is invalid; tests of OpenBao's choose those.
        secrets.faults().respond_as_openbao(false);
        let upstream = ServerClient::build(&server_client::ServerClientOptions {
            name: "test".to_owned(),
            kind: server_client::ServerKind::Vault,
            client: client::ClientOptions {
                address: client::ServerAddress::Url(secrets.url().parse().unwrap()),
                tls: client::TlsOptions::default(),
                proxy: client::ProxyMode::Direct,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(10),
            },
            login_timeout: Duration::from_secs(90),
        })
        .unwrap();
        Self {
            driven,
            clock,
            upstream,
            secrets,
            identity: FakeIdentity::default(),
            real_identity: None,
            mount: "azure",
            metrics: Metrics::default(),
            session_statuses: SessionStatusRegistry::default(),
            health: Health::default(),
            wrap_ttl: None,
            auth_method: login::AuthMethodKind::Other,
            role: "dev".to_owned(),
            fingerprint: "one".to_owned(),
            options: TokenLifecycleOptions {
                name: "web".to_owned(),
                check_interval: Some(Duration::from_mins(5)),
                login_jitter: Duration::ZERO,
                revoke_on_exit: false,
                state: None,
            },
            _tasks: tasks,
        }
    }

    /// Sets a state file in a folder; `seal` encrypts the token into it.
    pub(crate) fn keep_state(&mut self, folder: &Path, sealed: bool) {
        let seal = sealed.then(|| SecretString::from("a key"));
        self.options.state =
            Some(token_lifecycle::SessionStateOptions { file: folder.join("web.json"), seal_key: seal });
    }

    pub(crate) fn seal_with(&mut self, key: &str) {
        self.options.state.as_mut().unwrap().seal_key = Some(SecretString::from(key));
    }

    pub(crate) const fn faults(&self) -> &secrets::FaultInjector {
        self.secrets.faults()
    }

    pub(crate) const fn upstream(&self) -> &ServerClient {
        &self.upstream
    }

    /// Makes proofs fail, or succeed again.
    pub(crate) fn set_identity_missing(&self, is_missing: bool) {
        match &self.real_identity {
            Some(real) => real.set_missing(is_missing),
            None => self.identity.set_missing(is_missing),
        }
    }

    /// Makes proofs hang, or succeed again.
    pub(crate) fn hang_identity(&self, hangs: bool) {
        match &self.real_identity {
            Some(real) => real.hang(hangs),
            None => self.identity.hangs(hangs),
        }
    }

    /// Returns the number of calls of an operation that reached the server.
    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.faults().counts().get(operation)
    }

    /// Returns the number of calls of server and identity source, including those that failed to connect.
    pub(crate) fn upstream_calls(&self) -> u64 {
        let text = self.metrics.text();
        let attempts = ["keyward_logins_total{", "keyward_renewals_total{", "keyward_checks_total{"];
        let lines = text.lines().filter(|line| attempts.iter().any(|attempt| line.starts_with(attempt)));
        let tried: u64 = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        let proofs = match &self.real_identity {
            Some(real) => real.requests(),
            None => self.identity.request_count() * FakeIdentity::CALLS,
        };
        tried + proofs
    }

    pub(crate) fn login(&self) -> Login {
        let options = login::LoginOptions {
            role: self.role.clone(),
            mount: self.mount.to_owned(),
            namespace: None,
            wrap_ttl: self.wrap_ttl,
            auth_method: self.auth_method,
        };
        Login::new(self.upstream.clone(), options)
    }

    pub(crate) fn start(&self) -> Session {
        self.start_after(None)
    }

    /// Starts a session that replaces another one and adopts its token.
    pub(crate) fn start_after(&self, before: Option<SessionShutdown>) -> Session {
        let (publisher, watch) = credential_channel("starting");
        let refresh_signal = RefreshSignal::new(self.clock.clone());
        let parts = TokenManagerDeps {
            publisher,
            identity: match &self.real_identity {
                Some(real) => real.method.build(self.clock.clone(), &self.upstream, None).unwrap(),
                None => Box::new(self.identity.clone()),
            },
            login: self.login(),
            connection_files: Vec::new(),
            refresh_signal: refresh_signal.clone(),
            clock: self.clock.clone(),
            session_statuses: self.session_statuses.clone(),
            health: self.health.register("session/web", true, "starting"),
            metrics: self.metrics.clone(),
            fingerprint: self.fingerprint.clone(),
        };
        let stop = CancellationToken::new();
        let mut manager = TokenManager::new(self.options.clone(), parts);
        if let Some(before) = before {
            manager.adopt(before);
        }
        let options = manager.options_sender();
        let mut running = JoinSet::new();
        running.spawn(manager.run(stop.clone()));
        Session { watch, refresh_signal, options, stop, clock: self.clock.clone(), running }
    }
}

/// A running session. Dropping it is `kill -9`.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) watch: TokenWatch,
    pub(crate) refresh_signal: RefreshSignal,
    /// Sender of changed options.
    pub(crate) options: watch::Sender<TokenLifecycleOptions>,
    pub(crate) clock: Clock,
    stop: CancellationToken,
    running: JoinSet<SessionShutdown>,
}

impl Session {
    /// Returns the served token, if any.
    pub(crate) fn token(&self) -> Option<Arc<Token>> {
        match self.watch.peek().availability {
            Availability::Available(token) => Some(token),
            Availability::Unavailable { .. } => None,
        }
    }

    /// Returns the reason why there is no token.
    pub(crate) fn reason(&self) -> String {
        match self.watch.peek().availability {
            Availability::Available(_) => panic!("there is a token"),
            Availability::Unavailable { reason, .. } => reason.to_string(),
        }
    }

    pub(crate) async fn serving(&mut self) -> Arc<Token> {
        loop {
            if let Availability::Available(token) = self.watch.current().availability {
                return token;
            }
            self.watch.changed().await.unwrap();
        }
    }

    pub(crate) async fn not_serving(&mut self) -> String {
        while matches!(self.watch.current().availability, Availability::Available(_)) {
            self.watch.changed().await.unwrap();
        }
        self.reason()
    }

    /// Requests a look-up and waits for its completion, at most a minute; returns the time, or `None` if rate-limited.
    pub(crate) async fn request_lookup(&mut self) -> Option<Duration> {
        let start = self.clock.now();
        if matches!(self.refresh_signal.request(), RefreshRequest::RateLimited { .. }) {
            return None;
        }
        tokio::time::timeout(Duration::from_mins(1), self.refresh_signal.wait())
            .await
            .expect("the refresh request completes");
        Some(self.clock.now().since(start))
    }

    /// Lets time pass, and fails if there is a moment without a valid token.
    pub(crate) async fn serves_for(&self, span: Duration) {
        self.watch(span, |token, now| {
            let token = token.expect("there is a token all the time");
            assert!(token.expires.is_none_or(|ends| !now.until(ends).is_zero()), "the token has ended");
        })
        .await;
    }

    /// Checks the served token after each publication, at its end and each second after it, and each minute.
    pub(crate) async fn watch(&self, span: Duration, mut check: impl FnMut(Option<&Token>, ClockReading)) {
        let (start, mut changes) = (self.clock.now(), self.watch.clone());
        changes.current();
        loop {
            let now = self.clock.now();
            let left = span.saturating_sub(now.since(start));
            if left.is_zero() {
                return;
            }
            let ends = self.token().and_then(|token| token.expires).map_or(left, |ends| now.until(ends));
            let pause = left.min(Duration::from_mins(1)).min(ends.max(Duration::from_secs(1)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = changes.changed() => changed.expect("the session runs"),
            }
            changes.current();
            check(self.token().as_deref(), self.clock.now());
        }
    }

    pub(crate) async fn stop(mut self) -> SessionShutdown {
        self.stop.cancel();
        self.running.join_next().await.unwrap().unwrap()
    }
}

/// Sleeps in driven time.
pub(crate) async fn minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_mins(minutes)).await;
}
