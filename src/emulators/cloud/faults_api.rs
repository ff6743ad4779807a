//! Faults of the emulated cloud as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::faults::{Failure, FaultInjector};
use crate::control_listener::FaultApi;

/// A fault of the emulated cloud, such as `{"refuse": true}` or `"reset"`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// See [`FaultInjector::audience`].
    Audience(Option<String>),
    /// See [`FaultInjector::block_instance`].
    BlockInstance(bool),
    /// See [`FaultInjector::delay`]; in seconds.
    Delay(u64),
    /// See [`FaultInjector::fail_next_tokens_with`].
    FailNextTokens {
        /// Number of requests.
        count: usize,
        /// HTTP status.
        status: u16,
        /// `Retry-After` in seconds.
        retry_after: Option<u64>,
    },
    /// See [`FaultInjector::refuse`].
    Refuse(bool),
    /// See [`FaultInjector::reset`].
    Reset,
    /// See [`FaultInjector::skew`].
    Skew(i64),
    /// See [`FaultInjector::token_life`]; in seconds.
    TokenLife(u64),
}

impl FaultApi for FaultInjector {
    type Fault = Fault;

    async fn inject(&self, fault: Fault) -> Result<Value, &'static str> {
        match fault {
            Fault::Audience(audience) => self.audience(audience),
            Fault::BlockInstance(on) => self.block_instance(on),
            Fault::Delay(seconds) => self.delay(Duration::from_secs(seconds)),
            Fault::FailNextTokens { count, status, retry_after } => {
                // Bounds the memory of the queue.
                self.fail_next_tokens_with(count.min(10_000), &Failure { status, body: None, retry_after });
            }
            Fault::Refuse(on) => self.refuse(on),
            Fault::Reset => self.reset(),
            Fault::Skew(seconds) => self.skew(seconds),
            Fault::TokenLife(seconds) => self.token_life(Duration::from_secs(seconds)),
        }
        self.wait_until_settled().await;
        Ok(self.state())
    }

    fn state(&self) -> Value {
        let settings = self.settings();
        json!({
            "emulated": true, "requests": self.counts(), "refusing": self.is_refusing(),
            "skew_seconds": settings.skew_seconds, "audience": settings.audience,
        })
    }
}
