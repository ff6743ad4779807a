//! `keyward token` and `keyward retry`: the running agent's token, through its local API.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::StatusCode;
use keyward_agent::local_api::SESSION_NEEDED;
use keyward_http::client::TransportError;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::Value;

use super::agent_client::{AgentAddress, AgentClient, REQUEST_TIMEOUT};
use super::agent_listener::RequiredListener;
use super::deadline::Deadline;
use super::progress::{ProgressLine, show_progress};
use super::{Exit, Format, print_error, print_error_with_code, print_line};

/// Print the token that the running agent serves.
#[derive(Debug, Args)]
pub(super) struct Token {
    #[command(flatten)]
    at: AgentAddress,
    /// Session to use; required if there are several
    #[arg(short, long)]
    session: Option<String>,
    /// Maximum time to wait for a token, such as 30s [default: do not wait]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Output format; json prints the whole response
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

/// Make the running agent log in now.
#[derive(Debug, Args)]
pub(super) struct Retry {
    /// Session to use; required if there are several
    session: Option<String>,
    /// Log in also if the session has a good token, as after a change of the role's policies. That token is served until the new
    /// one is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    at: AgentAddress,
}

impl Token {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let agent = match AgentClient::connect(&self.at, RequiredListener::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return Ok(exit),
        };
        let deadline = Deadline::after(self.wait.unwrap_or_default());
        let line = self.wait.map(|_| ProgressLine::start("waiting for a token"));
        let response = loop {
            let wait = deadline.at_most(MAX_WAIT);
            let text = format!("{}ms", wait.as_millis());
            let query = [("session", self.session.as_deref()), ("wait", (!wait.is_zero()).then_some(text.as_str()))];
            let query: Vec<_> = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let response = agent.get("agent/v1/token", &query, REQUEST_TIMEOUT + wait);
            match response {
                Ok((StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS, body)) if !deadline.is_over() => {
                    let reason = body["errors"][0].as_str().unwrap_or("there is none yet");
                    show_progress(&format!("waiting for a token: {reason}"));
                    std::thread::sleep(deadline.at_most(AGAIN));
                }
                response => break response,
            }
        };
        drop(line);
        if let Some(names) = sessions_to_choose(&response) {
            print_error_with_code(ErrorCode::UnknownSession, &format!("--session is needed: the agent serves {names}"));
            return Ok(Exit::Failed);
        }
        let response = match agent.expect(response) {
            Ok(response) => response,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => print_line(&serde_json::to_string_pretty(&response)?),
            Format::Text => print_line(response["token"].as_str().context("the agent's response holds no token")?),
        }
        Ok(Exit::Ok)
    }
}

impl Retry {
    pub(super) fn run(self) -> Exit {
        let agent = match AgentClient::connect(&self.at, RequiredListener::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let mut query: Vec<_> = self.session.iter().map(|session| ("session", session.as_str())).collect();
        query.extend(self.force.then_some(("force", "true")));
        let line = ProgressLine::start("waiting for the login");
        let response = agent.post("agent/v1/retry", &query, RETRY_TIME);
        drop(line);
        if let Ok((StatusCode::SERVICE_UNAVAILABLE, body)) = &response
            && let Some(reason) = body["reason"].as_str()
        {
            print_error(reason);
        }
        if let Some(names) = sessions_to_choose(&response) {
            let line = format!("SESSION is needed, as in `keyward retry NAME`: the agent serves {names}");
            print_error_with_code(ErrorCode::UnknownSession, &line);
            return Exit::Failed;
        }
        match agent.expect(response) {
            Ok(_) => {
                print_line(if self.force { "there is a new token" } else { "there is a token" });
                Exit::Ok
            }
            Err(exit) => exit,
        }
    }
}

/// Returns the names of the agent's sessions, if the request names none of them and there are several.
pub(super) fn sessions_to_choose(response: &Result<(StatusCode, Value), TransportError>) -> Option<&str> {
    let Ok((StatusCode::BAD_REQUEST, body)) = response else { return None };
    let (_, names) = body["errors"][0].as_str()?.split_once(SESSION_NEEDED)?;
    Some(names)
}

/// Longer than the agent waits for a login.
const RETRY_TIME: Duration = Duration::from_secs(35);

/// Maximum wait that the agent allows per request.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// Pause between requests for a token that does not exist yet.
const AGAIN: Duration = Duration::from_secs(1);
