//! Templates that are stopped, or that never ran.

use std::sync::mpsc;

use super::*;

/// Lets other tasks run until `is_done`; no time passes.
async fn run_until(is_done: impl Fn() -> bool) {
    while !is_done() {
        tokio::task::yield_now().await;
    }
}

/// Blocking work has one thread, so that a write waits while that thread is busy.
#[test]
fn a_stopped_template_waits_for_its_write_in_progress() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = world();
        let mut session = world.start();
        session.serving().await;
        put(&world, "app", json!({ "password": "p1" })).await;
        let mut bench = Bench::new(&world, &session);
        world.faults().hang_only(Operation::Secret);
        let reads = world.count(Operation::Secret);
        bench.start("app", &password("app"));
        run_until(|| world.count(Operation::Secret) > reads).await;

        let (release, held) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        world.faults().set_unresponsive(false);
        run_until(|| bench.renders("app") == 1).await;
        bench.stop.cancel();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(bench.running.try_join_next().is_none(), "the write is in progress");
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        bench.running.join_next().await.unwrap().unwrap();
        assert_eq!(bench.read("app").as_deref(), Some("p1"));
    });
}

#[tokio::test(start_paused = true)]
async fn a_task_that_never_ran_leaves_the_gauges_of_the_running_one() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", &password("app"));
    sleep(MINUTE).await;
    let written = || bench.metric("template_written_timestamp_seconds", "template=\"app\"");
    let before = written();
    assert!(before > 0);
    drop(bench.task("app", &password("app"), None));
    assert_eq!(written(), before);
}

/// As above, a write waits while the thread for blocking work is busy.
#[test]
fn a_secret_that_ends_during_a_write_is_reported_after_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = world();
        let mut session = world.start();
        session.serving().await;
        let mut bench = Bench::new(&world, &session);
        world.faults().hang_only(Operation::Secret);
        let reads = world.count(Operation::Secret);
        bench.start("login", "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}");
        run_until(|| world.count(Operation::Secret) > reads).await;

        let (release, held) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        world.faults().set_unresponsive(false);
        run_until(|| bench.renders("login") == 1).await;
        world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
        world.driven.suspend(MINUTE * 11);
        let failed = "secret=\"templates\",call=\"read\",outcome=\"failed\"";
        run_until(|| bench.metric("secret_calls_total", failed) >= 1).await;
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        run_until(|| bench.read("login").is_some() && bench.reason("login").contains("is not available")).await;
    });
}
