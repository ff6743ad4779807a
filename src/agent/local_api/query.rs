//! Query parameters of the local API.

use std::borrow::Cow;
use std::time::Duration;

use keyward_telemetry::time_format::format_duration;

/// Bounds `wait`.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(5);

/// Parameters of a request. Their values appear in no log and no error message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'a> {
    pub(super) session: Option<Cow<'a, str>>,
    pub(super) wait: Duration,
    pub(super) after: Option<Cow<'a, str>>,
    pub(super) force: bool,
    pub(super) path: Option<Cow<'a, str>>,
    pub(super) certificate: Option<Cow<'a, str>>,
}

/// Error of a query string, without its values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error("unknown query parameter; this path takes {allowed}")]
    Unknown { allowed: String },
    #[error("the query parameter {name} is repeated")]
    Repeated { name: String },
    #[error("wait is longer than {}", format_duration(MAX_WAIT))]
    TooLong,
    #[error("wait is not a duration such as 30s")]
    InvalidWait,
    #[error("force is neither true nor false")]
    InvalidForce,
}

impl<'a> Query<'a> {
    /// Parses the parameters in `allowed`.
    pub(super) fn parse(text: Option<&'a str>, allowed: &[&str]) -> Result<Self, QueryError> {
        let mut query = Self::default();
        let mut parsed_names = Vec::new();
        for (name, value) in url::form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            if !allowed.contains(&&*name) {
                return Err(QueryError::Unknown { allowed: allowed.join(", ") });
            }
            if parsed_names.contains(&name) {
                return Err(QueryError::Repeated { name: name.into_owned() });
            }
            match &*name {
                "session" => query.session = Some(value),
                "path" => query.path = Some(value),
                "after" => query.after = Some(value),
                "certificate" => query.certificate = Some(value),
                "wait" => query.wait = parse_wait(&value)?,
                "force" => query.force = value.parse().map_err(|_| QueryError::InvalidForce)?,
                _ => {}
            }
            parsed_names.push(name);
        }
        Ok(query)
    }
}

fn parse_wait(text: &str) -> Result<Duration, QueryError> {
    match humantime::parse_duration(text) {
        Ok(wait) if wait <= MAX_WAIT => Ok(wait),
        Ok(_) => Err(QueryError::TooLong),
        Err(_) => Err(QueryError::InvalidWait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_repeated_or_invalid_parameter_refuses_the_query() {
        let check = |text: &str, expected: Result<Query<'_>, &str>| {
            let found = Query::parse(Some(text), &["session", "wait", "after", "force"]);
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{text}");
        };
        check("", Ok(Query::default()));
        check("session=a%20b", Ok(Query { session: Some("a b".into()), ..Query::default() }));
        check(
            "wait=90s&after=00ff",
            Ok(Query { wait: Duration::from_secs(90), after: Some("00ff".into()), ..Query::default() }),
        );
        check("wait=5m", Ok(Query { wait: MAX_WAIT, ..Query::default() }));
        check("force=true", Ok(Query { force: true, ..Query::default() }));
        check("force=1", Err("force is neither true nor false"));
        check("wait=301s", Err("wait is longer than 5m"));
        check("wait=30", Err("wait is not a duration such as 30s"));
        check("session=a&session=a", Err("the query parameter session is repeated"));
        check("sesion=a", Err("unknown query parameter; this path takes session, wait, after, force"));
    }
}
