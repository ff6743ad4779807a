use async_trait::async_trait;
use keyward_credentials::jwt::{UnverifiedClaims, signing_input};
use keyward_machine::clock::TestClock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::identity::{IdentityErrorKind, IdentityProof, IdentitySource, LoginFields, RequestedAudience, SignedToken};
use crate::identity_tokens::NoIdentityToken;
use crate::identity_tokens::fetch::invalid;

const RESOURCE: &str = "https://management.azure.com/";

/// A metadata service that makes tokens of a life, or keeps one until it ends.
#[derive(Debug)]
struct FakeSource {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u32,
    life: Duration,
    fails: bool,
    /// Time that a call takes.
    takes: Duration,
    retry_after: Option<Duration>,
    keeps_for: Duration,
    kept_until: Option<SystemTime>,
    /// Audience of a token that is not requested, as of one in a file.
    audience: Option<&'static str>,
}

/// The service, as the keeper's source.
#[derive(Debug)]
struct SharedFake(Arc<FakeSource>);

#[async_trait]
impl IdentitySource for SharedFake {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let takes = self.0.state.lock().takes;
        tokio::time::sleep(takes).await;
        self.0.prove()
    }

    fn describe(&self) -> String {
        "fake".to_owned()
    }
}

impl FakeSource {
    fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let now = self.clock.now().wall;
        let mut state = self.state.lock();
        state.calls += 1;
        if state.fails {
            let retry_after = state.retry_after;
            let error = invalid("no response".to_owned());
            return Err(IdentityError { kind: IdentityErrorKind::Transient, retry_after, ..error });
        }
        // The real one gives a kept token until a while before its end.
        let kept = state.kept_until.filter(|end| *end > now + (state.life.saturating_sub(state.keeps_for)));
        let end = kept.unwrap_or(now + state.life);
        state.kept_until = (!state.keeps_for.is_zero()).then_some(end);
        let exp = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let aud = state.audience.unwrap_or(RESOURCE);
        let jwt = format!("{}.c2ln", signing_input(&json!({"alg": "none"}), &json!({"exp": exp, "aud": aud})));
        let claims = UnverifiedClaims::decode(&jwt).ok();
        let audience = state.audience.is_none().then(|| RequestedAudience::Azure(RESOURCE.to_owned()));
        let signed = SignedToken { jwt: SecretString::from(jwt), fields: LoginFields::default(), claims, audience };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }
}

/// A keeper that runs, and its clock.
struct Scene {
    test_clock: TestClock,
    clock: Clock,
    source: Arc<FakeSource>,
    tokens: IdentityTokens,
    health: Health,
    _keeper: JoinSet<()>,
}

impl Scene {
    async fn start(state: State) -> Self {
        let test_clock = TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let clock = Clock::Test(test_clock.clone());
        let source = Arc::new(FakeSource { clock: clock.clone(), state: Mutex::new(state) });
        let health = Health::default();
        let resources = [RESOURCE.to_owned()];
        let (publisher, watch) = credential_channel("no token has been obtained yet");
        let parts = KeeperParts {
            identity: "azure".to_owned(),
            subject: RESOURCE.to_owned(),
            clock: clock.clone(),
            metrics: Metrics::default().get(),
            health: Arc::new(IdentityHealth::new(health.register("identity/azure", true, "no token yet"), &resources)),
        };
        let fetch = TokenFetch::new(Box::new(SharedFake(Arc::clone(&source))), RESOURCE, clock.clone());
        let keeper = Keeper::<_, Token>::new(parts, fetch, publisher);
        let tokens = IdentityTokens::new("azure", clock.clone(), vec![(RESOURCE.to_owned(), watch)]);
        let mut keepers = JoinSet::new();
        keepers.spawn(keeper.run());
        let scene = Self { test_clock, clock, source, tokens, health, _keeper: keepers };
        scene.wait(Duration::ZERO).await;
        scene
    }

