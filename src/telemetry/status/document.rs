//! The status that an agent or a gateway responds with, as far as its views read it. Unknown fields are ignored, so that
//! a command of one version reads the status of another.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Status of a process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusDocument {
    /// Version of the program.
    pub version: String,
    /// Time of the document by the clock of the process, which all other times are by.
    pub time: Option<Timestamp>,
    /// Start of the process.
    pub started_at: Option<Timestamp>,
    /// Id of the process.
    pub pid: Option<u32>,
    /// True if everything that is required works.
    pub ready: bool,
    /// The sessions, by name.
    pub sessions: BTreeMap<String, SessionEntry>,
    /// Listeners, outputs and servers, by name such as `sink/web`.
    pub components: BTreeMap<String, ComponentEntry>,
    /// HCP Terraform or Terraform Enterprise, behind a gateway.
    pub platform: Option<PlatformEntry>,
    /// The callers; `None` without any.
    pub callers: Option<CallersEntry>,
    /// The sandbox; `None` without one.
    pub sandbox: Option<SandboxEntry>,
    /// Error of the last reload; `None` after one that succeeded.
    pub reload_error: Option<String>,
}

/// Status of a session.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SessionEntry {
    /// Source of the identity, described.
    pub identity: String,
    /// URL of the server.
    pub server: String,
    /// Role that it logs in with.
    pub role: String,
    /// True if there is a token to serve.
    pub serving: bool,
    /// Policies of the token.
    pub policies: Vec<String>,
    /// Time of the login.
    pub obtained: Option<Timestamp>,
    /// End of the token; `None` for one without.
    pub expires: Option<Timestamp>,
    /// `renewal`, `login` or another step that comes next.
    pub next_step: String,
    /// Time of the next step.
    pub next_step_at: Option<Timestamp>,
    /// Time at which the server last confirmed the token.
    pub last_checked: Option<Timestamp>,
    /// The call in flight.
    pub activity: Option<ActivityEntry>,
    /// Failed calls in a row.
    pub failures: u32,
    /// Text of the last failure; `None` after a success.
    pub last_error: Option<String>,
    /// Code of the last failure, such as `KW-1203`.
    pub last_error_code: Option<String>,
}

/// Call of a session in flight.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ActivityEntry {
    /// `proof`, `login`, `renewal` or `lookup`.
    pub kind: String,
    /// Start of the call.
    pub since: Option<Timestamp>,
    /// Time at which the call is given up.
    pub deadline: Option<Timestamp>,
}

/// Status of a component.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ComponentEntry {
    /// True if it works.
    pub ready: bool,
    /// True if readiness depends on it.
    pub required: bool,
    /// Reason why it is not ready.
    pub reason: Option<String>,
    /// Code of that reason.
    pub code: Option<String>,
    /// Time since which it is in this state.
    pub since: Option<Timestamp>,
    /// File, address or server of the component.
    pub target: Option<String>,
    /// Time of the last change of the output.
    pub updated: Option<Timestamp>,
    /// Time of the next try.
    pub next_try: Option<Timestamp>,
    /// True if the output still has its previous content.
    pub keeps_previous: bool,
    /// Fact about it that is no error.
    pub note: Option<String>,
    /// Warning about a component that works.
    pub warning: Option<WarningEntry>,
}

/// Error that may make a component fail later.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WarningEntry {
    /// The warning.
    pub reason: String,
    /// Code of the warning.
    pub code: Option<String>,
    /// Time of the first warning.
    pub since: Option<Timestamp>,
}

/// Sandbox of the process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SandboxEntry {
    /// Mode of the configuration: `enforce`, `best_effort` or `off`.
    pub mode: String,
    /// Version of the kernel's Landlock; 0 without it.
    pub landlock_abi: u32,
    /// Parts of the sandbox that are in force.
    pub parts: Vec<String>,
    /// Reasons why other parts are not in force.
    pub missing: Vec<String>,
    /// Files of the configuration whose replacements by rename cannot be read.
    pub denied_replacements: Vec<String>,
}

/// Upstream of the gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PlatformEntry {
    /// URL of the platform.
    pub upstream: String,
    /// HCP Terraform or Terraform Enterprise; `None` until it is known.
    pub product: Option<String>,
    /// Release of Terraform Enterprise.
    pub release: Option<String>,
    /// Version of the API that the platform reports.
    pub api_version: Option<String>,
}

/// Callers of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CallersEntry {
    /// Each caller, in the order of the rules.
    pub callers: Vec<CallerEntry>,
    /// Requests of processes that no rule matches.
    pub unmatched: u64,
}

/// One caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CallerEntry {
    /// Name of the caller.
    pub name: String,
    /// Open connections.
    pub connections: u64,
    /// Requests that were served.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Scope of the tokens of its own; `None` without one.
    pub token_scope: Option<String>,
    /// Live tokens of its processes.
    pub tokens: u64,
}

/// A time in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the seconds from this time until `later`; zero if that has passed.
    pub fn until(self, later: Self) -> u64 {
        u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Self(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        Self::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.0).unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339).map_err(serde::de::Error::custom)?;
        Ok(Self(time.unix_timestamp()))
    }
}
