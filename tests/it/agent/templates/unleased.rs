//! Secrets that have a `lease_duration` and no lease, as those of a key-value store of version 1.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_secret_with_a_duration_and_no_lease_is_read_again_by_the_interval() {
    let world = world();
    let session = world.start();
    let token = world.secrets.token(&Role::default());
    let write = async |password: &str| {
        let request = reqwest::Client::new().put(format!("{}/v1/kv/app", world.secrets.url()));
        let request = request.header("x-vault-token", token.expose_secret()).json(&json!({ "password": password }));
        request.send().await.unwrap().error_for_status().unwrap();
    };
    write("p1").await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", "{{ with secret \"kv/app\" }}{{ .Data.password }} {{ .LeaseID }}{{ .Renewable }}{{ end }}");
    sleep(MINUTE).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1 false"), "{}", bench.reason("app"));
    // Its duration is 32 days.
    write("p2").await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2 false"));
    let renewals = world.count(Operation::RenewLease);
    assert_eq!(renewals, 0, "there is no lease to renew");
}
