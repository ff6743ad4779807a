//! Secrets that have a `lease_duration` and no lease, as those of a key-value store of version 1.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_secret_with_a_duration_and_no_lease_is_read_again_by_the_interval() {
    let world = world();
    let session = world.start();
    write(&world, json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", TEMPLATE);
    sleep(MINUTE).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1 false 2764800"), "{}", bench.reason("app"));
    write(&world, json!({ "password": "p2" })).await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2 false 2764800"));
    let renewals = world.count(Operation::RenewLease);
    assert_eq!(renewals, 0, "there is no lease to renew");
}

#[tokio::test(start_paused = true)]
async fn a_secret_with_a_short_ttl_of_its_own_is_read_again_by_that() {
    let world = world();
    let session = world.start();
    write(&world, json!({ "password": "p1", "ttl": "30s" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", TEMPLATE);
    sleep(MINUTE).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1 false 30"), "{}", bench.reason("app"));
    write(&world, json!({ "password": "p2", "ttl": "30s" })).await;
    sleep(MINUTE).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2 false 30"));
}

pub(super) const TEMPLATE: &str =
    "{{ with secret \"kv/app\" }}{{ .Data.password }} {{ .LeaseID }}{{ .Renewable }} {{ .LeaseDuration }}{{ end }}";

pub(super) async fn write(world: &World, secret: serde_json::Value) {
    let token = world.secrets.token(&Role::default());
    let request = reqwest::Client::new().put(format!("{}/v1/kv/app", world.secrets.url()));
    let request = request.header("x-vault-token", token.expose_secret()).json(&secret);
    request.send().await.unwrap().error_for_status().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_duration_is_not_requested_in_a_loop() {
    let world = world();
    let session = world.start();
    let lease = json!({ "lease_id": "database/creds/dev/1", "lease_duration": 0, "data": { "username": "u" } });
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, lease.to_string())));
    let mut bench = Bench::new(&world, &session);
    bench.start("login", LOGIN);
    sleep(MINUTE * 17).await;
    assert_eq!(bench.read("login").as_deref(), Some("u"), "{}", bench.reason("login"));
    let reads = world.count(Operation::Secret);
    assert!((2..=5).contains(&reads), "{reads} reads in 17 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_check_of_the_token_does_not_repeat_a_read_that_gave_no_secret() {
    let mut world = world();
    world.options.check_interval = None;
    let mut session = world.start();
    session.serving().await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, "{}")));
    let mut bench = Bench::new(&world, &session);
    bench.start("login", LOGIN);
    sleep(Duration::from_secs(10)).await;
    let (reads, lookups) = (world.count(Operation::Secret), world.count(Operation::Lookup));
    for _ in 0..3 {
        session.refresh_signal.request();
        sleep(Duration::from_secs(10)).await;
    }
    assert!(world.count(Operation::Lookup) > lookups, "the session publishes after each check");
    assert_eq!(world.count(Operation::Secret), reads, "each read may create something");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_a_late_clock_showed_as_younger_is_replaced_before_its_end() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let text = "{{ with pkiCert \"pki/issue/web\" \"common_name=web.example\" \"ttl=60m\" }}{{ .Cert }}{{ end }}";
    bench.start("cert", text);
    sleep(MINUTE).await;
    let first = bench.read("cert").unwrap();
    // The clock was 40 minutes late, so that 19 minutes of the certificate are left.
    world.driven.set_wall_by(40 * 60);
    sleep(MINUTE * 15).await;
    assert_eq!(world.count(Operation::Secret), 2);
    assert_ne!(bench.read("cert").unwrap(), first);
}

const LOGIN: &str = "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}";
