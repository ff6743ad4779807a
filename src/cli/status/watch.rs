//! `keyward status --watch`: the status again every second, in place on a terminal, and after each change elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use keyward_telemetry::status::{ReportItem, StatusState};
use keyward_telemetry::time_format::{format_rfc3339, format_span};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::format::{Line, format_absence};
use super::screen::{AlternateScreen, Screen};
use super::{EvaluatedStatus, exit};
use crate::cli::agent_client::{AgentError, REQUEST_TIMEOUT};
use crate::cli::run::stop_signals;
use crate::cli::running_process::RunningProcess;
use crate::cli::{Exit, Format, print_line};

/// Result of one request for the status.
type Poll = anyhow::Result<Result<EvaluatedStatus, AgentError>>;

/// Shows the status until SIGINT or SIGTERM. A process that does not answer is asked again.
pub(super) fn watch(process: RunningProcess, format: Format, exit_status: bool) -> anyhow::Result<Exit> {
    let (sender, mut polls) = mpsc::channel(1);
    // On a thread of its own: a request that hangs delays no signal. It ends with the process.
    std::thread::Builder::new()
        .name("status".to_owned())
        .spawn(move || poll(&process, &sender))
        .context("no thread can be started")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let stopped = stop_signals(stop.clone())?;
        tokio::pin!(stopped);
        let mut view = View::new(format);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                ended = &mut stopped => return ended.map(|()| Exit::Ok),
                Some(poll) = polls.recv() => view.show(poll?)?,
            }
        }
        Ok(view.close(exit_status))
    })
}

/// Asks for the status every second, until nobody listens.
fn poll(process: &RunningProcess, polls: &mpsc::Sender<Poll>) {
    loop {
        let poll = process.fetch_status(REQUEST_TIMEOUT).and_then(|response| match response {
            Ok(raw) => EvaluatedStatus::new(raw).map(Ok),
            Err(error) => Ok(Err(error)),
        });
        if polls.blocking_send(poll).is_err() {
            return;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Time between two requests.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows one status after the other.
struct View {
    format: Format,
    screen: Screen,
    alternate: Option<AlternateScreen>,
    last: Vec<Line>,
    /// Parts of the last status that start a new block in a log: all but the times.
    last_change: Option<Vec<(String, StatusState, Option<String>)>>,
    /// Beginning of the time without an answer.
    gone_since: Option<Instant>,
    exit: Exit,
    state: Option<StatusState>,
}

impl View {
    fn new(format: Format) -> Self {
        let screen = Screen::detect();
        let alternate = (screen.is_terminal() && format == Format::Text).then(AlternateScreen::enter);
        let last = Vec::new();
        let last_change = None;
        let gone_since = None;
        let state = None;
        Self { format, screen, alternate, last, last_change, gone_since, exit: Exit::Ok, state }
    }

    fn show(&mut self, response: Result<EvaluatedStatus, AgentError>) -> anyhow::Result<()> {
        let (lines, change, json) = match response {
            Ok(evaluated) => {
                let recovery = self.gone_since.take().map(|since| format!("responding again after {}", span(since)));
                self.state = Some(evaluated.report.state);
                let change = evaluated.report.items.iter().map(describe_change).collect();
                let mut lines = evaluated.lines();
                lines.extend(recovery.map(Line::plain));
                (lines, change, evaluated.to_json()?)
            }
            Err(AgentError { exit, line }) => {
                let since = *self.gone_since.get_or_insert_with(Instant::now);
                (self.exit, self.state) = (exit, None);
                let change = vec![(String::new(), StatusState::Down, Some(line.clone()))];
                let lines = format_absence(&line, since.elapsed().as_secs());
                (lines, change, serde_json::json!({ "state": StatusState::Down, "error": line }))
            }
        };
        if self.format == Format::Json {
            print_line(&json.to_string());
        } else if self.alternate.is_some() {
            self.screen.redraw(&lines);
        } else if self.last_change.as_ref() != Some(&change) {
            print_line(&format!("--- {}", format_rfc3339(std::time::SystemTime::now())));
            self.screen.print(&lines);
        }
        (self.last, self.last_change) = (lines, Some(change));
        Ok(())
    }

    /// Leaves the alternate screen, with the last status on the ordinary one.
    fn close(mut self, exit_status: bool) -> Exit {
        if self.alternate.take().is_some() {
            self.screen.print(&self.last);
        }
        match self.state {
            Some(state) => exit(state, exit_status),
            None if exit_status => self.exit,
            None => Exit::Ok,
        }
    }
}

fn describe_change(item: &ReportItem) -> (String, StatusState, Option<String>) {
    (item.component.clone(), item.state, item.reason.clone())
}

fn span(since: Instant) -> String {
    format_span(since.elapsed().as_secs())
}
