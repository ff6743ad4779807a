//! `keyward wait` and `keyward healthcheck`: the readiness of the running agent, or of a gateway without a listener of the
//! agent's.

use std::time::Duration;

use clap::Args;
use http::StatusCode;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_duration;
use serde_json::Value;

use super::agent_client::{AgentAddress, AgentClient, AgentError, REQUEST_TIMEOUT};
use super::agent_listener::RequiredListener;
use super::deadline::Deadline;
use super::progress::{ProgressLine, show_progress};
use super::running_process::RunningProcess;
use super::{Exit, print_error};

/// Wait until the running agent or gateway is ready.
#[derive(Debug, Args)]
pub(super) struct Wait {
    #[command(flatten)]
    at: AgentAddress,
    /// Maximum time to wait, such as 30s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Exit with 0 if the running agent or gateway is ready.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    #[command(flatten)]
    at: AgentAddress,
    /// Check liveness instead of readiness
    #[arg(long)]
    live: bool,
}

impl Wait {
    pub(super) fn run(self) -> Exit {
        let process = match RunningProcess::find(&self.at, RequiredListener::Health) {
            Ok(process) => process,
            Err(exit) => return exit,
        };
        let deadline = Deadline::after(self.timeout);
        let line = ProgressLine::start("waiting for the agent");
        loop {
            let last = match fetch_readiness(&process, deadline.at_most(REQUEST_TIMEOUT).max(MIN_REQUEST_TIMEOUT)) {
                Readiness::Ready => return Exit::Ok,
                Readiness::NotReady(reason) => reason,
                Readiness::Unknown(AgentError { exit: Exit::Denied, line: error }) => {
                    drop(line);
                    print_error(&error);
                    return Exit::Denied;
                }
                Readiness::Unknown(error) => error.line,
            };
            show_progress(&format!("waiting for {last}"));
            if deadline.is_over() {
                drop(line);
                print_not_ready(&format!("not ready after {}: {last}", format_duration(self.timeout)));
                return Exit::TimedOut;
            }
            std::thread::sleep(deadline.at_most(PAUSE));
        }
    }
}

impl Healthcheck {
    pub(super) fn run(self) -> Exit {
        let process = match RunningProcess::find(&self.at, RequiredListener::Health) {
            Ok(process) => process,
            Err(exit) => return exit,
        };
        let readiness = if self.live { fetch_liveness(&process) } else { fetch_readiness(&process, REQUEST_TIMEOUT) };
        match readiness {
            Readiness::Ready => Exit::Ok,
            Readiness::NotReady(reason) => {
                print_not_ready(&reason);
                Exit::NotReady
            }
            Readiness::Unknown(error) => {
                print_error(&error.line);
                error.exit
            }
        }
    }
}

/// Readiness, or liveness, of a running process.
enum Readiness {
    Ready,
    /// Reasons of its components, with their error codes.
    NotReady(String),
    Unknown(AgentError),
}

/// Fetches the readiness within `time`.
fn fetch_readiness(process: &RunningProcess, time: Duration) -> Readiness {
    match process {
        RunningProcess::Agent(agent) => fetch_probe(agent, "readyz", time),
        #[cfg(feature = "gateway")]
        RunningProcess::Gateway(_) => match fetch_status(process, time) {
            Ok(status) if status["ready"] == true => Readiness::Ready,
            Ok(status) => Readiness::NotReady(describe_missing(&status)),
            Err(error) => Readiness::Unknown(error),
        },
    }
}

/// Fetches the liveness: a process that answers is alive.
fn fetch_liveness(process: &RunningProcess) -> Readiness {
    match process {
        RunningProcess::Agent(agent) => fetch_probe(agent, "livez", REQUEST_TIMEOUT),
        #[cfg(feature = "gateway")]
        RunningProcess::Gateway(_) => {
            fetch_status(process, REQUEST_TIMEOUT).map_or_else(Readiness::Unknown, |_| Readiness::Ready)
        }
    }
}

fn fetch_probe(agent: &AgentClient, path: &str, time: Duration) -> Readiness {
    match agent.get(path, &[], time) {
        Ok((StatusCode::OK, _)) => Readiness::Ready,
        Ok((StatusCode::SERVICE_UNAVAILABLE, body)) => Readiness::NotReady(describe_missing(&body)),
        response => match agent.explain(response) {
            Ok(_) => Readiness::NotReady("another program answers there, not an agent".to_owned()),
            Err(error) => Readiness::Unknown(error),
        },
    }
}

#[cfg(feature = "gateway")]
fn fetch_status(process: &RunningProcess, time: Duration) -> Result<Value, AgentError> {
    // A gateway that is starting has no local token yet.
    let failed = |error: anyhow::Error| AgentError { exit: Exit::Failed, line: format!("{error:#}") };
    process.fetch_status(time).unwrap_or_else(|error| Err(failed(error)))
}

/// Pause between two requests for the readiness.
const PAUSE: Duration = Duration::from_millis(100);
/// The least time that a request gets: a running agent answers within it.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// Prints why the agent is not ready. The codes of components are more specific than that of the whole.
fn print_not_ready(line: &str) {
    let code = (!line.contains("[KW-")).then_some(ErrorCode::AgentNotReady);
    print_error(&ErrorCode::tag(code, line));
}

/// Describes the required components of a readiness or status document that are not ready, in one line.
fn describe_missing(document: &Value) -> String {
    let components = document["components"].as_object();
    let missing: Vec<String> = components
        .into_iter()
        .flatten()
        .filter(|(_, component)| component["ready"] == false && component["required"] == true)
        .map(|(name, component)| format!("{name}: {}", describe_component(component)))
        .collect();
    if missing.is_empty() { "it is not ready".to_owned() } else { missing.join("; ") }
}

/// Formats why a component is not ready, with the code of the error.
fn describe_component(component: &Value) -> String {
    let reason = component["reason"].as_str().unwrap_or("not ready");
    component["code"].as_str().map_or_else(|| reason.to_owned(), |code| format!("{reason} [{code}]"))
}
