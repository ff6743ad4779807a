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
