//! Faults of the emulated Vault as JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::faults::{CannedResponse, FaultInjector, Operation};
use crate::control_listener::FaultApi;

/// A fault of the emulated Vault, such as `{"away": true}` or `"revoke-all"`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// See [`FaultInjector::go_away`] and [`FaultInjector::come_back`].
    Away(bool),
    /// Answers the next `count` logins with an error.
    FailNextLogins {
        /// Number of logins.
        count: u32,
        /// HTTP status; 500 by default.
        status: Option<u16>,
        /// `Retry-After` in seconds.
        retry_after: Option<u64>,
    },
    /// See [`FaultInjector::garbage`].
    Garbage(bool),
    /// See [`FaultInjector::set_unresponsive`].
    Hang(bool),
    /// See [`FaultInjector::lose_state`].
    LoseState,
    /// See [`FaultInjector::respond_as_openbao`].
    Openbao(bool),
    /// See [`FaultInjector::refuse_renewals`].
    RefuseRenewals(bool),
    /// See [`FaultInjector::revoke_all`].
    RevokeAll,
    /// See [`FaultInjector::skew`].
    Skew(i64),
}

impl FaultApi for FaultInjector {
    type Fault = Fault;

    async fn inject(&self, fault: Fault) -> Result<Value, &'static str> {
        match fault {
            Fault::Away(true) => self.go_away().await,
            Fault::Away(false) => self.come_back().await,
            Fault::FailNextLogins { count, status, retry_after } => {
                let mut response = CannedResponse::error(status.unwrap_or(500), "the emulated server was told to fail");
                response.retry_after = retry_after.map(|seconds| seconds.to_string());
                // Bounds the memory of the queue.
                for _ in 0..count.min(10_000) {
                    self.respond_next(Operation::Login, response.clone());
                }
            }
            Fault::Garbage(on) => self.garbage(on),
            Fault::Hang(on) => self.set_unresponsive(on),
            Fault::LoseState => self.lose_state(),
            Fault::Openbao(on) => self.respond_as_openbao(on),
            Fault::RefuseRenewals(on) => self.refuse_renewals(on),
            Fault::RevokeAll => self.revoke_all(),
            Fault::Skew(seconds) => self.skew(seconds),
        }
        Ok(self.state())
    }

    fn state(&self) -> Value {
        let counts = self.counts();
        let requests =
            Operation::ALL.iter().map(|operation| (operation.name().to_owned(), counts.get(*operation).into()));
        json!({
            "emulated": true, "requests": requests.collect::<Map<String, Value>>(), "tokens": self.tokens(),
            "away": self.is_away(), "skew_seconds": self.skew_seconds(),
        })
    }
}
