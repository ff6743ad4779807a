//! A runtime whose only thread for blocking work can be kept busy, so that reads and writes of files wait.

use std::sync::mpsc;

use tokio::task::JoinHandle;

/// Runs a test with driven time, and one thread for blocking work.
pub(crate) fn run_with_one_blocking_thread(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).max_blocking_threads(1).build().unwrap().block_on(test);
}

/// Blocking work that lasts until it is released. Other blocking work waits for it.
pub(crate) struct BusyThread {
    release: mpsc::Sender<()>,
    busy: JoinHandle<Result<(), mpsc::RecvError>>,
}

impl BusyThread {
    pub(crate) fn start() -> Self {
        let (release, held) = mpsc::channel();
        Self { release, busy: tokio::task::spawn_blocking(move || held.recv()) }
    }

    pub(crate) async fn release(self) {
        self.release.send(()).unwrap();
        self.busy.await.unwrap().unwrap();
    }
}

/// Lets other tasks run until they wait; no time passes.
pub(crate) async fn let_tasks_run() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
