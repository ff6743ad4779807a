//! Entry points of the fuzz targets `cached`, `go_paths` and `paths`.

use http::Method;

use super::login_path;
use super::path::ApiPath;
use super::query::Query;
use super::rules::Operation;

pub use super::cache::fuzz::{FuzzedCache, FuzzedHit, FuzzedRequest, FuzzedScope};

/// A request as the rules of a listener read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Decoded path below `/v1/`, without a trailing slash.
    pub path: String,
    /// The request reads a list, by its method or its query.
    pub is_list: bool,
    /// Method that the rules match: a `GET` that asks for a list is a `LIST`.
    pub operation: &'static str,
    /// The request may be a login.
    pub is_login: bool,
}

/// Reads a request; `None` if it is refused.
pub fn read_request(method: &Method, path: &str, query: Option<&str>) -> Option<ReadRequest> {
    let path = ApiPath::parse(path).ok()?;
    let operation = Operation::parse(method, Query::parse(query).ok()?).ok()?;
    Some(ReadRequest {
        path: path.without_trailing_slash().to_owned(),
        is_list: operation.is_list(),
        operation: operation.name(),
        is_login: login_path::classify(&path).is_some(),
    })
}
