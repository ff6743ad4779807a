//! Revocation of replaced leases, beside the other work of the renewer of a secret.

use keyward_agent::secrets::{
    QuickRetryBudget, SecretOptions, SecretRenewer, SecretRenewerDeps, SecretRequest, SecretResponse,
};
use keyward_credentials::credential_watch::{Availability, RefreshSignal};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_published_in_time_while_a_revocation_hangs() {
    let world = world();
    let session = world.start();
    let refused = CannedResponse::error(503, "not now").retry_after("3600");
    world.faults().respond_always(Operation::RenewLease, Some(refused));
    let (publisher, mut watch) = credential_channel::<SecretResponse>("starting");
    let refresh_signal = RefreshSignal::new(world.clock.clone());
    let options = SecretOptions {
        name: "database".to_owned(),
        label: "database".to_owned(),
        request: SecretRequest::read("database/creds/dev"),
        field: String::new(),
        namespace: None,
        interval: MINUTE * 5,
        rewrite_interval: None,
        grace: Duration::from_secs(595),
    };
    let deps = SecretRenewerDeps {
        publisher,
        projection: |_, response, _| Ok(response.clone()),
        upstream: world.upstream().clone(),
        tokens: session.watch.clone(),
        session: session.refresh_signal.clone(),
        refresh_signal: refresh_signal.clone(),
        clock: world.clock.clone(),
        health: None,
        circuit_breaker: None,
        retry_budget: QuickRetryBudget::default(),
        metrics: world.metrics.clone(),
    };
    let mut running = JoinSet::new();
    running.spawn(SecretRenewer::new(options, deps).run(CancellationToken::new()));
    watch.changed().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    refresh_signal.request();
    refresh_signal.wait().await;
    let reason = || match watch.peek().availability {
        Availability::Available(_) => None,
        Availability::Unavailable { reason, .. } => Some(reason.to_string()),
    };
    assert_eq!((reason(), world.faults().leases_issued()), (None, 2));

    // The second lease ends ten minutes after its read, five seconds after the first one is due for revocation.
    sleep(Duration::from_secs(590)).await;
    world.faults().set_unresponsive(true);
    sleep(Duration::from_secs(8)).await;
    assert_eq!((reason(), world.count(Operation::RevokeLease)), (None, 1));
    sleep(Duration::from_secs(4)).await;
    let reason = reason().expect("the end is published before the revocation times out");
    assert!(reason.contains("its lease has ended"), "{reason}");
    world.faults().set_unresponsive(false);
    sleep(MINUTE).await;
    assert_eq!(world.count(Operation::RevokeLease), 1);
}
