//! Refusals by the rules of callers, with the message for the process. It names what the process is and what its caller
//! lacks, and nothing of other callers.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_http::peer::PeerFacts;

use super::cgroup_path;
use super::grants::CallerRoute;
use super::rule::CallerRule;
use crate::json_response::{Errors, error, retry_later};

/// Refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallerRefusal {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Reason from a fixed set, for metrics and logs.
    pub reason: &'static str,
    /// Message for the process: what it is, and what is needed.
    pub message: String,
    /// Time after which the request may be granted.
    pub retry_after: Option<Duration>,
}

impl CallerRefusal {
    fn new(reason: &'static str, message: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, reason, message, retry_after: None }
    }

    pub(super) fn unidentified() -> Self {
        Self::new("unattested", "this listener did not identify the caller, so no [caller.NAME] applies".to_owned())
    }

    pub(super) fn ended(facts: &PeerFacts) -> Self {
        let message = format!("the process that opened this connection has ended ({}); reconnect", describe(facts));
        Self::new("ended", message)
    }

    pub(super) fn changed(before: &PeerFacts, now: &PeerFacts) -> Self {
        let before = describe(before);
        let now = describe(now);
        let message = format!("the process has changed since it connected, from {before} to {now}; reconnect");
        Self::new("changed", message)
    }

    pub(super) fn unmatched(facts: &PeerFacts) -> Self {
        let facts = describe(facts);
        Self::new("unmatched", format!("no [caller.NAME] matches this process ({facts}); add one that does"))
    }

    pub(super) fn route(rule: &CallerRule, required: &[CallerRoute], facts: &PeerFacts) -> Self {
        let required: Vec<_> = required.iter().map(|route| route.name()).collect();
        let message = format!(
            "caller {} ({}) is not granted route {}; granted: {}",
            rule.name,
            describe(facts),
            required.join(" or "),
            rule.grants.route_names().join(", ")
        );
        Self::new("route", message)
    }

    pub(super) fn session(rule: &CallerRule) -> Self {
        Self::new("session", format!("caller {} may not use that session", rule.name))
    }

    pub(super) fn identity(rule: &CallerRule) -> Self {
        Self::new("identity", format!("caller {} may not use that identity", rule.name))
    }

    pub(super) fn request(rule: &CallerRule, reason: &'static str, action: &str) -> Self {
        Self::new(reason, format!("caller {} may not {action}; see [caller.{}.proxy]", rule.name, rule.name))
    }

    pub(super) fn rate(rule: &CallerRule, per_second: u32, wait: Duration) -> Self {
        let message = format!("caller {} has reached its limit of {per_second} requests per second", rule.name);
        let refusal = Self::new("rate", message);
        Self { status: StatusCode::TOO_MANY_REQUESTS, retry_after: Some(wait), ..refusal }
    }

    pub(super) fn connections(rule: &CallerRule, max: usize) -> Self {
        let message = format!("caller {} has reached its limit of {max} connections", rule.name);
        let refusal = Self::new("connections", message);
        Self { status: StatusCode::TOO_MANY_REQUESTS, retry_after: Some(Duration::from_secs(1)), ..refusal }
    }

    /// Builds the response for the process.
    pub(crate) fn to_response(&self) -> Response<Full<Bytes>> {
        match self.retry_after {
            Some(wait) => retry_later(self.status, &Errors { errors: [&self.message] }, wait),
            None => error(self.status, &self.message),
        }
    }
}

/// Formats what the kernel reports about a process, such as `uid 33, gid 33, pid 812, unit nginx.service`.
pub(super) fn describe(facts: &PeerFacts) -> String {
    let number = |name: &str, value: Option<u32>| {
        value.map_or_else(|| format!("{name} unknown"), |value| format!("{name} {value}"))
    };
    let mut all = vec![number("uid", facts.uid)];
    all.extend(facts.gid.map(|gid| number("gid", Some(gid))));
    all.extend(facts.pid.map(|pid| number("pid", Some(pid))));
    if let Some(cgroup) = facts.cgroup.as_deref() {
        all.push(match (cgroup_path::pod(cgroup), cgroup_path::unit(cgroup)) {
            (Some(uid), _) => format!("pod {uid}"),
            (None, Some(unit)) => format!("unit {unit}"),
            (None, None) => format!("cgroup {}", cgroup.escape_debug()),
        });
    }
    all.extend(facts.executable.as_ref().map(|program| format!("executable {}", program.path.display())));
    all.join(", ")
}
