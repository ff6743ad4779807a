//! What a query string asks for.

use std::borrow::Cow;
use std::time::Duration;

/// The longest time that a caller may wait for a token.
pub(super) const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The parameters of a request. Their values go into no log and no message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'a> {
    pub(super) session: Option<Cow<'a, str>>,
    pub(super) wait: Duration,
    pub(super) after: Option<Cow<'a, str>>,
}

/// Why a query string is not taken. Holds no value of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error("a query parameter is not known; this path takes {known}")]
    Unknown { known: String },
    #[error("the query parameter {name} is there more than once")]
    Twice { name: String },
    #[error("wait is longer than {}", humantime::format_duration(LONGEST_WAIT))]
    TooLong,
    #[error("wait is no duration such as 30s")]
    NoDuration,
}

impl<'a> Query<'a> {
    /// Takes the parameters in `known` and no others, each at most once.
    pub(super) fn parse(text: Option<&'a str>, known: &[&str]) -> Result<Self, QueryError> {
        let mut query = Self::default();
        let mut seen = Vec::new();
        for (name, value) in url::form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*name) {
                return Err(QueryError::Unknown { known: known.join(", ") });
            }
            if seen.contains(&name) {
                return Err(QueryError::Twice { name: name.into_owned() });
            }
            match &*name {
                "session" => query.session = Some(value),
                "after" => query.after = Some(value),
                "wait" => query.wait = wait(&value)?,
                _ => {}
            }
            seen.push(name);
        }
        Ok(query)
    }
}

fn wait(text: &str) -> Result<Duration, QueryError> {
    match humantime::parse_duration(text) {
        Ok(wait) if wait <= LONGEST_WAIT => Ok(wait),
        Ok(_) => Err(QueryError::TooLong),
        Err(_) => Err(QueryError::NoDuration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_taken_whole_or_refused() {
        let check = |text: &str, wanted: Result<Query<'_>, &str>| {
            let found = Query::parse(Some(text), &["session", "wait", "after"]);
            assert_eq!(found.map_err(|error| error.to_string()), wanted.map_err(str::to_owned), "{text}");
        };
        check("", Ok(Query::default()));
        check("session=a%20b", Ok(Query { session: Some("a b".into()), ..Query::default() }));
        check(
            "wait=90s&after=00ff",
            Ok(Query { wait: Duration::from_secs(90), after: Some("00ff".into()), session: None }),
        );
        check("wait=5m", Ok(Query { wait: LONGEST_WAIT, ..Query::default() }));
        check("wait=301s", Err("wait is longer than 5m"));
        check("wait=30", Err("wait is no duration such as 30s"));
        check("session=a&session=a", Err("the query parameter session is there more than once"));
        check("sesion=a", Err("a query parameter is not known; this path takes session, wait, after"));
    }
}
