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
pub(crate) struct StatusDocument {
    pub(crate) version: String,
    /// Time of the document by the clock of the process, which all other times are by.
    pub(crate) time: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) pid: Option<u32>,
    pub(crate) ready: bool,
    pub(crate) sessions: BTreeMap<String, SessionEntry>,
    pub(crate) components: BTreeMap<String, ComponentEntry>,
    pub(crate) platform: Option<PlatformEntry>,
    pub(crate) callers: Option<CallersEntry>,
    pub(crate) sandbox: Option<SandboxEntry>,
    pub(crate) reload_error: Option<String>,
}

/// Status of a session.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SessionEntry {
    pub(crate) identity: String,
    pub(crate) server: String,
    pub(crate) role: String,
    pub(crate) serving: bool,
    pub(crate) policies: Vec<String>,
    pub(crate) obtained: Option<Timestamp>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) next_step: String,
    pub(crate) next_step_at: Option<Timestamp>,
    pub(crate) last_checked: Option<Timestamp>,
    pub(crate) activity: Option<ActivityEntry>,
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) last_error_code: Option<String>,
}

/// Call of a session in flight.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ActivityEntry {
    /// `proof`, `login`, `renewal` or `lookup`.
    pub(crate) kind: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) deadline: Option<Timestamp>,
}

/// Status of a component.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ComponentEntry {
    pub(crate) ready: bool,
    pub(crate) required: bool,
    pub(crate) reason: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) target: Option<String>,
    pub(crate) updated: Option<Timestamp>,
    pub(crate) next_try: Option<Timestamp>,
    pub(crate) keeps_previous: bool,
    pub(crate) warning: Option<WarningEntry>,
}

/// Error that may make a component fail later.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WarningEntry {
    pub(crate) reason: String,
    pub(crate) code: Option<String>,
    pub(crate) since: Option<Timestamp>,
}

/// Sandbox of the process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SandboxEntry {
    pub(crate) mode: String,
    pub(crate) landlock_abi: u32,
    pub(crate) parts: Vec<String>,
    pub(crate) missing: Vec<String>,
    pub(crate) denied_replacements: Vec<String>,
}

/// Upstream of the gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlatformEntry {
    pub(crate) upstream: String,
    pub(crate) product: Option<String>,
    pub(crate) release: Option<String>,
    pub(crate) api_version: Option<String>,
}

/// Callers of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallersEntry {
    pub(crate) callers: Vec<CallerEntry>,
    pub(crate) unmatched: u64,
}

/// One caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallerEntry {
    pub(crate) name: String,
    pub(crate) connections: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Scope of the tokens of its own; `None` without one.
    pub(crate) token_scope: Option<String>,
    /// Live tokens of its processes.
    pub(crate) tokens: u64,
}

/// A time in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

impl Timestamp {
    /// Returns the seconds from this time until `later`; zero if that has passed.
    pub(crate) fn until(self, later: Self) -> u64 {
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
