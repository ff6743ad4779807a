//! Commands that query the running agent through its local API.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;

use super::agent_client::{AgentAddress, AgentClient, REQUEST_TIMEOUT, RequiredListener};
use super::{Exit, Format, say, say_code, say_error};
use crate::agent::local_api::SESSION_NEEDED;
use crate::error_code::ErrorCode;
use crate::http::client::TransportError;
use crate::time_format::format_duration;

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

/// Have the running agent log in once more, now.
#[derive(Debug, Args)]
pub(super) struct Retry {
    /// Session to use; required if there are several
    session: Option<String>,
    #[command(flatten)]
    at: AgentAddress,
}

/// Wait until the running agent is ready.
#[derive(Debug, Args)]
pub(super) struct Wait {
    #[command(flatten)]
    at: AgentAddress,
    /// Maximum time to wait, such as 30s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Exit with 0 if the running agent is ready.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    #[command(flatten)]
    at: AgentAddress,
    /// Check liveness instead of readiness
    #[arg(long)]
    live: bool,
}

impl Token {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let agent = match AgentClient::connect(&self.at, RequiredListener::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return Ok(exit),
        };
        let deadline = Deadline::after(self.wait.unwrap_or_default());
        let response = loop {
            let wait = deadline.at_most(LONGEST_WAIT);
            let text = format!("{}ms", wait.as_millis());
            let query = [("session", self.session.as_deref()), ("wait", (!wait.is_zero()).then_some(text.as_str()))];
            let query: Vec<_> = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let response = agent.get("agent/v1/token", &query, REQUEST_TIMEOUT + wait);
            match response {
                Ok((StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS, _)) if !deadline.is_over() => {
                    std::thread::sleep(deadline.at_most(AGAIN));
                }
                response => break response,
            }
        };
        if let Some(names) = sessions_to_choose(&response) {
            say_code(ErrorCode::UnknownSession, &format!("--session is needed: the agent serves {names}"));
            return Ok(Exit::Failed);
        }
        let response = match agent.expect(response) {
            Ok(response) => response,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => say(&serde_json::to_string_pretty(&response)?),
            Format::Text => say(response["token"].as_str().context("the agent's answer holds no token")?),
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
        let query: Vec<_> = self.session.iter().map(|session| ("session", session.as_str())).collect();
        let response = agent.post("agent/v1/retry", &query, RETRY_TIME);
        if let Ok((StatusCode::SERVICE_UNAVAILABLE, body)) = &response
            && let Some(reason) = body["reason"].as_str()
        {
            say_error(reason);
        }
        if let Some(names) = sessions_to_choose(&response) {
            let line = format!("SESSION is needed, as in `keyward retry NAME`: the agent serves {names}");
            say_code(ErrorCode::UnknownSession, &line);
            return Exit::Failed;
        }
        match agent.expect(response) {
            Ok(_) => {
                say("there is a token");
                Exit::Ok
            }
            Err(exit) => exit,
        }
    }
}

/// Returns the names of the agent's sessions, if the request names none of them and there are several.
fn sessions_to_choose(response: &Result<(StatusCode, Value), TransportError>) -> Option<&str> {
    let Ok((StatusCode::BAD_REQUEST, body)) = response else { return None };
    let (_, names) = body["errors"][0].as_str()?.split_once(SESSION_NEEDED)?;
    Some(names)
}

/// More than the agent waits for a login.
const RETRY_TIME: Duration = Duration::from_secs(35);

impl Wait {
    pub(super) fn run(self) -> Exit {
        let agent = match AgentClient::connect(&self.at, RequiredListener::Health) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let deadline = Deadline::after(self.timeout);
        loop {
            let last = match agent.get("readyz", &[], deadline.at_most(REQUEST_TIMEOUT).max(MIN_REQUEST_TIMEOUT)) {
                Ok((StatusCode::OK, _)) => return Exit::Ok,
                Ok((StatusCode::SERVICE_UNAVAILABLE, body)) => waiting(&body),
                Ok(other) => match agent.expect(Ok(other)) {
                    Err(denied @ Exit::Denied) => return denied,
                    _ => "another program answers there, not an agent".to_owned(),
                },
                Err(error) => {
                    if let Some(refusal) = agent.refusal() {
                        say_code(ErrorCode::AgentSocketDenied, &refusal);
                        return Exit::Denied;
                    }
                    error.to_string()
                }
            };
            if deadline.is_over() {
                let line = format!("not ready after {}: {last}", format_duration(self.timeout));
                say_not_ready(&line);
                return Exit::TimedOut;
            }
            std::thread::sleep(deadline.at_most(Duration::from_millis(100)));
        }
    }
}

impl Healthcheck {
    pub(super) fn run(self) -> Exit {
        let agent = match AgentClient::connect(&self.at, RequiredListener::Health) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let path = if self.live { "livez" } else { "readyz" };
        match agent.get(path, &[], REQUEST_TIMEOUT) {
            Ok((StatusCode::OK, _)) => Exit::Ok,
            Ok((StatusCode::SERVICE_UNAVAILABLE, body)) => {
                say_not_ready(&waiting(&body));
                Exit::NotReady
            }
            response => agent.expect(response).map_or_else(|exit| exit, |_| Exit::NotReady),
        }
    }
}

/// End of a time-out from the command line; a time-out that no clock can hold never ends.
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    fn at_most(&self, most: Duration) -> Duration {
        self.0.map_or(most, |end| most.min(end.saturating_duration_since(Instant::now())))
    }

    fn is_over(&self) -> bool {
        self.at_most(Duration::from_nanos(1)).is_zero()
    }
}

/// As long as the agent lets a caller wait in one request.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Pause between requests for a token that does not exist yet.
const AGAIN: Duration = Duration::from_secs(1);
/// The least time that a request gets: a running agent answers within it.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// Prints why the agent is not ready. The codes of components are more specific than that of the whole.
fn say_not_ready(line: &str) {
    let code = (!line.contains("[KW-")).then_some(ErrorCode::AgentNotReady);
    say_error(&ErrorCode::tag(code, line));
}

/// Formats the components that `/readyz` reports as missing, in one line.
fn waiting(body: &Value) -> String {
    let Some(components) = body["components"].as_object() else { return "it is not ready".to_owned() };
    let missing: Vec<String> = components
        .iter()
        .filter(|(_, component)| component["ready"] == false && component["required"] == true)
        .map(|(name, component)| format!("{name}: {}", describe_component(component)))
        .collect();
    missing.join("; ")
}

/// Formats why a component is not ready, with the code of the error.
fn describe_component(component: &Value) -> String {
    let reason = component["reason"].as_str().unwrap_or("not ready");
    component["code"].as_str().map_or_else(|| reason.to_owned(), |code| format!("{reason} [{code}]"))
}
