//! Query strings of the API, and the parameters of blocking queries.

use std::time::Duration;

use crate::model::go_duration::GoDuration;
use crate::store::Freshness;

/// Decoded query string.
#[derive(Debug, Default)]
pub(super) struct QueryString {
    pairs: Vec<(String, String)>,
}

/// Error of a query string, with Consul's texts where it has one. Holds no value that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error("Invalid query parameter: {0:?} is given twice with different values")]
    Conflicting(&'static str),
    #[error("Invalid query string: it is not UTF-8")]
    NotUtf8,
    #[error("Invalid index")]
    Index,
    #[error("Invalid wait time")]
    Wait,
    #[error("Cannot specify ?stale with ?consistent, conflicting semantics.")]
    ConflictingModes,
    #[error("Invalid max_stale value {0:?}")]
    MaxStale(String),
    #[error("Invalid Cache-Control header.")]
    CacheControl,
    #[error("Invalid query parameter: {0:?} is not a bool")]
    NotABool(&'static str),
}

/// Parameters of a read for blocking and consistency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockingQuery {
    /// The response must have a higher index than this; 0 does not wait.
    pub(super) index: u64,
    /// Maximum wait, without the jitter.
    pub(super) wait: Duration,
    pub(super) mode: ConsistencyMode,
}

/// Consistency mode of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum ConsistencyMode {
    #[default]
    Default,
    Consistent,
    Stale,
}

impl ConsistencyMode {
    /// Name of the mode in the response's headers.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "leader",
            Self::Consistent => "consistent",
            Self::Stale => "stale",
        }
    }

    pub(super) const fn freshness(self) -> Freshness {
        match self {
            Self::Default | Self::Consistent => Freshness::Linearizable,
            Self::Stale => Freshness::Stale,
        }
    }
}

/// Wait of a blocking query without `wait`, and the longest wait; both are Consul's.
const DEFAULT_WAIT: Duration = Duration::from_mins(5);
const MAX_WAIT: Duration = Duration::from_mins(10);

impl QueryString {
    /// Decodes a query string.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, QueryError> {
        let text = text.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::default());
        }
        if percent_encoding::percent_decode_str(text).decode_utf8().is_err() {
            return Err(QueryError::NotUtf8);
        }
        Ok(Self { pairs: url::form_urlencoded::parse(text.as_bytes()).into_owned().collect() })
    }

    /// True if the parameter is present, with or without a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// Encodes the query string again, as part of a cache key.
    pub(super) fn encode(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }

    /// Returns the value of a parameter; `None` if it is absent or empty. Two different values are an error.
    pub(super) fn get(&self, name: &'static str) -> Result<Option<&str>, QueryError> {
        // Consul skips empty values. Of two different ones, a proxy that checks requests may see the other.
        let mut values = self.pairs.iter().filter(|(key, value)| key == name && !value.is_empty());
        let Some((_, first)) = values.next() else { return Ok(None) };
        if values.any(|(_, other)| other != first) { Err(QueryError::Conflicting(name)) } else { Ok(Some(first)) }
    }

    /// Returns the value of a bool parameter; one without a value is true, an absent one is false.
    pub(super) fn parse_flag(&self, name: &'static str) -> Result<bool, QueryError> {
        if !self.has(name) {
            return Ok(false);
        }
        match self.get(name)?.map(str::to_ascii_lowercase).as_deref() {
            None | Some("1" | "t" | "true") => Ok(true),
            Some("0" | "f" | "false") => Ok(false),
            Some(_) => Err(QueryError::NotABool(name)),
        }
    }

    /// Removes the parameters for blocking, consistency and the token, so that the rest identifies the request in the response
    /// cache however long the caller waits. `cache_control` is the header of that name.
    pub(super) fn take_blocking_query(&mut self, cache_control: Option<&str>) -> Result<BlockingQuery, QueryError> {
        let index = match self.get("index")? {
            None => 0,
            // The integer parser accepts a sign.
            Some(text) if text.starts_with('+') => return Err(QueryError::Index),
            Some(text) => text.parse().map_err(|_| QueryError::Index)?,
        };
        let wait = match self.get("wait")? {
            None => DEFAULT_WAIT,
            Some(text) => {
                let wait = text.parse::<GoDuration>().map_err(|_| QueryError::Wait)?;
                // As Consul: zero and negative waits are the default, and longer ones than the maximum are cut.
                wait.to_duration().filter(|wait| !wait.is_zero()).unwrap_or(DEFAULT_WAIT).min(MAX_WAIT)
            }
        };
        // The directives have no effect here, but Consul refuses malformed ones.
        if let Some(text) = cache_control {
            check_cache_control(text)?;
        }
        let max_stale = self.get("max_stale")?;
        if let Some(text) = max_stale
            && text.parse::<GoDuration>().is_err()
        {
            return Err(QueryError::MaxStale(text.chars().take(64).collect()));
        }
        // `max_stale` implies `stale`, as in Consul.
        let mode = match (self.has("stale") || max_stale.is_some(), self.has("consistent")) {
            (true, true) => return Err(QueryError::ConflictingModes),
            (true, false) => ConsistencyMode::Stale,
            (false, true) => ConsistencyMode::Consistent,
            (false, false) => ConsistencyMode::Default,
        };
        self.pairs.retain(|(name, _)| !BLOCKING_PARAMETERS.contains(&name.as_str()));
        self.pairs.shrink_to_fit();
        Ok(BlockingQuery { index, wait, mode })
    }
}

