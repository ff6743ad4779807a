//! Usage by client: counted while the gateway runs, reported under the local token.

use std::collections::BTreeMap;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::USER_AGENT;
use parking_lot::Mutex;

use crate::actions::ReportedCall;
use crate::api_changelog::Change;
use crate::local_token::MatchedToken;

/// Counters of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientUsage {
    /// Number of requests.
    pub(super) requests: u64,
    /// Number of requests with the previous local token.
    pub(super) with_previous: u64,
    /// Time of the last request.
    pub(super) last: SystemTime,
}

/// A kind of call that a change of the API is about, by client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeprecatedCallKey {
    /// Id of the change.
    change: &'static str,
    /// Client name, as returned by [`UsageStats::record_request`].
    pub(super) client_name: String,
    /// The call.
    pub(super) reported: ReportedCall,
}

/// Counters of one [`DeprecatedCallKey`].
#[derive(Debug, Clone)]
pub(super) struct DeprecatedCallCount {
    /// The change.
    pub(super) change: &'static Change,
    /// Number of calls.
    pub(super) calls: u64,
    /// Number of calls that were sent as their replacement.
    pub(super) replaced: u64,
    /// Time of the last call.
    pub(super) last: SystemTime,
}

/// Counters by client, and of calls that a change is about.
#[derive(Debug, Default)]
pub struct UsageStats {
    clients: Mutex<BTreeMap<String, ClientUsage>>,
    deprecated_calls: Mutex<BTreeMap<DeprecatedCallKey, DeprecatedCallCount>>,
}

/// Largest number of kinds of calls that are counted by organization and workspace; further ones are counted without them.
const MAX_DEPRECATED_CALLS: usize = 1024;

/// Largest number of clients that are counted separately; further ones are counted together.
const MAX_CLIENTS: usize = 128;

/// Name of all further clients together.
const OTHERS: &str = "other";

impl UsageStats {
    /// Counts a request. Returns the name under which its client is counted.
    pub(super) fn record_request(&self, headers: &HeaderMap, matched: MatchedToken, now: SystemTime) -> String {
        let client_name = client_name(headers);
        let mut clients = self.clients.lock();
        let old = u64::from(matched == MatchedToken::Previous);
        let count = |calls: &mut ClientUsage| {
            calls.requests += 1;
            calls.with_previous += old;
            calls.last = now;
        };
        if let Some(calls) = clients.get_mut(client_name) {
            count(calls);
            return client_name.to_owned();
        }
        let name = if clients.len() < MAX_CLIENTS { client_name } else { OTHERS };
        count(clients.entry(name.to_owned()).or_insert(ClientUsage { requests: 0, with_previous: 0, last: now }));
        name.to_owned()
    }

    /// Counts a call that a change is about, of a client named by [`UsageStats::record_request`].
    pub(super) fn record_deprecated_call(
        &self,
        change: &'static Change,
        client_name: &str,
        reported: ReportedCall,
        replaced: bool,
        now: SystemTime,
    ) {
        let mut all = self.deprecated_calls.lock();
        let mut key = DeprecatedCallKey { change: change.id.as_str(), client_name: client_name.to_owned(), reported };
        if all.len() >= MAX_DEPRECATED_CALLS && !all.contains_key(&key) {
            (key.reported.organization, key.reported.workspace) = (None, None);
        }
        let deprecated_calls =
            all.entry(key).or_insert(DeprecatedCallCount { change, calls: 0, replaced: 0, last: now });
        deprecated_calls.calls += 1;
        deprecated_calls.replaced += u64::from(replaced);
        deprecated_calls.last = now;
    }

    /// Copies the counters of calls that a change is about.
    pub(super) fn deprecated_calls(&self) -> BTreeMap<DeprecatedCallKey, DeprecatedCallCount> {
        self.deprecated_calls.lock().clone()
    }

    /// Copies the counters of all clients.
    pub(super) fn clients(&self) -> BTreeMap<String, ClientUsage> {
        self.clients.lock().clone()
    }
}

/// Returns the first product of `User-Agent` (RFC 9110, 10.1.5), such as `pytfe/1.5.0`.
fn client_name(headers: &HeaderMap) -> &str {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let product = agent.split([' ', '(']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte);
    if product.is_empty() {
        "unknown"
    } else if product.len() <= MAX_CLIENT_NAME && product.bytes().all(plain) {
        product
    } else {
        OTHERS
    }
}

const MAX_CLIENT_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_changelog::Changelog;

    #[test]
    fn clients_are_named_by_user_agent_up_to_a_maximum() {
        let headers = |agent: &str| HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
        let check = |agent: &str, expected: &str| assert_eq!(client_name(&headers(agent)), expected, "{agent}");
        check("go-tfe", "go-tfe");
        check("Terraform/1.11.4 (+https://www.terraform.io) Terraform-Plugin-SDK/2", "Terraform/1.11.4");
        check("pytfe/1.5.0", "pytfe/1.5.0");
        check("", "unknown");
        check("<script>", "other");
        check(&"a".repeat(65), "other");
        assert_eq!(client_name(&HeaderMap::new()), "unknown");
        let usage = UsageStats::default();
        let now = SystemTime::now();
        for number in 0..1000 {
            usage.record_request(&headers(&format!("client/{number}")), MatchedToken::Current, now);
        }
        usage.record_request(&headers("client/7"), MatchedToken::Previous, now);
        let all = usage.clients();
        assert_eq!(all.len(), MAX_CLIENTS + 1);
        assert_eq!(all["other"].requests, 1000 - u64::try_from(MAX_CLIENTS).unwrap());
        assert_eq!((all["client/7"].requests, all["client/7"].with_previous), (2, 1));
    }

    #[test]
    fn distinct_deprecated_calls_are_bounded() {
        let usage = UsageStats::default();
        let change = Changelog::get().changes().next().unwrap();
        for number in 0..3000 {
            let call = "GET /workspaces/:workspace_id/runs".to_owned();
            let workspace = Some(format!("ws-{number}"));
            let reported = ReportedCall { call, organization: None, workspace };
            usage.record_deprecated_call(change, "go-tfe", reported, false, SystemTime::now());
        }
        let all = usage.deprecated_calls();
        assert_eq!(all.len(), MAX_DEPRECATED_CALLS + 1);
        let rest = all.iter().find(|(key, _)| key.reported.workspace.is_none()).unwrap();
        assert_eq!(rest.1.calls, 3000 - u64::try_from(MAX_DEPRECATED_CALLS).unwrap());
    }
}
