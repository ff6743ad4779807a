//! Templates that are stopped, or that never ran.

use super::*;
use crate::harness::blocking::{BusyThread, let_tasks_run, run_with_one_blocking_thread};

/// Lets other tasks run until `is_done`; no time passes.
async fn run_until(is_done: impl Fn() -> bool) {
    while !is_done() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_stopped_template_waits_for_its_write_in_progress() {
    run_with_one_blocking_thread(async {
        let world = world();
        let mut session = world.start();
        session.serving().await;
        put(&world, "app", json!({ "password": "p1" })).await;
        let mut bench = Bench::new(&world, &session);
        world.faults().hang_only(Operation::Secret);
        let reads = world.count(Operation::Secret);
        bench.start("app", &password("app"));
        run_until(|| world.count(Operation::Secret) > reads).await;

        let busy = BusyThread::start();
        world.faults().set_unresponsive(false);
        run_until(|| bench.renders("app") == 1).await;
        bench.stop.cancel();
        let_tasks_run().await;
        assert!(bench.running.try_join_next().is_none(), "the write is in progress");
        busy.release().await;
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
    drop(bench.task("app", &password("app"), None, MINUTE * 5));
    assert_eq!(written(), before);
}

#[test]
fn a_secret_that_ends_during_a_write_is_reported_after_it() {
    run_with_one_blocking_thread(async {
        let world = world();
        let mut session = world.start();
        session.serving().await;
        let mut bench = Bench::new(&world, &session);
        world.faults().hang_only(Operation::Secret);
        let reads = world.count(Operation::Secret);
        bench.start("login", "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}");
        run_until(|| world.count(Operation::Secret) > reads).await;

        let busy = BusyThread::start();
        world.faults().set_unresponsive(false);
        run_until(|| bench.renders("login") == 1).await;
        world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
        world.driven.suspend(MINUTE * 11);
        let failed = "secret=\"templates\",call=\"read\",outcome=\"failed\"";
        run_until(|| bench.metric("secret_calls_total", failed) >= 1).await;
        busy.release().await;
        run_until(|| bench.read("login").is_some() && bench.reason("login").contains("is not available")).await;
    });
}
