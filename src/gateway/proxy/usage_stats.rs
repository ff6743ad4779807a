//! Who calls, and how often: kept while the gateway runs, told under the local token.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use http::HeaderMap;
use http::header::USER_AGENT;

use crate::gateway::actions::Called;
use crate::gateway::api_changelog::Change;
use crate::gateway::local_token::Which;

/// What is known of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calls {
    /// How many requests it has made.
    pub(super) requests: u64,
    /// How many of them with the local token before the current one.
    pub(super) with_previous: u64,
    /// When the last one came.
    pub(super) last: SystemTime,
}

/// One kind of call that a change of the platform's history is about, by one client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NoticedCall {
    /// The change's id.
    change: &'static str,
    /// The client that [`Record::note`] has named.
    pub(super) client: String,
    /// The call itself.
    pub(super) called: Called,
}

/// The counts of one [`NoticedCall`].
#[derive(Debug, Clone)]
pub(super) struct Noticed {
    /// The change.
    pub(super) change: &'static Change,
    /// How many calls there were.
    pub(super) calls: u64,
    /// How many of them were sent as the call that replaces them.
    pub(super) replaced: u64,
    /// When the last one came.
    pub(super) last: SystemTime,
}

/// The clients of one gateway, by name, and the calls of theirs that a change is about.
#[derive(Debug, Default)]
pub struct Record {
    clients: Mutex<BTreeMap<String, Calls>>,
    noticed: Mutex<BTreeMap<NoticedCall, Noticed>>,
}

/// So many kinds of calls are told apart by organization and workspace; the others are counted without them.
const NOTICED_CALLS: usize = 1024;

/// So many clients are told apart; the others are counted together.
const CLIENTS: usize = 128;

/// The name of those who are counted together.
const OTHERS: &str = "other";

impl Record {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Calls>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request. Gives the name by which its client is counted.
    pub(super) fn note(&self, headers: &HeaderMap, which: Which, now: SystemTime) -> String {
        let client = client(headers);
        let mut clients = self.lock();
        let old = u64::from(which == Which::Previous);
        let count = |calls: &mut Calls| {
            calls.requests += 1;
            calls.with_previous += old;
            calls.last = now;
        };
        if let Some(calls) = clients.get_mut(client) {
            count(calls);
            return client.to_owned();
        }
        let name = if clients.len() < CLIENTS { client } else { OTHERS };
        count(clients.entry(name.to_owned()).or_insert(Calls { requests: 0, with_previous: 0, last: now }));
        name.to_owned()
    }

    /// Counts a call that a change is about, of a client that [`Record::note`] has named.
    pub(super) fn notice(
        &self,
        change: &'static Change,
        client: &str,
        called: Called,
        replaced: bool,
        now: SystemTime,
    ) {
        let mut all = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = NoticedCall { change: change.id.as_str(), client: client.to_owned(), called };
        if all.len() >= NOTICED_CALLS && !all.contains_key(&key) {
            (key.called.organization, key.called.workspace) = (None, None);
        }
        let noticed = all.entry(key).or_insert(Noticed { change, calls: 0, replaced: 0, last: now });
        noticed.calls += 1;
        noticed.replaced += u64::from(replaced);
        noticed.last = now;
    }

    /// All calls that a change is about.
    pub(super) fn noticed(&self) -> BTreeMap<NoticedCall, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All clients.
    pub(super) fn all(&self) -> BTreeMap<String, Calls> {
        self.lock().clone()
    }
}

/// What a client calls itself: the first product of its `User-Agent` (RFC 9110, 10.1.5), such as `pytfe/1.5.0`.
fn client(headers: &HeaderMap) -> &str {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let product = agent.split([' ', '(']).next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte);
    if product.is_empty() {
        "unknown"
    } else if product.len() <= LONGEST && product.bytes().all(plain) {
        product
    } else {
        OTHERS
    }
}

const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::api_changelog::Changelog;

    #[test]
    fn a_client_is_its_first_product_and_there_is_an_end_to_their_number() {
        let headers = |agent: &str| HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
        let check = |agent: &str, wanted: &str| assert_eq!(client(&headers(agent)), wanted, "{agent}");
        check("go-tfe", "go-tfe");
        check("Terraform/1.11.4 (+https://www.terraform.io) Terraform-Plugin-SDK/2", "Terraform/1.11.4");
        check("pytfe/1.5.0", "pytfe/1.5.0");
        check("", "unknown");
        check("<script>", "other");
        check(&"a".repeat(65), "other");
        assert_eq!(client(&HeaderMap::new()), "unknown");
        let record = Record::default();
        let now = SystemTime::now();
        for number in 0..1000 {
            record.note(&headers(&format!("client/{number}")), Which::Current, now);
        }
        record.note(&headers("client/7"), Which::Previous, now);
        let all = record.all();
        assert_eq!(all.len(), CLIENTS + 1);
        assert_eq!(all["other"].requests, 1000 - u64::try_from(CLIENTS).unwrap());
        assert_eq!((all["client/7"].requests, all["client/7"].with_previous), (2, 1));
    }

    #[test]
    fn there_is_an_end_to_the_number_of_calls_that_are_told_apart() {
        let record = Record::default();
        let change = Changelog::get().changes().next().unwrap();
        for number in 0..3000 {
            let (call, workspace) = ("GET /workspaces/:workspace_id/runs".to_owned(), Some(format!("ws-{number}")));
            let called = Called { call, organization: None, workspace };
            record.notice(change, "go-tfe", called, false, SystemTime::now());
        }
        let all = record.noticed();
        assert_eq!(all.len(), NOTICED_CALLS + 1);
        let rest = all.iter().find(|(key, _)| key.called.workspace.is_none()).unwrap();
        assert_eq!(rest.1.calls, 3000 - u64::try_from(NOTICED_CALLS).unwrap());
    }
}
