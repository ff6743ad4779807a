//! Runs named tasks: the first failure stops all, a panic is a failure, and stopping waits for all.

use std::pin::Pin;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// A group of named tasks that stop together.
#[derive(Debug, Default)]
pub struct TaskGroup {
    running: JoinSet<(String, anyhow::Result<()>)>,
    names: std::collections::HashMap<tokio::task::Id, String>,
    stop: CancellationToken,
}

impl TaskGroup {
    /// Creates an empty group that is stopped by `stop` or by the first failure of a task.
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Returns the token that is cancelled when all tasks are to stop.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Spawns a task. It should end soon after the stop token is cancelled.
    pub fn start(&mut self, name: impl Into<String>, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.start_boxed(name.into(), Box::pin(task));
    }

    /// Spawns one type of future: tokio's code of a task is generated for each type.
    fn start_boxed(&mut self, name: String, task: BoxedTask) {
        let label = name.clone();
        let handle = self.running.spawn(async move { (label, task.await) });
        self.names.insert(handle.id(), name);
    }

    /// Waits for the first failure, forever if there is none. The other tasks continue until they are stopped.
    pub async fn wait_for_failure(&mut self) -> TaskError {
        loop {
            match self.running.join_next_with_id().await {
                Some(ended) => {
                    if let Some(failure) = self.failure(ended) {
                        return failure;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until every task has ended. After a stop, tasks that take longer than `grace` are aborted.
    ///
    /// # Errors
    /// A task failed or panicked; the first one is returned.
    pub async fn run(mut self, grace: Duration) -> Result<(), TaskError> {
        let mut first: Option<TaskError> = None;
        let mut deadline = None;
        loop {
            let ended = tokio::select! {
                ended = self.running.join_next_with_id() => ended,
                () = self.stop.cancelled(), if deadline.is_none() => {
                    deadline = Some(tokio::time::Instant::now() + grace);
                    continue;
                }
                () = sleep_until(deadline) => {
                    for name in self.names.values() {
                        tracing::warn!(event = "task.dropped", task = name, "a task did not end in time and was aborted");
                    }
                    self.running.shutdown().await;
                    break;
                }
            };
            let Some(ended) = ended else { break };
            if let Some(failure) = self.failure(ended) {
                self.stop.cancel();
                first.get_or_insert(failure);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn failure(&mut self, ended: TaskOutcome) -> Option<TaskError> {
        match ended {
            Ok((id, (name, result))) => {
                self.names.remove(&id);
                result.err().map(|cause| TaskError { name, cause })
            }
            Err(error) => {
                let name = self.names.remove(&error.id()).unwrap_or_default();
                Some(TaskError { name, cause: anyhow::anyhow!("it panicked") })
            }
        }
    }
}

/// Returns the value of an ended task; `None` if it was aborted. Resumes its panic, so that its unfinished work is not lost silently.
pub fn resume_panic<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(value) => Some(value),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_aborted)) => None,
    }
}

type BoxedTask = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

type TaskOutcome = Result<(tokio::task::Id, (String, anyhow::Result<()>)), JoinError>;

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The first task that failed, with its cause.
#[derive(Debug, thiserror::Error)]
#[error("{name} failed")]
pub struct TaskError {
    name: String,
    #[source]
    cause: anyhow::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_stops_all_tasks_and_names_its_own() {
        let mut tasks = TaskGroup::default();
        let stop = tasks.stop_token();
        tasks.start("waits", async move {
            stop.cancelled().await;
            Ok(())
        });
        tasks.start("breaks", async { anyhow::bail!("no luck") });
        let error = tasks.run(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(format!("{:#}", anyhow::Error::from(error)), "breaks failed: no luck");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_and_a_stuck_task_is_aborted_after_the_grace_time() {
        let mut tasks = TaskGroup::default();
        tasks.start("sticks", std::future::pending());
        tasks.start("panics", async { panic!("on purpose") });
        let start = tokio::time::Instant::now();
        let error = tasks.run(Duration::from_secs(7)).await.unwrap_err();
        assert_eq!(error.name, "panics");
        assert_eq!(start.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test]
    async fn the_panic_of_a_task_is_continued_in_its_owner() {
        let mut owners = TaskGroup::default();
        owners.start("owner", async {
            let mut owned = JoinSet::new();
            owned.spawn(async { 7 });
            assert_eq!(owned.join_next().await.and_then(resume_panic), Some(7));
            owned.spawn(async { panic!("on purpose") });
            assert_eq!(owned.join_next().await.and_then(resume_panic), None, "it panics instead");
            Ok(())
        });
        assert_eq!(owners.run(Duration::from_secs(7)).await.unwrap_err().name, "owner");

        let mut aborted: JoinSet<()> = JoinSet::new();
        aborted.spawn(std::future::pending()).abort();
        assert_eq!(aborted.join_next().await.map(resume_panic), Some(None));
    }
}
