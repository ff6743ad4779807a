//! Templates whose reads the server refuses: interval and maximum number of retries.

use super::*;

/// Deletes a path of the key-value store as another client.
async fn delete(world: &World, path: &str) {
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/{path}", world.secrets.url());
    let request = reqwest::Client::new().delete(url).header("x-vault-token", token.expose_secret());
    assert!(request.send().await.unwrap().status().is_success());
}

fn denied() -> CannedResponse {
    CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n")
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_created_after_the_start_is_rendered_within_seconds() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start("late", &password("late"));
    sleep(Duration::from_secs(12)).await;
    assert!(bench.reason("late").contains("HTTP 404"), "{}", bench.reason("late"));
    put(&world, "late", json!({ "password": "p" })).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.read("late").as_deref(), Some("p"), "{}", bench.reason("late"));
}

#[tokio::test(start_paused = true)]
async fn rights_that_come_back_are_noticed_within_seconds() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", &password("app"));
    sleep(MINUTE).await;
    world.faults().respond_always(Operation::Secret, Some(denied()));
    let before = world.count(Operation::Secret);
    while world.count(Operation::Secret) == before {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(25)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1"), "what was rendered stays");
    world.faults().respond_always(Operation::Secret, None);
    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2"), "{}", bench.reason("app"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_has_the_session_check_its_token_now_and_then() {
    let mut world = world();
    world.options.check_interval = None;
    let mut session = world.start();
    let mut bench = Bench::new(&world, &session);
    let first = session.serving().await.generation;
    sleep(Duration::from_secs(5)).await;
    world.faults().respond_always(Operation::Secret, Some(denied()));
    let lookups = world.count(Operation::Lookup);
    for at in 0..20 {
        bench.start(&format!("t{at}"), &password(&format!("s{at}")));
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.count(Operation::Lookup) - lookups, 1, "one check for all that were refused");
    assert_eq!(session.serving().await.generation, first, "the policy refuses, not the token");
    sleep(MINUTE * 60).await;
    let lookups = world.count(Operation::Lookup) - lookups;
    assert!((10..=32).contains(&lookups), "{lookups} checks in an hour");

    // That check distinguishes a dead token from such a refusal.
    world.faults().revoke_all();
    sleep(MINUTE * 7).await;
    assert_ne!(session.serving().await.generation, first);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_refused_templates_share_their_quick_retries() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    for at in 0..100 {
        bench.start(&format!("t{at}"), &password(&format!("s{at}")));
    }
    let before = world.count(Operation::Secret);
    sleep(MINUTE * 60).await;
    let calls = world.count(Operation::Secret) - before;
    // As often as healthy secrets are looked at (each 4.5 min at the soonest), and 120 calls besides.
    assert!((1_200..=100 * 14 + 120).contains(&calls), "{calls} calls in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_of_a_branch_that_is_not_taken_delays_no_template() {
    let world = world();
    let session = world.start();
    put(&world, "apps/a", json!({ "password": "p" })).await;
    let mut bench = Bench::new(&world, &session);
    let names = "{{ with secrets \"secret/metadata/apps\" }}{{ range . }}{{ . }}{{ end }}\
                 {{ else }}{{ with secret \"secret/data/fallback\" }}x{{ end }}{{ end }}";
    bench.start("names", names);
    sleep(MINUTE).await;
    assert_eq!((bench.read("names").as_deref(), bench.reason("names").as_str()), (Some("a"), ""));

    // Both secrets are known from other templates.
    bench.start("fallback", &password("fallback"));
    sleep(MINUTE).await;
    bench.start("same", names);
    sleep(MINUTE).await;
    assert_eq!((bench.read("same").as_deref(), bench.reason("same").as_str()), (Some("a"), ""));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_left_its_list_is_not_waited_for() {
    let world = world();
    let session = world.start();
    put(&world, "apps/a", json!({ "password": "a" })).await;
    put(&world, "apps/b", json!({ "password": "b" })).await;
    delete(&world, "data/apps/b").await;
    let mut bench = Bench::new(&world, &session);
    let every = "{{ range secrets \"secret/metadata/apps\" }}{{ with secret (printf \"secret/data/apps/%s\" .) }}\
                 {{ .Data.data.password }}{{ end }}{{ end }}";
    bench.start("every", every);
    sleep(MINUTE).await;
    assert_eq!(bench.read("every"), None, "a secret that it uses is missing");
    assert!(bench.reason("every").contains("secret/data/apps/b is not available"), "{}", bench.reason("every"));
    delete(&world, "metadata/apps/b").await;
    sleep(MINUTE * 7).await;
    assert_eq!((bench.read("every").as_deref(), bench.reason("every").as_str()), (Some("a"), ""));
    sleep(MINUTE * 2).await;
    assert_eq!(bench.store.len(), 2, "the list, and the secret that it names");
}

#[tokio::test(start_paused = true)]
async fn a_credential_of_a_replaced_role_is_not_waited_for() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "role": "deleted" })).await;
    let mut bench = Bench::new(&world, &session);
    let login = "{{ with secret \"secret/data/app\" }}{{ with secret (printf \"database/creds/%s\" .Data.data.role) }}\
                 {{ .Data.username }}{{ end }}{{ end }}";
    bench.start("login", login);
    sleep(MINUTE).await;
    assert!(bench.reason("login").contains("database/creds/deleted is not available"), "{}", bench.reason("login"));
    put(&world, "app", json!({ "role": "dev" })).await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.reason("login"), "");
    assert!(bench.read("login").unwrap().starts_with("v-dev-"));
}

#[tokio::test(start_paused = true)]
async fn a_credential_is_kept_while_the_template_that_used_it_waits_for_another_secret() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "on": true })).await;
    let mut bench = Bench::new(&world, &session);
    let login = "{{ with secret \"secret/data/app\" }}{{ if .Data.data.on }}{{ with secret \"database/creds/dev\" }}\
                 {{ .Data.username }}{{ end }}{{ end }}{{ end }} ";
    bench.start("login", &(login.to_owned() + &password("late")));
    sleep(MINUTE).await;
    assert!(bench.reason("login").contains("secret/data/late is not available"), "{}", bench.reason("login"));
    for on in [false, true] {
        put(&world, "app", json!({ "on": on })).await;
        sleep(MINUTE * 7).await;
    }
    put(&world, "late", json!({ "password": "p" })).await;
    sleep(MINUTE * 7).await;
    let text = bench.read("login").unwrap();
    assert!(text.starts_with("v-dev-") && text.ends_with(" p"), "{text}");
    assert_eq!(world.faults().leases_issued(), 1);
}
