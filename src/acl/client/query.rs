//! Query options of reads, and the metadata of their responses.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use keyward_http::client::sanitize;

use crate::model::go_json::format_go_duration;

/// Blocking and consistency of a read. The default returns at once, from the leader's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryOptions {
    /// Wait until the index is higher than this, the [`ReadResponse::index`] of the last read. 0 does not wait.
    pub index: u64,
    /// Maximum wait; the server's default is 5 minutes, its limit 10. The server adds up to a sixteenth of it as jitter.
    pub wait: Option<Duration>,
    /// Required freshness of the response.
    pub consistency: ReadConsistency,
}

/// Required freshness of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadConsistency {
    /// Default of the server: the leader's state.
    #[default]
    Default,
    /// Linearizable, at the cost of a round trip to a quorum.
    Consistent,
    /// State of any server; [`ReadResponse::last_contact`] is its age.
    Stale,
}

impl QueryOptions {
    /// Returns the options as query parameters.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = Vec::new();
        if self.index > 0 {
            parameters.push(("index", self.index.to_string()));
            parameters.extend(self.wait.map(|wait| ("wait", format_go_duration(wait))));
        }
        match self.consistency {
            ReadConsistency::Default => {}
            ReadConsistency::Consistent => parameters.push(("consistent", String::new())),
            ReadConsistency::Stale => parameters.push(("stale", String::new())),
        }
        parameters
    }

    /// Returns the longest time for which the server may delay the response.
    pub(super) fn server_wait(&self) -> Duration {
        if self.index == 0 {
            return Duration::ZERO;
        }
        let wait = self.wait.filter(|wait| !wait.is_zero()).unwrap_or(DEFAULT_WAIT).min(MAX_WAIT);
        wait + wait / 16
    }
}

/// Default and maximum wait of the server.
const DEFAULT_WAIT: Duration = Duration::from_mins(5);
const MAX_WAIT: Duration = Duration::from_mins(10);

/// Value of a read with the metadata of the response's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadResponse<T> {
    /// Decoded body of the response.
    pub value: T,
    /// Index for the next [`QueryOptions`], at least 1. A lower one than before means that the server was restored: start from 0.
    pub index: u64,
    /// True if the server knows a leader.
    pub known_leader: bool,
    /// Time since the server's last contact with its leader.
    pub last_contact: Duration,
    /// True if records were omitted that the token may not see.
    pub filtered_by_acls: bool,
    /// True if records were omitted that the server cannot read: its store is damaged.
    pub unreadable: bool,
    /// Time of the response by the server's clock.
    pub date: Option<SystemTime>,
}

impl ReadResponse<()> {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        // keyward's server sends each header under both names.
        let header = |prefix: &str, name: &str| headers.get(format!("{prefix}{name}"));
        let text = |name| header("x-service-", name).or_else(|| header("x-consul-", name))?.to_str().ok();
        let number = |name| text(name).and_then(|text| text.parse::<u64>().ok());
        let is_true = |name| text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        Self {
            value: (),
            index: number("index").unwrap_or_default().max(1),
            known_leader: is_true("knownleader"),
            last_contact: Duration::from_millis(number("lastcontact").unwrap_or_default()),
            filtered_by_acls: is_true("results-filtered-by-acls"),
            unreadable: is_true("results-unreadable"),
            date: sanitize::parse_date_header(headers),
        }
    }
}

impl<T> ReadResponse<T> {
    /// Converts the value, keeping the metadata.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> ReadResponse<U> {
        let Self { value, index, known_leader, last_contact, filtered_by_acls, unreadable, date } = self;
        ReadResponse { value: change(value), index, known_leader, last_contact, filtered_by_acls, unreadable, date }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_options_become_parameters_and_bound_the_wait() {
        let check = |query: QueryOptions, expected: &str, server_wait: f64| {
            let parameters: Vec<_> = query.parameters().iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(parameters.join("&"), expected);
            assert_eq!(query.server_wait(), Duration::from_secs_f64(server_wait), "{expected}");
        };
        let waiting =
            |wait: u64| QueryOptions { index: 7, wait: Some(Duration::from_secs(wait)), ..QueryOptions::default() };
        check(QueryOptions::default(), "", 0.0);
        check(QueryOptions { index: 7, ..QueryOptions::default() }, "index=7", 318.75);
        check(waiting(16), "index=7&wait=16s", 17.0);
        check(waiting(0), "index=7&wait=0s", 318.75);
        check(waiting(1600), "index=7&wait=1600s", 637.5);
        check(QueryOptions { index: 0, ..waiting(16) }, "", 0.0);
        check(QueryOptions { consistency: ReadConsistency::Stale, ..QueryOptions::default() }, "stale=", 0.0);
        check(
            QueryOptions { consistency: ReadConsistency::Consistent, ..waiting(16) },
            "index=7&wait=16s&consistent=",
            17.0,
        );
    }
}
