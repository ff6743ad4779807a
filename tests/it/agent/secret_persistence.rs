//! Secrets that are renewed through a session, in test time against the emulated Vault server.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_agent::secrets::{
    QuickRetryBudget, SecretOptions, SecretRenewer, SecretRenewerDeps, SecretRequest, SecretResponse,
};
use keyward_credentials::credential_watch::{
    Availability, CredentialWatch, RefreshRequest, RefreshSignal, credential_channel,
};
use keyward_emulators::secrets::terraform::Credential;
use keyward_emulators::secrets::{CannedResponse, LeaseTerms, Operation, Role, terraform};
use keyward_machine::clock::ClockReading;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::harness::session::{Session, World};

const MINUTE: Duration = Duration::from_mins(1);

fn world() -> World {
    let terms = LeaseTerms { ttl: MINUTE * 10, max_ttl: MINUTE * 30, renewable: true };
    let roles =
        BTreeMap::from([("deploy".to_owned(), Credential::Team(terms)), ("old".to_owned(), Credential::TeamLegacy)]);
    let role = Role { ttl: MINUTE * 60, max_ttl: None, ..Role::default() };
    World::with_terraform(role, terraform::TerraformEngineOptions { roles, platform: None })
}

struct PersistentWorld {
    watch: CredentialWatch<String>,
    refresh_signal: RefreshSignal,
    _running: JoinSet<()>,
}

impl PersistentWorld {
    fn start(world: &World, session: &Session, path: &str) -> Self {
        let (publisher, watch) = credential_channel("starting");
        let refresh_signal = RefreshSignal::new(world.clock.clone());
        let options = SecretOptions {
            name: "platform".to_owned(),
            label: "platform".to_owned(),
            request: SecretRequest::read(path),
            field: "token".to_owned(),
            namespace: None,
            interval: MINUTE * 5,
            rewrite_interval: None,
            grace: MINUTE,
        };
        let parts = SecretRenewerDeps {
            publisher,
            projection: text,
            upstream: world.upstream().clone(),
            tokens: session.watch.clone(),
            session: session.refresh_signal.clone(),
            refresh_signal: refresh_signal.clone(),
            clock: world.clock.clone(),
            health: Some(world.health.register("secret/platform", true, "starting")),
            circuit_breaker: None,
            retry_budget: QuickRetryBudget::default(),
            metrics: world.metrics.clone(),
        };
        let mut running = JoinSet::new();
        running.spawn(SecretRenewer::new(options, parts).run(CancellationToken::new()));
        Self { watch, refresh_signal, _running: running }
    }

    async fn next(&mut self) -> Result<String, String> {
        self.watch.changed().await.unwrap();
        self.now()
    }

    fn now(&mut self) -> Result<String, String> {
        match self.watch.current().availability {
            Availability::Available(text) => Ok((*text).clone()),
            Availability::Unavailable { reason, .. } => Err(reason.to_string()),
        }
    }
}

