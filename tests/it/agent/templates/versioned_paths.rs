//! Paths of key-value version 2 without `data/` and `metadata/`.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_path_without_data_or_metadata_is_read_as_the_servers_own_clients_do() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    put(&world, "apps/one", json!({ "password": "p" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("read", "{{ with secret \"secret/app\" }}{{ .Data.data.password }}{{ end }}");
    bench.start("version", "{{ with secret \"secret/app?version=1\" }}{{ .Data.data.password }}{{ end }}");
    bench.start("list", "{{ range secrets \"secret/apps\" }}{{ . }};{{ end }}");
    bench.start("all", "{{ range secrets \"secret\" }}{{ . }};{{ end }}");
    bench.start("written", "{{ with secret \"secret/new\" \"a=b\" }}{{ .Data.version }}{{ end }}");
    sleep(Duration::from_secs(5)).await;
    let read = |name: &str| bench.read(name).unwrap_or_else(|| bench.reason(name));
    assert_eq!([read("read"), read("version"), read("list")], ["p1", "p1", "one;"]);
    assert!(read("all").contains("app;apps/;"), "{}", read("all"));
    assert_eq!(read("written"), "1");
    // The client remembers the mount: each further read is one call.
    put(&world, "app", json!({ "password": "p2" })).await;
    let calls = (world.count(Operation::Secret), world.count(Operation::System));
    sleep(MINUTE * 6).await;
    assert_eq!(read("read"), "p2");
    let reads = world.count(Operation::Secret) - calls.0;
    assert_eq!((reads, world.count(Operation::System)), (4, calls.1));
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_the_full_path_is_enough() {
    let world = world();
    let session = world.start();
    put(&world, "web/app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    // The policy denies the other path before the engine sees it.
    let denied = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    world.faults().respond_next(Operation::Secret, denied);
    bench.start("app", "{{ with secret \"secret/web/app\" }}{{ .Data.data.password }}{{ end }}");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1"), "{}", bench.reason("app"));
    assert_eq!(world.count(Operation::System), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_servers_answer_for_nothing_is_an_empty_list() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    for (number, (body, expected)) in [
        ("{\"errors\":[]}", Some("none")),
        ("{\"errors\":[],\"warnings\":[\"Invalid path\"]}", None),
        ("{\"data\":null,\"warnings\":[\"Invalid path\"]}", None),
        ("{\"errors\":[\"no handler for route\"]}", None),
        ("{}", None),
        ("<html>not found</html>", None),
    ]
    .into_iter()
    .enumerate()
    {
        world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(404, body)));
        let name = format!("list{number}");
        bench.start(
            &name,
            &format!("{{{{ range secrets \"kv/{number}\" }}}}{{{{ . }}}}{{{{ else }}}}none{{{{ end }}}}"),
        );
        sleep(Duration::from_secs(1)).await;
        assert_eq!(bench.read(&name).as_deref(), expected, "{body}");
    }
}
