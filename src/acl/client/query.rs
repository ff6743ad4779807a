//! What a read may ask for beside its object, and what an answer tells beside it.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::wire::go_span;
use crate::http::client::sanitize;

/// How a read waits, and how fresh its answer must be. The default answers at once, from the leader's own state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Query {
    /// Wait until something has a higher index than this; the [`Reading::index`] of the last answer. 0 does not wait.
    pub index: u64,
    /// Wait at most this long; the server takes 5 minutes where it is not said, and never more than 10. It answers up to
    /// a sixteenth of the time later, so that many who wait do not come back together.
    pub wait: Option<Duration>,
    /// How fresh the answer must be.
    pub consistency: Consistency,
}

/// How fresh a read's answer must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Consistency {
    /// As the server does it where nothing is said.
    #[default]
    Default,
    /// Of the moment of the call, whatever it costs.
    Consistent,
    /// Whatever the answering server has; [`Reading::last_contact`] says how old it may be.
    Stale,
}

impl Query {
    /// The parameters that say so.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = Vec::new();
        if self.index > 0 {
            parameters.push(("index", self.index.to_string()));
            parameters.extend(self.wait.map(|wait| ("wait", go_span(wait))));
        }
        match self.consistency {
            Consistency::Default => {}
            Consistency::Consistent => parameters.push(("consistent", String::new())),
            Consistency::Stale => parameters.push(("stale", String::new())),
        }
        parameters
    }

    /// How long the server may hold the answer back.
    pub(super) fn held_back(&self) -> Duration {
        if self.index == 0 {
            return Duration::ZERO;
        }
        let wait = self.wait.filter(|wait| !wait.is_zero()).unwrap_or(UNSAID).min(MOST);
        wait + wait / 16
    }
}

/// How long a server waits where it is not said, and at most.
const UNSAID: Duration = Duration::from_mins(5);
const MOST: Duration = Duration::from_mins(10);

/// What was read, and what the server said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading<T> {
    /// What was read.
    pub value: T,
    /// The index to wait from with the next [`Query`]; at least 1. One that has gone back tells of a server that was
    /// restored: start again from 0.
    pub index: u64,
    /// Whether the server knows a leader.
    pub known_leader: bool,
    /// How long the answering server has not heard of its leader.
    pub last_contact: Duration,
    /// Whether something was left out that the token may not see.
    pub filtered_by_acls: bool,
    /// Whether something was left out that the server cannot read: its store is damaged.
    pub unreadable: bool,
    /// When the server wrote the answer, by its own clock.
    pub date: Option<SystemTime>,
}

impl Reading<()> {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let number = |name| text(name).and_then(|text| text.parse::<u64>().ok());
        let is_true = |name| text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        Self {
            value: (),
            index: number("x-service-index").unwrap_or_default().max(1),
            known_leader: is_true("x-service-knownleader"),
            last_contact: Duration::from_millis(number("x-service-lastcontact").unwrap_or_default()),
            filtered_by_acls: is_true("x-service-results-filtered-by-acls"),
            unreadable: is_true("x-service-results-unreadable"),
            date: sanitize::parse_date_header(headers),
        }
    }
}

impl<T> Reading<T> {
    /// The same, of another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        let Self { value, index, known_leader, last_contact, filtered_by_acls, unreadable, date } = self;
        Reading { value: change(value), index, known_leader, last_contact, filtered_by_acls, unreadable, date }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_it_was_told_and_waits_as_long_as_the_server_may() {
        let check = |query: Query, wanted: &str, held_back: f64| {
            let parameters: Vec<_> = query.parameters().iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(parameters.join("&"), wanted);
            assert_eq!(query.held_back(), Duration::from_secs_f64(held_back), "{wanted}");
        };
        let waiting = |wait: u64| Query { index: 7, wait: Some(Duration::from_secs(wait)), ..Query::default() };
        check(Query::default(), "", 0.0);
        check(Query { index: 7, ..Query::default() }, "index=7", 318.75);
        check(waiting(16), "index=7&wait=16s", 17.0);
        check(waiting(0), "index=7&wait=0s", 318.75);
        check(waiting(1600), "index=7&wait=1600s", 637.5);
        check(Query { index: 0, ..waiting(16) }, "", 0.0);
        check(Query { consistency: Consistency::Stale, ..Query::default() }, "stale=", 0.0);
        check(Query { consistency: Consistency::Consistent, ..waiting(16) }, "index=7&wait=16s&consistent=", 17.0);
    }
}
