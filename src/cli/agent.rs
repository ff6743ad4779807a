//! Commands that ask the running agent, by its local API like anyone else.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use url::Url;

use super::{ConfigFiles, Exit, Format, say, say_error};
use crate::agent::local_api::Serves;
use crate::config::{self, Environment, Listener, Purpose};
use crate::http::client::{self, Address, Client, Proxy, Tls, TransportError};
use crate::http::guard::Admit;
use crate::http::listen::Endpoint;

/// Show what the running agent is doing.
#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    files: ConfigFiles,
    /// How the output looks
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Print the token that the running agent serves.
#[derive(Debug, Args)]
pub(super) struct Token {
    #[command(flatten)]
    files: ConfigFiles,
    /// The session, where there is more than one
    #[arg(long)]
    session: Option<String>,
    /// Wait this long for a token, if there is none yet
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Print the whole answer, as JSON
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Wait until the running agent is ready.
#[derive(Debug, Args)]
pub(super) struct Wait {
    #[command(flatten)]
    files: ConfigFiles,
    /// Give up after this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Exit with 0 if the running agent is ready.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    #[command(flatten)]
    files: ConfigFiles,
    /// Ask whether it lives, not whether it is ready
    #[arg(long)]
    live: bool,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let agent = match Agent::of(&self.files, Asks::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return Ok(exit),
        };
        let answer = agent.ask("agent/v1/status", &[], ASK_TIME);
        let answer = match agent.expect(answer) {
            Ok(answer) => answer,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => say(&serde_json::to_string_pretty(&answer)?),
            Format::Text => describe(&answer).iter().for_each(|line| say(line)),
        }
        Ok(Exit::Ok)
    }
}

impl Token {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let agent = match Agent::of(&self.files, Asks::LocalApi) {
            Ok(agent) => agent,
            Err(exit) => return Ok(exit),
        };
        let wait = self.wait.map(|wait| format!("{}ms", wait.as_millis()));
        let query = [("session", self.session.as_deref()), ("wait", wait.as_deref())];
        let query: Vec<_> = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let answer = agent.ask("agent/v1/token", &query, ASK_TIME + self.wait.unwrap_or_default());
        let answer = match agent.expect(answer) {
            Ok(answer) => answer,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => say(&serde_json::to_string_pretty(&answer)?),
            Format::Text => say(answer["token"].as_str().context("the agent's answer holds no token")?),
        }
        Ok(Exit::Ok)
    }
}

impl Wait {
    pub(super) fn run(self) -> Exit {
        let agent = match Agent::of(&self.files, Asks::Health) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            let last = match agent.ask("readyz", &[], ASK_TIME) {
                Ok((StatusCode::OK, _)) => return Exit::Ok,
                Ok((_, body)) => waiting(&body),
                Err(error) => error.to_string(),
            };
            if tokio::time::Instant::now() >= deadline {
                say_error(&format!("not ready after {}: {last}", humantime::format_duration(self.timeout)));
                return Exit::TimedOut;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Healthcheck {
    pub(super) fn run(self) -> Exit {
        let agent = match Agent::of(&self.files, Asks::Health) {
            Ok(agent) => agent,
            Err(exit) => return exit,
        };
        let path = if self.live { "livez" } else { "readyz" };
        match agent.ask(path, &[], ASK_TIME) {
            Ok((StatusCode::OK, _)) => Exit::Ok,
            Ok((_, body)) => {
                say_error(&waiting(&body));
                Exit::NotReady
            }
            Err(error) => agent.not_running(&error),
        }
    }
}

/// Which listener a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    LocalApi,
    Health,
}

/// The running agent, as its configuration says that it is reached.
struct Agent {
    client: Client,
    key: Option<secrecy::SecretString>,
    runtime: tokio::runtime::Runtime,
}

impl Agent {
    fn of(files: &ConfigFiles, asks: Asks) -> Result<Self, Exit> {
        let outcome = config::load(&files.config, &Environment::of_this_process(), Purpose::Check);
        let Some(config) = outcome.config else {
            for mistake in outcome.mistakes {
                say_error(&mistake.to_string());
            }
            return Err(Exit::ConfigInvalid);
        };
        let Some((listener, address)) = reachable(&config.listeners, asks) else {
            say_error("the configuration has no listener that this command could ask; add [listener.local]");
            return Err(Exit::Failed);
        };
        let key = match &listener.guard.admit {
            Admit::Key(key) => Some(key.clone()),
            _ => None,
        };
        let options = client::Options {
            address,
            tls: Tls::default(),
            proxy: Proxy::Direct,
            connect_timeout: Duration::from_secs(2),
            answer_timeout: ASK_TIME,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let built = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
            let client = runtime.block_on(async { options.build() })?;
            Ok(Self { client, key, runtime })
        });
        built.map_err(|error| {
            say_error(&format!("{error:#}"));
            Exit::Failed
        })
    }

    fn ask(&self, path: &str, query: &[(&str, &str)], time: Duration) -> Result<(StatusCode, Value), TransportError> {
        let mut request = self.client.request(Method::GET, path).query(query).header("x-vault-request", "true");
        if let Some(key) = &self.key {
            request = request.header("x-vault-token", key.expose_secret());
        }
        let answer = self.runtime.block_on(self.client.send_within(request, time))?;
        Ok((answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null)))
    }

