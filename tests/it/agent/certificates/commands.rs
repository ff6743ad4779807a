//! Commands of certificates.

use super::*;

#[tokio::test(start_paused = true)]
async fn certificates_that_are_replaced_together_run_their_command_once() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let line = format!("echo x >> {}", bench.path("runs").display());
    for name in ["one", "two"] {
        let mut wanted = bench.with_command(&line);
        wanted.options.name = name.to_owned();
        wanted.options.output.path = bench.path(name);
        bench.start(wanted);
    }
    let runs = |bench: &Bench<'_>| bench.read("runs").unwrap_or_default().lines().count();
    bench.until(|bench| runs(bench) > 0).await;
    sleep(MINUTE).await;
    assert_eq!(runs(&bench), 1, "both were issued at the start");
    let serial = |bench: &Bench<'_>, name: &str| {
        let text = |file: &str| bench.read(&format!("{name}/{file}")).unwrap();
        fitting(&text("key.pem"), &text("cert.pem")).serial
    };
    let before = ["one", "two"].map(|name| serial(&bench, name));
    for rotation in bench.rotations.certificates(|session| session == "web") {
        assert_eq!(rotation.request(), RefreshRequest::Accepted);
    }
    bench.until(|bench| runs(bench) > 1).await;
    sleep(MINUTE).await;
    assert_eq!(runs(&bench), 2, "both were replaced");
    assert!(["one", "two"].into_iter().zip(before).all(|(name, before)| serial(&bench, name) != before));
}