    /// Lets time pass, and the keeper act on it.
    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span + Duration::from_millis(1)).await;
    }

    /// Seconds for which the token that is handed out is valid.
    fn rest(&self) -> Result<u64, NoIdentityToken> {
        let (_, token) = self.tokens.find(RESOURCE)?;
        let claims = UnverifiedClaims::decode(token.secret.secret().expose_secret()).unwrap();
        Ok(claims.exp.unwrap().duration_since(self.clock.now().wall).unwrap_or_default().as_secs())
    }

    fn calls(&self) -> u32 {
        self.source.state.lock().calls
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn for_hours_no_expired_token_is_handed_out_and_each_life_costs_one_call() {
    let scene = Scene::start(State { life: HOUR, ..State::default() }).await;
    for _ in 0..12 * 360 {
        scene.wait(Duration::from_secs(10)).await;
        let rest = scene.rest().unwrap();
        assert!(rest >= 355, "{rest} s");
    }
    // 54 minutes of each hour are used.
    assert_eq!(scene.calls(), 14);
    assert!(scene.health.is_ready());
    assert_eq!(scene.tokens.find("https://graph.microsoft.com").unwrap_err(), NoIdentityToken::NotListed);
}

#[tokio::test(start_paused = true)]
async fn a_metadata_service_that_gives_the_same_token_again_is_asked_a_few_times() {
    // A day, of which the service keeps the token until four minutes before its end.
    let day = 24 * HOUR;
    let state = State { life: day, keeps_for: day.checked_sub(Duration::from_mins(4)).unwrap(), ..State::default() };
    let scene = Scene::start(state).await;
    for _ in 0..3 * 24 * 60 {
        scene.wait(Duration::from_mins(1)).await;
        assert!(scene.rest().unwrap() > 60);
    }
    let calls = scene.calls();
    assert!((6..=9).contains(&calls), "{calls} calls in three days");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_served_to_its_end_while_the_identity_fails_and_not_longer() {
    let scene = Scene::start(State { life: HOUR, ..State::default() }).await;
    scene.source.state.lock().fails = true;
    let warning = || scene.health.statuses().remove("identity/azure").unwrap().warning.map(|warning| warning.reason);
    scene.wait(Duration::from_mins(58)).await;
    assert!(scene.health.is_ready() && scene.rest().unwrap() <= 120);
    assert!(warning().unwrap().contains("cannot be replaced: identity token: no response"), "{:?}", warning());
    scene.wait(Duration::from_secs(114)).await;
    assert!(scene.rest().is_ok());
    scene.wait(Duration::from_secs(1)).await;
    let NoIdentityToken::Unavailable { reason, .. } = scene.rest().unwrap_err() else { panic!() };
    assert!(reason.contains("expired"), "{reason}");
    scene.wait(Duration::from_secs(10)).await;
    assert!(!scene.health.is_ready());

    let before = scene.calls();
    scene.wait(HOUR).await;
    assert!(scene.calls() - before < 40, "{} calls in an hour", scene.calls() - before);
    scene.source.state.lock().fails = false;
    scene.wait(Duration::from_mins(6)).await;
    assert!(scene.rest().is_ok() && scene.health.is_ready());
    assert_eq!(warning(), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_service_asks_for_is_bounded_and_told_to_tools() {
    let state = State { life: HOUR, fails: true, retry_after: Some(24 * HOUR), ..State::default() };
    let scene = Scene::start(state).await;
    let NoIdentityToken::Unavailable { retry_after, .. } = scene.rest().unwrap_err() else { panic!() };
    assert!((900..=1350).contains(&retry_after.as_secs()), "{retry_after:?}");
    scene.source.state.lock().fails = false;
    scene.wait(retry_after).await;
    assert!(scene.rest().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_during_a_request_is_followed_after_it() {
    let scene = Scene::start(State { life: HOUR, ..State::default() }).await;
    scene.source.state.lock().takes = Duration::from_secs(30);
    scene.source.state.lock().fails = true;
    // The request for the next token runs.
    scene.wait(Duration::from_secs(54 * 60 + 10)).await;
    scene.test_clock.set_wall_by(-1800);
    scene.wait(Duration::from_mins(6)).await;
    assert!(scene.rest().is_ok_and(|rest| rest > 1700), "{:?}", scene.rest());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_token_follows_a_wall_clock_that_is_set() {
    let scene = Scene::start(State { life: HOUR, ..State::default() }).await;
    scene.source.state.lock().fails = true;
    scene.test_clock.set_wall_by(3590);
    scene.wait(Duration::from_secs(1)).await;
    assert!(scene.rest().unwrap() <= 10);
    scene.test_clock.set_wall_by(60);
    scene.wait(Duration::from_secs(1)).await;
    assert!(scene.rest().is_err());
    // Back again: a machine that slept, and whose clock was wrong for a moment.
    scene.source.state.lock().fails = false;
    scene.test_clock.set_wall_by(-60);
    scene.wait(Duration::from_mins(1)).await;
    assert!(scene.rest().is_ok());
    let calls = scene.calls();
    scene.test_clock.suspend(Duration::from_mins(10));
    scene.wait(Duration::from_secs(1)).await;
    assert!(scene.rest().is_ok() && scene.calls() == calls, "a suspend that a token outlives costs no call");
}

#[tokio::test(start_paused = true)]
async fn a_token_from_a_file_is_handed_out_for_its_own_audience_alone() {
    for (audience, is_served) in [(RESOURCE, true), ("https://management.azure.com", true), ("https://other", false)] {
        let scene = Scene::start(State { life: HOUR, audience: Some(audience), ..State::default() }).await;
        assert_eq!(scene.rest().is_ok(), is_served, "{audience}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_expired_already_is_refused() {
    let scene = Scene::start(State::default()).await;
    let NoIdentityToken::Unavailable { reason, retry_after } = scene.rest().unwrap_err() else { panic!() };
    assert!(reason.contains("has expired") && retry_after >= Duration::from_secs(1), "{reason}");
}