fn text(options: &SecretOptions, response: &SecretResponse, _: ClockReading) -> Result<String, String> {
    let text = response.data.text(&options.field).ok_or("it has no such field")?;
    Ok(text.expose_secret().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_then_replaced_and_revoked_after_the_grace_period() {
    let world = world();
    let session = world.start();
    let mut persistent = PersistentWorld::start(&world, &session, "terraform/creds/deploy");
    let first = persistent.next().await.unwrap();
    assert_eq!((world.count(Operation::Secret), world.faults().leases()), (1, 1));
    sleep(MINUTE * 9).await;
    assert_eq!((world.count(Operation::Secret), world.count(Operation::RenewLease)), (1, 1));
    assert_eq!(persistent.now().as_deref(), Ok(first.as_str()), "a renewal publishes nothing new");

    // Thirty minutes are the maximum: the successor comes before, and both are valid during the grace time.
    let mut second = persistent.next().await.unwrap();
    while second == first {
        second = persistent.next().await.unwrap();
    }
    assert_eq!(world.faults().leases(), 2);
    sleep(Duration::from_secs(59)).await;
    assert_eq!(world.count(Operation::RevokeLease), 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!((world.count(Operation::RevokeLease), world.faults().leases()), (1, 1));
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_secret_without_a_lease_is_read_at_intervals_and_published_when_it_changes() {
    let world = world();
    let session = world.start();
    let mut persistent = PersistentWorld::start(&world, &session, "terraform/creds/old");
    let first = persistent.next().await.unwrap();
    sleep(MINUTE * 16).await;
    let looks = world.count(Operation::Secret);
    assert!((3..=4).contains(&looks), "{looks} looks");
    assert_eq!(persistent.now().as_deref(), Ok(first.as_str()));

    rotate(&world, &session).await;
    assert_eq!(persistent.refresh_signal.request(), RefreshRequest::Accepted, "who was refused asks for a look");
    persistent.refresh_signal.wait().await;
    let second = persistent.now().unwrap();
    assert_ne!(first, second);
    rotate(&world, &session).await;
    assert_ne!(persistent.next().await.unwrap(), second, "the change is noticed without a refresh request too");
}

/// Rotates the role's token as its operator would.
async fn rotate(world: &World, session: &Session) {
    let token = session.token().unwrap();
    let url = format!("{}/v1/terraform/rotate-role/old", world.secrets.url());
    let request = reqwest::Client::new().post(url).header("x-vault-token", token.secret.secret().expose_secret());
    assert_eq!(request.send().await.unwrap().status(), 204);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_served_to_its_real_end_whatever_fails_and_not_a_second_longer() {
    let world = world();
    let session = world.start();
    let mut persistent = PersistentWorld::start(&world, &session, "terraform/creds/deploy");
    let first = persistent.next().await.unwrap();
    for operation in [Operation::Secret, Operation::RenewLease] {
        world.faults().respond_always(operation, Some(CannedResponse::error(503, "Vault is sealed")));
    }
    sleep(Duration::from_secs(599)).await;
    assert_eq!(persistent.now().as_deref(), Ok(first.as_str()));
    sleep(Duration::from_secs(2)).await;
    let reason = persistent.now().unwrap_err();
    assert!(reason.contains("the secret platform is not available"), "{reason}");
    assert!(!world.health.is_ready());
    let calls = world.count(Operation::Secret) + world.count(Operation::RenewLease);
    assert!(calls < 40, "{calls} calls");
    for operation in [Operation::Secret, Operation::RenewLease] {
        world.faults().respond_always(operation, None);
    }
    loop {
        if let Ok(second) = persistent.next().await {
            assert_ne!(first, second);
            break;
        }
    }
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn leased_secrets_are_read_again_with_the_next_token() {
    let world = world();
    let mut session = world.start();
    let mut persistent = PersistentWorld::start(&world, &session, "terraform/creds/deploy");
    let first = persistent.next().await.unwrap();
    let before = session.serving().await.generation;
    world.faults().revoke_all();
    // The server reports a dead token: the session logs in again, and the new token reads the next secret.
    sleep(MINUTE * 8).await;
    assert_ne!(session.serving().await.generation, before);
    let second = persistent.now().unwrap();
    assert_ne!(first, second);
    assert_eq!(world.faults().leases(), 1, "the other one ended with its token");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_and_does_not_loop() {
    let world = world();
    let session = world.start();
    let mut persistent = PersistentWorld::start(&world, &session, "terraform/creds/nobody");
    let reason = persistent.next().await.unwrap_err();
    assert!(reason.contains("HTTP 400: unknown role \"nobody\""), "{reason}");
    sleep(MINUTE * 60).await;
    let calls = world.count(Operation::Secret);
    assert!((10..=30).contains(&calls), "{calls} calls in an hour");
    let text = world.metrics.text();
    assert!(
        text.contains("keyward_secret_calls_total{secret=\"platform\",call=\"read\",outcome=\"failed\"}"),
        "{text}"
    );
}
