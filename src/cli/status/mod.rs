//! `keyward status`: the evaluated status of the running agent.

// 0: pure functions of the status
mod format;

// 1: input and output
mod screen;
#[cfg(feature = "dev")]
mod changes;
mod watch;

use anyhow::Context as _;
use clap::Args;
use keyward_telemetry::status::{StatusDocument, StatusReport, StatusState, Timestamp, evaluate};
use serde_json::Value;

use self::screen::Screen;
use super::agent_client::{AgentAddress, REQUEST_TIMEOUT};
use super::agent_listener::RequiredListener;
use super::running_process::RunningProcess;
use super::{Exit, Format, print_error, print_line};

/// Show what the running agent is doing.
#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    at: AgentAddress,
    /// Show the status again every second, until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Exit with 11 if something is at risk, and with 4 if a required part is down
    #[arg(long = "exit-status")]
    sets_exit_code: bool,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

/// A status as received, and its evaluation at its own time.
pub(super) struct EvaluatedStatus {
    raw: Value,
    document: StatusDocument,
    report: StatusReport,
    now: Timestamp,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let process = match RunningProcess::find(&self.at, RequiredListener::LocalApi) {
            Ok(process) => process,
            Err(exit) => return Ok(exit),
        };
        if self.watch {
            return watch::watch(process, self.format, self.sets_exit_code);
        }
        let evaluated = match process.fetch_status(REQUEST_TIMEOUT)? {
            Ok(raw) => EvaluatedStatus::new(raw)?,
            Err(error) => {
                print_error(&error.line);
                return Ok(error.exit);
            }
        };
        match self.format {
            Format::Json => print_line(&serde_json::to_string_pretty(&evaluated.to_json()?)?),
            Format::Text => Screen::detect().print(&evaluated.lines()),
        }
        Ok(exit(evaluated.report.state, self.sets_exit_code))
    }
}

impl EvaluatedStatus {
    pub(super) fn new(raw: Value) -> anyhow::Result<Self> {
        let document: StatusDocument =
            serde_json::from_value(raw.clone()).context("the response is not the status of an agent")?;
        let now = document.time.unwrap_or_else(|| std::time::SystemTime::now().into());
        let report = evaluate(&document, now);
        Ok(Self { raw, document, report, now })
    }

    fn lines(&self) -> Vec<format::Line> {
        format::format_status(&self.document, &self.report, self.now)
    }

    /// Returns the status with the fields of the evaluation.
    fn to_json(&self) -> anyhow::Result<Value> {
        let mut json = self.raw.clone();
        if let (Some(status), Value::Object(report)) = (json.as_object_mut(), serde_json::to_value(&self.report)?) {
            status.extend(report);
        }
        Ok(json)
    }
}

/// Returns the exit code for a state.
const fn exit(state: StatusState, exit_status: bool) -> Exit {
    match state {
        StatusState::AtRisk if exit_status => Exit::AtRisk,
        StatusState::Down if exit_status => Exit::NotReady,
        StatusState::Ok | StatusState::AtRisk | StatusState::Down => Exit::Ok,
    }
}
