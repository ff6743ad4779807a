//! The status that an agent or a gateway responds with, and that its views read. Unknown fields are ignored and missing ones have
//! defaults, so that a command of one version reads the status of another.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::time_format::format_rfc3339;

/// Status of a process. Never holds a secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// The callers; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallersEntry>,
    /// HCP Terraform or Terraform Enterprise, behind a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformEntry>,
    /// The sandbox; `None` before it is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxEntry>,
    /// Reloads since the start, failed ones too.
    #[serde(skip_serializing_if = "is_zero")]
    pub reloads: u64,
    /// Errors of a new configuration that was rejected, in one line; `None` after a reload that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    /// True if the running process can never apply the new configuration, and a restarted one could.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reload_needs_restart: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Status of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionEntry {
    /// Source of the machine's identity, such as `metadata service (system-assigned)`.
    pub identity: String,
    /// Address of the Vault, OpenBao or Consul-compatible server.
    pub server: String,
    /// Role that it logs in with.
    pub role: String,
    /// True if there is a token to serve.
    pub serving: bool,
    /// Policies of the token.
    pub policies: Vec<String>,
    /// The token can be renewed.
    pub renewable: bool,
    /// Start of the token's lease: its login, or the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Timestamp>,
    /// End of the token; `None` for one without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Next step: `renew`, `login` or `wait`.
    pub next_step: String,
    /// Time of the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_at: Option<Timestamp>,
    /// Time at which the server last confirmed the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Timestamp>,
    /// The call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivityEntry>,
    /// Failed calls in a row.
    pub failures: u32,
    /// Text of the last failure; `None` after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Code of the last failure, such as `KW-1203`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_code: Option<String>,
}

/// Call of a session in flight.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityEntry {
    /// Kind of the call.
    pub kind: ActivityKind,
    /// Start of the call.
    pub since: Option<Timestamp>,
    /// Time at which the call is given up.
    pub deadline: Option<Timestamp>,
}

/// Kind of a session's call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityKind {
    /// Gets the proof of a login from the identity source.
    Proof,
    /// Logs in at the server.
    Login,
    /// Renews the token.
    Renewal,
    /// Looks the token up.
    Lookup,
    /// A call that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// Status of a component.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ComponentEntry {
    /// True if it works.
    pub ready: bool,
    /// True if readiness depends on it.
    pub required: bool,
    /// True if it has been ready at least once since it started.
    pub started: bool,
    /// Reason why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Code of that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Time since which it is in this state.
    pub since: Option<Timestamp>,
    /// File, address or server of the component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Time of the last change of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
    /// Time of the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// True if the output still has its previous content.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keeps_previous: bool,
    /// Fact about it that is no error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Warning about a component that works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<WarningEntry>,
    /// The certificate that it keeps in files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateEntry>,
}

/// A certificate in its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateEntry {
    /// Its names, the first one first.
    pub names: Vec<String>,
    /// Serial number as the tools of its kind print it.
    pub serial: String,
    /// Its beginning.
    pub begins: Option<Timestamp>,
    /// Its end.
    pub expires: Option<Timestamp>,
    /// Time at which it is to be replaced.
    pub replaced_at: Option<Timestamp>,
}

/// Error that may make a component fail later.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WarningEntry {
    /// The warning.
    pub reason: String,
    /// Code of the warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Time of the first warning.
    pub since: Option<Timestamp>,
}

/// Sandbox of the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// Capabilities that are kept.
    pub capabilities: Vec<String>,
}

/// Upstream of the gateway.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlatformEntry {
    /// URL of the platform.
    pub upstream: String,
    /// `hosted` or `self-managed`; `None` until it is known.
    pub product: Option<String>,
    /// Release of Terraform Enterprise.
    pub release: Option<String>,
    /// Version of the API that the platform reports.
    pub api_version: Option<String>,
}

/// Callers of the configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallersEntry {
    /// Facts about processes that the kernel reports, by name.
    pub kernel: BTreeMap<String, bool>,
    /// Each caller, in the order of the rules.
    pub callers: Vec<CallerEntry>,
    /// Requests of processes that no rule matches.
    pub unmatched: u64,
}

/// One caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallerEntry {
    /// Name of the caller.
    pub name: String,
    /// Criteria of the rule.
    pub matches: String,
    /// Routes that it may use.
    pub routes: Vec<String>,
    /// Open connections.
    pub connections: usize,
    /// Requests that were served.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Scope of the tokens of its own; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_scope: Option<String>,
    /// Live tokens of its processes; `None` for a caller without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
}

/// A time in seconds since 1970; RFC 3339, in UTC, in JSON.
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

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_rfc3339((*self).into()))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339).map_err(serde::de::Error::custom)?;
        Ok(Self(time.unix_timestamp()))
    }
}
