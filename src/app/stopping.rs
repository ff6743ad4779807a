//! Listeners, sinks and templates that a reload has stopped: listeners may have requests in flight that use tokens, the others may
//! still write their files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_config as config;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Stopped outputs. Those that have ended are dropped when another is added.
#[derive(Debug, Default)]
pub(super) struct StoppingOutputs(Vec<StoppingOutput>);

/// An output that was told to stop.
#[derive(Debug, Clone)]
pub(super) struct StoppingOutput {
    pub(super) name: String,
    pub(super) session: String,
    /// `None` for a variable.
    pub(super) file: Option<PathBuf>,
    /// Cancelled once it no longer uses its file.
    pub(super) done: CancellationToken,
}

/// Stopped outputs that a new one waits for.
#[derive(Debug)]
pub(super) struct OutputPredecessors {
    of_file: Vec<CancellationToken>,
    of_name: Vec<CancellationToken>,
}

impl StoppingOutputs {
    pub(super) fn add(&mut self, output: StoppingOutput) {
        self.0.retain(|output| !output.done.is_cancelled());
        self.0.push(output);
    }

    /// Returns the outputs that a new one of this name, with this file, waits for.
    pub(super) fn predecessors(&self, name: &str, file: Option<&Path>) -> OutputPredecessors {
        let done = |is_before: &dyn Fn(&StoppingOutput) -> bool| -> Vec<_> {
            self.0.iter().filter(|output| is_before(output)).map(|output| output.done.clone()).collect()
        };
        OutputPredecessors {
            of_file: done(&|output| file.is_some() && output.file.as_deref() == file),
            of_name: done(&|output| output.name == name),
        }
    }

    /// Returns the outputs of a session.
    pub(super) fn of_session(&self, session: &str) -> Self {
        Self(self.0.iter().filter(|output| output.session == session).cloned().collect())
    }

    /// Waits until these sinks have released their files, at most for [`STOP_LIMIT`]. Logs those that have not.
    pub(super) async fn wait_for_sinks(self) {
        let all = self.0.iter().map(|output| output.done.clone()).collect();
        if timeout(STOP_LIMIT, wait_for_all(all)).await.is_ok() {
            return;
        }
        for StoppingOutput { name, session, file, .. } in self.0.iter().filter(|output| !output.done.is_cancelled()) {
            tracing::warn!(
                event = "sink.release_delayed",
                sink = name,
                session,
                path = file.as_ref().map(|file| file.display().to_string()),
                "the removed or replaced sink has not released its file in time; its file system may be unresponsive"
            );
        }
    }
}

impl OutputPredecessors {
    /// Waits until the new output may start.
    pub(super) async fn wait(self) {
        // Without a limit: a late write by the old output would replace the content of the new one.
        wait_for_all(self.of_file).await;
        // The old output of that name removes its metrics at its end. With a file elsewhere it must not hold up the new one.
        let _ = timeout(STOP_LIMIT, wait_for_all(self.of_name)).await;
    }
}

/// Time for a stopped output to finish its write, and to empty its file.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Stopped listeners that drain. Those that have ended are dropped when another is added.
#[derive(Debug, Default)]
pub(super) struct DrainingListeners(Vec<DrainingListener>);

#[derive(Debug)]
struct DrainingListener {
    /// Sessions whose tokens its requests may use.
    sessions: Vec<String>,
    /// Cancelled once it has ended.
    done: CancellationToken,
}

impl DrainingListeners {
    /// Adds a stopped listener; `done` is cancelled once it has ended.
    pub(super) fn add(&mut self, options: &config::Listener, done: CancellationToken) {
        self.0.retain(|listener| !listener.done.is_cancelled());
        if options.serves.uses_tokens() {
            self.0.push(DrainingListener { sessions: options.sessions.clone(), done });
        }
    }

    /// Returns the tokens that are cancelled once no request in flight uses the session.
    pub(super) fn of_session(&self, session: &str) -> Vec<CancellationToken> {
        let uses = |listener: &&DrainingListener| listener.sessions.iter().any(|name| name == session);
        self.0.iter().filter(uses).map(|listener| listener.done.clone()).collect()
    }
}

/// Waits until all of these tokens are cancelled.
pub(super) async fn wait_for_all(tokens: Vec<CancellationToken>) {
    for done in tokens {
        done.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn output(name: &str, session: &str, file: Option<&str>) -> StoppingOutput {
        let name = name.to_owned();
        let session = session.to_owned();
        let file = file.map(PathBuf::from);
        StoppingOutput { name, session, file, done: CancellationToken::new() }
    }

    /// Measures a wait; a minute stands for one without end.
    async fn seconds(wait: impl Future<Output = ()>) -> u64 {
        let start = Instant::now();
        let _ = timeout(Duration::from_mins(1), wait).await;
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_output_that_hangs_holds_up_those_of_its_file_alone_and_its_session_for_a_limited_time() {
        let mut stopping = StoppingOutputs::default();
        let hung = output("hung", "one", Some("/nfs/token"));
        let ended = output("ended", "two", Some("/run/token"));
        let finish = ended.done.clone();
        stopping.add(hung);
        stopping.add(ended);
        stopping.add(output("VARIABLE", "three", None));
        finish.cancel();
        let wait = |name: &'static str, file: Option<&'static str>| {
            seconds(stopping.predecessors(name, file.map(Path::new)).wait())
        };
        assert_eq!(wait("other", Some("/nfs/token")).await, 60);
        assert_eq!(wait("hung", Some("/nfs/token")).await, 60);
        assert_eq!(wait("hung", Some("/run/elsewhere")).await, 3);
        assert_eq!(wait("ended", Some("/run/token")).await, 0);
        assert_eq!(wait("other", Some("/run/other")).await, 0);
        assert_eq!(wait("OTHER", None).await, 0);
        for (session, expected) in [("one", 3), ("two", 0), ("four", 0)] {
            assert_eq!(seconds(stopping.of_session(session).wait_for_sinks()).await, expected, "session {session}");
        }
        // A later reload still knows the sink that hangs.
        stopping.add(output("later", "two", Some("/run/token")));
        assert_eq!(seconds(stopping.of_session("one").wait_for_sinks()).await, 3);
    }
}
