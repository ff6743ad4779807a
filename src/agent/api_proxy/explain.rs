//! Says what the rules of a listener and of a caller decide about a request, for `keyward policy explain`.

use http::Method;

use super::options::ApiProxyOptions;
use super::path::{ApiPath, PathError};
use super::query::Query;
use super::rules::Operation;

/// Checks a request with a path below `/v1/`, by the caller with this rule index.
pub fn explain_request(
    options: &ApiProxyOptions,
    rule_index: usize,
    method: &str,
    path: &str,
) -> Result<(), &'static str> {
    let below = path.trim_start_matches('/');
    let full_path = format!("/v1/{}", below.strip_prefix("v1/").unwrap_or(below));
    let path = ApiPath::parse(&full_path).map_err(|error| match error {
        PathError::OutsideApi => "the path is not below /v1/",
        PathError::Ambiguous(reason) => reason,
    })?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| "the server's API has no such method")?;
    let query = Query::parse(None)?;
    let operation = Operation::parse(&method, query).map_err(|_| "the server's API has no such method")?;
    if options.rules.check(operation, &path).is_err() {
        return Err("the listener does not allow that path and method");
    }
    match options.callers.get(rule_index) {
        Some(Some(limits)) if limits.rules.check(operation, &path).is_ok() => Ok(()),
        Some(Some(_)) => Err("the caller's own rules do not allow that path and method"),
        Some(None) | None => Err("the caller may not use this listener"),
    }
}
