//! `keyward refresh`: the running agent reads the secrets of its templates again.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_telemetry::error_code::ErrorCode;
use serde::Deserialize;

use super::agent_client::{AgentAddress, AgentClient};
use super::agent_listener::RequiredListener;
use super::agent_token::sessions_to_choose;
use super::progress::ProgressLine;
use super::{Exit, Format, print_error, print_error_with_code, print_line};

/// Make the running agent read the secrets of its templates again.
#[derive(Debug, Args)]
pub(super) struct Refresh {
    /// Read only secrets at this path or below it [default: all]
    path: Option<String>,
    /// Session whose secrets to read; required if there are several
    #[arg(short, long)]
    session: Option<String>,
    /// Also make those anew that have a lease, such as passwords of databases, or were made by a write, such as certificates
    #[arg(long)]
    force: bool,
    /// Output format; json prints the whole response
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    at: AgentAddress,
}

/// Response of the agent.
#[derive(Debug, Deserialize)]
struct Report {
    secrets: Vec<SecretLine>,
}

#[derive(Debug, Deserialize)]
struct SecretLine {
    path: String,
    outcome: String,
    reason: Option<String>,
    retry_after: Option<u64>,
}

/// Longer than the agent waits for the reads.
const TIME: Duration = Duration::from_secs(35);

impl Refresh {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let agent = match AgentClient::connect(&self.at, RequiredListener::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return Ok(exit),
        };
        let named = [("session", self.session.as_deref()), ("path", self.path.as_deref())];
        let mut query: Vec<_> = named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        query.extend(self.force.then_some(("force", "true")));
        let line = ProgressLine::start("waiting for the server");
        let response = agent.post("agent/v1/refresh", &query, TIME);
        drop(line);
        if let Some(names) = sessions_to_choose(&response) {
            let line = format!("--session is needed: the agent serves {names}");
            print_error_with_code(ErrorCode::UnknownSession, &line);
            return Ok(Exit::Failed);
        }
        let body = match agent.expect(response) {
            Ok(body) => body,
            Err(exit) => return Ok(exit),
        };
        let report: Report = serde_json::from_value(body.clone()).context("the response is not that of an agent")?;
        match self.format {
            Format::Json => print_line(&body.to_string()),
            Format::Text => print_report(&report.secrets),
        }
        let all_read = report.secrets.iter().all(|secret| !matches!(&*secret.outcome, "failed" | "rate_limited"));
        Ok(if all_read { Exit::Ok } else { Exit::Failed })
    }
}

fn print_report(secrets: &[SecretLine]) {
    if secrets.is_empty() {
        print_line("no template of this session uses a secret now");
    }
    for SecretLine { path, outcome, reason, retry_after } in secrets {
        match &**outcome {
            "failed" => print_error(&format!("{path}: {}", reason.as_deref().unwrap_or("it could not be read"))),
            "rate_limited" => {
                let seconds = retry_after.unwrap_or(1);
                print_error(&format!("{path}: read on request too often; try again in {seconds} s"));
            }
            "kept" => print_line(&format!("{path}: kept; --force makes another one")),
            outcome => print_line(&format!("{path}: {outcome}")),
        }
    }
}
