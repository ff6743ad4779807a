//! The running agent, asked by its local API as any caller does.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use keyward_http::client::{Client, ClientOptions, ProxyMode, ServerAddress, TlsOptions, TransportError};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::escape_controls;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::Value;

use crate::check_result::{CheckResult, CheckStatus, Problem, StepResult, Steps};

/// Address of the agent's local API.
#[derive(Debug, Clone)]
pub struct AgentContact {
    /// Address.
    pub address: ServerAddress,
    /// Key that the listener asks for.
    pub key: Option<SecretString>,
}

/// Process of the running agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentProcess {
    /// No agent answers.
    NotRunning,
    /// It cannot be asked: the configuration has no local API, or that refuses this caller.
    NotAsked,
    /// An agent answers on TCP, which does not tell its process.
    Unknown,
    /// Process id.
    Id(u32),
}

impl AgentProcess {
    /// Returns the process by the response of [`query`]; `None` for a configuration without a local API.
    pub(crate) fn from_response(response: Option<&Result<Option<RunningAgent>, Problem>>) -> Self {
        match response {
            Some(Ok(Some(agent))) => agent.process,
            Some(Ok(None)) => Self::NotRunning,
            Some(Err(_)) | None => Self::NotAsked,
        }
    }
}

/// Status and metrics of a running agent.
#[derive(Debug, Clone)]
pub(crate) struct RunningAgent {
    /// Its process.
    pub process: AgentProcess,
    /// `GET /agent/v1/status`.
    pub status: Value,
    /// `GET /metrics`.
    pub metrics: String,
}

/// Time limit of a response; the requests do not wait.
const RESPONSE_TIME: Duration = Duration::from_secs(3);

/// Asks the agent for its status and metrics. `None` if no agent answers.
///
/// # Errors
/// Something answers there that refuses this caller, or is not an agent.
pub(crate) async fn query(contact: &AgentContact) -> Result<Option<RunningAgent>, Problem> {
    let options = ClientOptions {
        address: contact.address.clone(),
        tls: TlsOptions::default(),
        proxy: ProxyMode::Direct,
        connect_timeout: Duration::from_secs(2),
        response_timeout: RESPONSE_TIME,
    };
    let client = options.build().map_err(|error| Problem::new(error.code(), error.to_string()))?;
    let (status, body) = match get(&client, contact, "agent/v1/status").await {
        Ok(response) => response,
        Err(TransportError::Connect { cause, .. }) if cause.contains("Permission denied") => {
            let message = format!("the agent's {} refuses this user", client.server());
            return Err(Problem::new(ErrorCode::AgentSocketDenied, message).with_remedy("sudo keyward doctor"));
        }
        Err(TransportError::Connect { .. }) => return Ok(None),
        Err(error) => return Err(Problem::new(error.code(), error.to_string())),
    };
    if matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let reason =
            body["errors"][0].as_str().map(|reason| format!(": {}", escape_controls(reason))).unwrap_or_default();
        let message = format!("the agent at {} answers {status}{reason}", client.server());
        return Err(Problem::new(ErrorCode::AgentRefused, message));
    }
    let parsed: Option<Value> =
        serde_json::from_slice(&body).ok().filter(|status: &Value| status["version"].is_string());
    let Some(parsed) = parsed.filter(|_| status.is_success()) else {
        let message = format!("{} responds with {status}, which is not keyward's API", client.server());
        return Err(Problem::new(ErrorCode::AddressInUse, message));
    };
    let metrics = match get(&client, contact, "metrics").await {
        Ok((StatusCode::OK, body)) => String::from_utf8_lossy(&body).into_owned(),
        _ => String::new(),
    };
    let pid = match &contact.address {
        ServerAddress::Unix(path) => peer_of(path).await,
        ServerAddress::Url(_) => None,
    };
    let process = pid.map_or(AgentProcess::Unknown, AgentProcess::Id);
    Ok(Some(RunningAgent { process, status: parsed, metrics }))
}

async fn get(client: &Client, contact: &AgentContact, path: &str) -> Result<(StatusCode, Vec<u8>), TransportError> {
    let mut request = client.request(Method::GET, path).header("x-vault-request", "true");
    if let Some(key) = &contact.key {
        request = request.header("x-vault-token", key.expose_secret());
    }
    let response = client.send(request).await?;
    Ok((response.status, response.body))
}

/// Returns the process that listens on a unix socket.
async fn peer_of(path: &Path) -> Option<u32> {
    let stream = tokio::net::UnixStream::connect(path).await.ok()?;
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
}

