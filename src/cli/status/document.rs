//! The status that an agent or a gateway responds with, as far as the judgement reads it. Unknown fields are ignored, so that
//! a command of one version reads the status of another.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Status of a process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusDocument {
    pub(super) version: String,
    /// Time of the document by the clock of the process, which all other times are by.
    pub(super) time: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) pid: Option<u32>,
    pub(super) ready: bool,
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) components: BTreeMap<String, Component>,
    pub(super) platform: Option<Platform>,
    pub(super) callers: Option<Callers>,
    pub(super) reload_error: Option<String>,
}

/// Status of a session.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Session {
    pub(super) identity: String,
    pub(super) server: String,
    pub(super) role: String,
    pub(super) serving: bool,
    pub(super) policies: Vec<String>,
    pub(super) obtained: Option<Timestamp>,
    pub(super) expires: Option<Timestamp>,
    pub(super) next_step: String,
    pub(super) next_step_at: Option<Timestamp>,
    pub(super) last_checked: Option<Timestamp>,
    pub(super) activity: Option<Activity>,
    pub(super) failures: u32,
    pub(super) last_error: Option<String>,
    pub(super) last_error_code: Option<String>,
}

/// Call of a session in flight.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Activity {
    /// `proof`, `login`, `renewal` or `lookup`.
    pub(super) kind: String,
    pub(super) since: Option<Timestamp>,
    pub(super) deadline: Option<Timestamp>,
}

/// Status of a component.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Component {
    pub(super) ready: bool,
    pub(super) required: bool,
    pub(super) reason: Option<String>,
    pub(super) code: Option<String>,
    pub(super) since: Option<Timestamp>,
    pub(super) target: Option<String>,
    pub(super) updated: Option<Timestamp>,
    pub(super) next_try: Option<Timestamp>,
    pub(super) keeps_previous: bool,
    pub(super) warning: Option<Warning>,
}

/// Error that may make a component fail later.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Warning {
    pub(super) reason: String,
    pub(super) code: Option<String>,
    pub(super) since: Option<Timestamp>,
}

/// Upstream of the gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Platform {
    pub(super) upstream: String,
    pub(super) product: Option<String>,
    pub(super) release: Option<String>,
    pub(super) api_version: Option<String>,
}

/// Callers of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Callers {
    pub(super) callers: Vec<Caller>,
    pub(super) unmatched: u64,
}

/// One caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) connections: u64,
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// A time in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(pub(super) i64);

impl Timestamp {
    /// Returns the seconds from this time until `later`; zero if that has passed.
    pub(super) fn until(self, later: Self) -> u64 {
        u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339).map_err(serde::de::Error::custom)?;
        Ok(Self(time.unix_timestamp()))
    }
}
