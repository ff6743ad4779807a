//! Length, pace and seed of a run, from the environment that `tests/soak` sets.

use std::path::PathBuf;
use std::time::Duration;

/// Sessions that log in to the emulated Vault.
pub(super) const VAULT_SESSIONS: usize = 18;

/// All sessions: those, and two at the ACL server.
pub(super) const SESSIONS: usize = 20;

pub(super) const TEMPLATES: usize = 50;

/// Requests a second through the API proxies.
pub(super) const PROXY_RATE: u32 = 200;

/// Oldest value that the cache may give while the server responds.
pub(super) const MAX_AGE: Duration = Duration::from_secs(10);

/// Oldest value that the cache may give while it does not.
pub(super) const STALE: Duration = Duration::from_mins(1);

/// Life of a token. Its renewal is due with 40 s left: a short fault then costs no login, so that a session's logins last for a run
/// of hours, and a long outage outlives the tokens that it finds near their renewal.
pub(super) const TOKEN: Duration = Duration::from_mins(2);

/// Life of a cached lease; a long outage outlives it.
pub(super) const LEASE: Duration = Duration::from_secs(40);

/// Limit of the server's response, for the agent and its callers.
pub(super) const RESPONSE: Duration = Duration::from_secs(5);

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) length: Duration,
    /// Time from the beginning of a fault to that of the next.
    pub(super) period: Duration,
    pub(super) seed: u64,
    /// The emulated Vault refuses dead tokens in OpenBao's words.
    pub(super) openbao: bool,
    /// Folder of samples and report; `None` keeps neither.
    pub(super) out: Option<PathBuf>,
}

impl Plan {
    /// The run that the environment describes; without it a short one with a fault each four seconds.
    pub(super) fn from_environment() -> Self {
        let number = |name: &str| variable(name).map(|text| text.parse::<f64>().expect("a number"));
        let minutes = number("KEYWARD_SOAK_MINUTES");
        let period = number("KEYWARD_SOAK_PERIOD").or(minutes.map(|_| 60.0));
        let seed = variable("KEYWARD_SOAK_SEED").map(|text| text.parse().expect("a number"));
        Self {
            length: minutes.map_or(Duration::from_secs(16), |minutes| Duration::from_secs_f64(60.0 * minutes)),
            period: Duration::from_secs_f64(period.unwrap_or(4.0)),
            seed: seed.unwrap_or_else(|| u64::from(std::process::id())),
            openbao: variable("KEYWARD_SOAK_OPENBAO").is_some(),
            out: variable("KEYWARD_SOAK_OUT").map(PathBuf::from),
        }
    }

    /// True if the run is as long as its curves need to show growth.
    pub(super) fn is_long(&self) -> bool {
        self.length >= Duration::from_mins(4)
    }

    /// Length of most faults.
    pub(super) fn fault(&self) -> Duration {
        self.period / 4
    }

    /// Length of an outage that outlives leases and some tokens; `None` if the period has no room for it.
    pub(super) fn outage(&self) -> Option<Duration> {
        Some(self.period * 5 / 6).filter(|length| *length > LEASE)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::vars_os().find(|(key, _)| key == name).and_then(|(_, value)| value.into_string().ok())
}

/// Name of a session, its role, its policy and the folder of its secrets.
pub(super) fn session(number: usize) -> String {
    format!("s{number:02}")
}