    /// The answer if it is a good one; else says why not.
    fn expect(&self, answer: Result<(StatusCode, Value), TransportError>) -> Result<Value, Exit> {
        match answer {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => {
                let errors = body["errors"].as_array().cloned().unwrap_or_default();
                let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
                say_error(&format!("the agent answers {status}: {}", errors.join("; ")));
                Err(match status {
                    StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Exit::Denied,
                    StatusCode::SERVICE_UNAVAILABLE => Exit::NotReady,
                    _ => Exit::Failed,
                })
            }
            Err(error) => Err(self.not_running(&error)),
        }
    }

    fn not_running(&self, error: &TransportError) -> Exit {
        say_error(&format!("no agent answers at {}: {error}", self.client.server()));
        Exit::NotRunning
    }
}

const ASK_TIME: Duration = Duration::from_secs(10);

/// The listener that fits best, and where it is: unix sockets first, a local API before a health listener.
fn reachable(listeners: &[Listener], asks: Asks) -> Option<(&Listener, Address)> {
    let mut fit: Vec<_> = listeners
        .iter()
        .filter(|listener| asks == Asks::Health || listener.serves == Serves::LocalApi)
        .filter_map(|listener| Some((listener, address(&listener.endpoint)?)))
        .collect();
    fit.sort_by_key(|(listener, address)| (listener.serves != Serves::LocalApi, !matches!(address, Address::Unix(_))));
    fit.into_iter().next()
}

fn address(endpoint: &Endpoint) -> Option<Address> {
    match endpoint {
        Endpoint::Unix(socket) => Some(Address::Unix(socket.path.clone())),
        Endpoint::Tcp(address) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
            }
            Url::parse(&format!("http://{address}/")).ok().map(Address::Url)
        }
        Endpoint::Inherited(_) => None,
    }
}

/// What `/readyz` says is missing, in one line.
fn waiting(body: &Value) -> String {
    let Some(components) = body["components"].as_object() else { return "it is not ready".to_owned() };
    let missing: Vec<String> = components
        .iter()
        .filter(|(_, component)| component["ready"] == false && component["required"] == true)
        .map(|(name, component)| format!("{name}: {}", component["reason"].as_str().unwrap_or("not ready")))
        .collect();
    missing.join("; ")
}

/// The agent's status in a few lines: how each session is, then what else is not ready.
fn describe(status: &Value) -> Vec<String> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let ready = if status["ready"] == true { "ready" } else { "NOT READY" };
    let mut lines = vec![format!("keyward {}: {ready}", text(status, "version"))];
    for (name, session) in status["sessions"].as_object().into_iter().flatten() {
        let life = match (session["serving"] == true, session["expires"].as_str()) {
            (false, _) => "NO TOKEN".to_owned(),
            (true, None) => "serving a token that never ends".to_owned(),
            (true, Some(expires)) => format!("serving until {expires}"),
        };
        let policies = session["policies"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let policies = policies.collect::<Vec<_>>().join(", ");
        lines.push(format!("session {name}: {life}; policies {policies}"));
        lines.push(format!("  as {}", text(session, "identity")));
        lines.push(format!("  at {}, role {}", text(session, "server"), text(session, "role")));
        let due = session["next_step_at"].as_str().map(|at| format!(" at {at}")).unwrap_or_default();
        let checked = session["last_checked"].as_str().map(|at| format!("; last checked {at}")).unwrap_or_default();
        lines.push(format!("  next: {}{due}{checked}", text(session, "next_step")));
        if let Some(error) = session["last_error"].as_str() {
            lines.push(format!("  {} failures in a row: {error}", session["failures"]));
        }
    }
    for (name, component) in status["components"].as_object().into_iter().flatten() {
        if component["ready"] == false && !name.starts_with("session/") {
            lines.push(format!("{name}: {}", component["reason"].as_str().unwrap_or("not ready")));
        }
    }
    if let Some(error) = status["reload_error"].as_str() {
        lines.push(format!("the last reload failed, the configuration before it is in force: {error}"));
    }
    lines
}