/// Reports whether an agent runs, its release, and components that are not ready. `None` means that the configuration has
/// no local API. `unit` is the name of the service's unit, for advice.
pub(crate) fn record_agent(agent: Option<&Result<Option<RunningAgent>, Problem>>, unit: &str, steps: &mut Steps) {
    let unit = unit.strip_suffix(".service").unwrap_or(unit);
    let agent = match agent {
        Some(Ok(Some(agent))) => agent,
        Some(Ok(None)) => {
            steps.record("status", Err(Problem::skipped("no agent is running; checks that need one are skipped")));
            return;
        }
        Some(Err(problem)) => {
            steps.record("status", Err(problem.clone()));
            return;
        }
        None => {
            let message = "the configuration has no local API to ask; checks that need it are skipped";
            steps.record("status", Err(Problem::skipped(message)));
            return;
        }
    };
    let ready = agent.status["ready"] == true;
    let process = match agent.process {
        AgentProcess::Id(pid) => format!(" as process {pid}"),
        AgentProcess::NotRunning | AgentProcess::NotAsked | AgentProcess::Unknown => String::new(),
    };
    let components = agent.status["components"].as_object();
    let missing = components.into_iter().flatten().filter(|(_, component)| component["ready"] == false);
    let problems: Vec<Problem> = missing.map(|(name, component)| component_problem(name, component)).collect();
    if ready || problems.is_empty() {
        steps.record(
            "status",
            Ok(format!("the agent runs{process} and is {}", if ready { "ready" } else { "starting" })),
        );
    }
    for problem in problems {
        steps.record("status", Err(problem));
    }
    if let Some(error) = agent.status["reload_error"].as_str() {
        let message = format!("the last reload failed; the previous configuration stays in use: {error}");
        let verb = if agent.status["reload_needs_restart"] == true { "restart" } else { "reload" };
        let fix = format!("sudo -u keyward keyward check --host, then systemctl {verb} {unit}");
        steps.record("reload", Err(Problem::new(None, message).with_remedy(fix)));
    }
    if let Some(result) = check_sandbox(&agent.status["sandbox"], unit) {
        steps.record("sandbox", result);
    }
    steps.record("version", compare_versions(agent.status["version"].as_str().unwrap_or_default(), unit));
}

fn component_problem(name: &str, component: &Value) -> Problem {
    let reason = component["reason"].as_str().unwrap_or("not ready");
    let code = component["code"].as_str().and_then(|code| code.parse().ok()).unwrap_or(ErrorCode::AgentNotReady);
    let problem = Problem::new(code, format!("{name}: {reason}"));
    if component["required"] == true { problem } else { problem.warning() }
}

/// Checks the sandbox that the agent reports; `None` for an agent that reports none.
fn check_sandbox(sandbox: &Value, unit: &str) -> Option<StepResult> {
    let list = |key: &str, separator: &str| {
        let texts = sandbox[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(separator)
    };
    let mode = sandbox["mode"].as_str()?;
    let missing = list("missing", "; ");
    if mode == "off" {
        let problem = Problem::new(None, "the agent runs without its sandbox (agent.sandbox is \"off\")").warning();
        return Some(Err(problem.with_remedy(format!("remove agent.sandbox, then systemctl restart {unit}"))));
    }
    let denied = list("denied_replacements", ", ");
    if missing.is_empty() && !denied.is_empty() {
        let problem =
            Problem::new(None, format!("the agent's sandbox denies files that replace these: {denied}")).warning();
        return Some(Err(problem.with_remedy(format!("give each a folder of its own, then systemctl restart {unit}"))));
    }
    if missing.is_empty() {
        return Some(Ok(format!("the agent's sandbox is complete: {}", list("parts", ", "))));
    }
    Some(Err(Problem::new(None, format!("the agent's sandbox is incomplete: {missing}")).warning()))
}

/// Turns the warning of a setting that `keyward dev` makes itself into a check that was skipped.
pub(crate) fn excuse_demo(result: CheckResult) -> CheckResult {
    if result.step != "sandbox" {
        return result;
    }
    let message = "`keyward dev` has no sandbox: its emulators need more rights than an agent".to_owned();
    CheckResult { status: CheckStatus::Skipped, message, fix: None, ..result }
}

fn compare_versions(agent_version: &str, unit: &str) -> StepResult {
    let own_version = env!("CARGO_PKG_VERSION");
    if agent_version == own_version {
        return Ok(format!("agent and program are release {own_version}"));
    }
    let message = format!("the agent is release {agent_version}, this program {own_version}");
    Err(Problem::new(ErrorCode::AgentVersion, message).warning().with_remedy(format!("systemctl restart {unit}")))
}

#[cfg(test)]
mod tests;