/// Parameters for blocking and consistency, and the token, which is read before them.
const BLOCKING_PARAMETERS: [&str; 7] = ["index", "wait", "stale", "max_stale", "consistent", "cached", "token"];

fn check_cache_control(header: &str) -> Result<(), QueryError> {
    for directive in header.split(',').map(str::trim) {
        if let Some(("max-age" | "stale-if-error", seconds)) = directive.split_once('=')
            && seconds.parse::<u64>().is_err()
        {
            return Err(QueryError::CacheControl);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_blocking_query(query: &str) -> Result<BlockingQuery, String> {
        let mut query = QueryString::parse(Some(query)).map_err(|error| error.to_string())?;
        query.take_blocking_query(None).map_err(|error| error.to_string())
    }

    #[test]
    fn waits_are_bounded_and_malformed_parameters_refused() {
        let check = |query: &str, index: u64, seconds: u64, mode: ConsistencyMode| {
            let wait = Duration::from_secs(seconds);
            assert_eq!(take_blocking_query(query), Ok(BlockingQuery { index, wait, mode }), "{query}");
        };
        check("", 0, 300, ConsistencyMode::Default);
        check("index=7&wait=2s", 7, 2, ConsistencyMode::Default);
        check("index=7&wait=0s", 7, 300, ConsistencyMode::Default);
        check("index=7&wait=-3s", 7, 300, ConsistencyMode::Default);
        check("index=7&wait=11m", 7, 600, ConsistencyMode::Default);
        check("index=&wait=", 0, 300, ConsistencyMode::Default);
        check("stale", 0, 300, ConsistencyMode::Stale);
        check("max_stale=5s", 0, 300, ConsistencyMode::Stale);
        check("consistent=", 0, 300, ConsistencyMode::Consistent);
        check("leader", 0, 300, ConsistencyMode::Default);
        let refused =
            |query: &str, reason: &str| assert_eq!(take_blocking_query(query), Err(reason.to_owned()), "{query}");
        refused("index=abc", "Invalid index");
        refused("index=-1", "Invalid index");
        refused("index=%2B1", "Invalid index");
        refused("wait=abc", "Invalid wait time");
        refused("stale&consistent", "Cannot specify ?stale with ?consistent, conflicting semantics.");
        refused("max_stale=x", "Invalid max_stale value \"x\"");
        refused("index=1&index=2", "Invalid query parameter: \"index\" is given twice with different values");
        refused("ns=%ff", "Invalid query string: it is not UTF-8");
        assert_eq!(QueryString::default().take_blocking_query(Some("max-age=abc")), Err(QueryError::CacheControl));
        assert!(QueryString::default().take_blocking_query(Some("no-cache, max-age=5")).is_ok());
    }

    #[test]
    fn a_bool_parameter_without_a_value_is_true() {
        let check = |query: &str, expected: Result<bool, QueryError>| {
            assert_eq!(QueryString::parse(Some(query)).unwrap().parse_flag("expanded"), expected, "{query}");
        };
        check("", Ok(false));
        check("expanded", Ok(true));
        check("expanded=true", Ok(true));
        check("expanded=1", Ok(true));
        check("expanded=false", Ok(false));
        check("expanded=0", Ok(false));
        check("expanded=maybe", Err(QueryError::NotABool("expanded")));
    }
}
