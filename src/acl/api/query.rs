//! The query string.

use std::time::Duration;

use crate::acl::model::go_duration::GoDuration;
use crate::acl::store::Freshness;

/// A query string, decoded once.
#[derive(Debug, Default)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

/// Why a query cannot be taken, in the words that clients know. Holds no value that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error("Invalid query parameter: {0:?} is given twice with different values")]
    Twice(&'static str),
    #[error("Invalid query string: it is not UTF-8")]
    NoText,
    #[error("Invalid index")]
    Index,
    #[error("Invalid wait time")]
    Wait,
    #[error("Cannot specify ?stale with ?consistent, conflicting semantics.")]
    Modes,
    #[error("Invalid max_stale value {0:?}")]
    MaxStale(String),
    #[error("Invalid Cache-Control header.")]
    CacheControl,
    #[error("Invalid query parameter: {0:?} is not a bool")]
    Flag(&'static str),
}

/// What a read says of blocking and consistency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The index that the answer must be newer than; 0 does not wait.
    pub(super) index: u64,
    /// How long it waits at most, without the random part.
    pub(super) wait: Duration,
    /// The consistency mode.
    pub(super) mode: Mode,
}

/// A consistency mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    #[default]
    Default,
    Consistent,
    Stale,
}

impl Mode {
    /// How it is called in an answer.
    pub(super) const fn word(self) -> &'static str {
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

/// The wait where none is said, and the longest.
const WAIT: Duration = Duration::from_mins(5);
const LONGEST_WAIT: Duration = Duration::from_mins(10);

impl Query {
    /// Decodes a query string.
    ///
    /// # Errors
    /// It is no UTF-8.
    pub(super) fn read(text: Option<&str>) -> Result<Self, QueryError> {
        let text = text.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::default());
        }
        if percent_encoding::percent_decode_str(text).decode_utf8().is_err() {
            return Err(QueryError::NoText);
        }
        Ok(Self { pairs: url::form_urlencoded::parse(text.as_bytes()).into_owned().collect() })
    }

    /// Whether a parameter is there, with whatever value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// What it asks for.
    pub(super) fn asked(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }

    /// The value of a parameter; `None` if it is not there or empty.
    ///
    /// # Errors
    /// It is given twice, with different values.
    pub(super) fn get(&self, name: &'static str) -> Result<Option<&str>, QueryError> {
        let mut values = self.pairs.iter().filter(|(key, value)| key == name && !value.is_empty());
        let Some((_, first)) = values.next() else { return Ok(None) };
        if values.any(|(_, other)| other != first) { Err(QueryError::Twice(name)) } else { Ok(Some(first)) }
    }

    /// A bool: absent, `false` and `0` are false; a parameter without a value is true.
    ///
    /// # Errors
    /// It is something else, or given twice with different values.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool, QueryError> {
        if !self.has(name) {
            return Ok(false);
        }
        match self.get(name)?.map(str::to_ascii_lowercase).as_deref() {
            None | Some("1" | "t" | "true") => Ok(true),
            Some("0" | "f" | "false") => Ok(false),
            Some(_) => Err(QueryError::Flag(name)),
        }
    }

    /// Takes out what it says of blocking and consistency, and the secret: what is left is what is asked, which is the same
    /// however long its caller is ready to wait. `cache_control` is the header of that name.
    ///
    /// # Errors
    /// A parameter is malformed, or two contradict each other.
    pub(super) fn waiting(&mut self, cache_control: Option<&str>) -> Result<Waiting, QueryError> {
        let index = match self.get("index")? {
            None => 0,
            // The parser takes a sign too.
            Some(text) if text.starts_with('+') => return Err(QueryError::Index),
            Some(text) => text.parse().map_err(|_| QueryError::Index)?,
        };
        let wait = match self.get("wait")? {
            None => WAIT,
            Some(text) => {
                let wait = text.parse::<GoDuration>().map_err(|_| QueryError::Wait)?;
                wait.span().filter(|wait| !wait.is_zero()).unwrap_or(WAIT).min(LONGEST_WAIT)
            }
        };
        if let Some(text) = cache_control {
            max_age(text)?;
        }
        let old = self.get("max_stale")?;
        if let Some(text) = old
            && text.parse::<GoDuration>().is_err()
        {
            return Err(QueryError::MaxStale(text.chars().take(64).collect()));
        }
        let mode = match (self.has("stale") || old.is_some(), self.has("consistent")) {
            (true, true) => return Err(QueryError::Modes),
            (true, false) => Mode::Stale,
            (false, true) => Mode::Consistent,
            (false, false) => Mode::Default,
        };
        self.pairs.retain(|(name, _)| !ABOUT_WAITING.contains(&name.as_str()));
        self.pairs.shrink_to_fit();
        Ok(Waiting { index, wait, mode })
    }
}

/// What is about waiting and consistency; and the secret, which is taken from the query before.
const ABOUT_WAITING: [&str; 7] = ["index", "wait", "stale", "max_stale", "consistent", "cached", "token"];

fn max_age(header: &str) -> Result<(), QueryError> {
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

    fn waiting(query: &str) -> Result<Waiting, String> {
        let mut query = Query::read(Some(query)).map_err(|error| error.to_string())?;
        query.waiting(None).map_err(|error| error.to_string())
    }

    #[test]
    fn waits_are_bounded_and_malformed_ones_refused() {
        let check = |query: &str, index: u64, seconds: u64, mode: Mode| {
            let wait = Duration::from_secs(seconds);
            assert_eq!(waiting(query), Ok(Waiting { index, wait, mode }), "{query}");
        };
        check("", 0, 300, Mode::Default);
        check("index=7&wait=2s", 7, 2, Mode::Default);
        check("index=7&wait=0s", 7, 300, Mode::Default);
        check("index=7&wait=-3s", 7, 300, Mode::Default);
        check("index=7&wait=11m", 7, 600, Mode::Default);
        check("index=&wait=", 0, 300, Mode::Default);
        check("stale", 0, 300, Mode::Stale);
        check("max_stale=5s", 0, 300, Mode::Stale);
        check("consistent=", 0, 300, Mode::Consistent);
        check("leader", 0, 300, Mode::Default);
        let refused = |query: &str, reason: &str| assert_eq!(waiting(query), Err(reason.to_owned()), "{query}");
        refused("index=abc", "Invalid index");
        refused("index=-1", "Invalid index");
        refused("index=%2B1", "Invalid index");
        refused("wait=abc", "Invalid wait time");
        refused("stale&consistent", "Cannot specify ?stale with ?consistent, conflicting semantics.");
        refused("max_stale=x", "Invalid max_stale value \"x\"");
        refused("index=1&index=2", "Invalid query parameter: \"index\" is given twice with different values");
        refused("ns=%ff", "Invalid query string: it is not UTF-8");
        assert_eq!(Query::default().waiting(Some("max-age=abc")), Err(QueryError::CacheControl));
        assert!(Query::default().waiting(Some("no-cache, max-age=5")).is_ok());
    }

    #[test]
    fn a_flag_without_a_value_is_set() {
        let check = |query: &str, wanted: Result<bool, QueryError>| {
            assert_eq!(Query::read(Some(query)).unwrap().flag("expanded"), wanted, "{query}");
        };
        check("", Ok(false));
        check("expanded", Ok(true));
        check("expanded=true", Ok(true));
        check("expanded=1", Ok(true));
        check("expanded=false", Ok(false));
        check("expanded=0", Ok(false));
        check("expanded=maybe", Err(QueryError::Flag("expanded")));
    }
}
