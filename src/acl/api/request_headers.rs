//! Headers of requests that carry the token, the namespace and the partition.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::error::ApiError;
use super::query_string::QueryString;
use crate::model::secret::PlainSecret;

static NAMESPACE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-service-namespace"), HeaderName::from_static("x-consul-namespace")];
static PARTITION_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-service-partition"), HeaderName::from_static("x-consul-partition")];
static TOKEN_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-service-token"),
    HeaderName::from_static("x-consul-token"),
    // A token from a login at the Vault API is valid here too.
    HeaderName::from_static("x-vault-token"),
];

/// Returns the namespace in a header.
pub(super) fn namespace(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    single_header(headers, &NAMESPACE_HEADERS)
}

/// Returns the partition in a header.
pub(super) fn partition(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    single_header(headers, &PARTITION_HEADERS)
}

/// Returns the secret of the caller's token: from `token` in the query, a token header, or a bearer, in this order. Empty
/// values are ignored.
pub(super) fn token_secret(
    headers: &HeaderMap,
    query: &QueryString,
    in_query: bool,
) -> Result<Option<PlainSecret>, ApiError> {
    // Consul's order of precedence.
    if in_query && let Some(secret) = query.get("token")? {
        return Ok(Some(PlainSecret::from_presented(secret)));
    }
    if let Some(secret) = single_header(headers, &TOKEN_HEADERS)? {
        return Ok(Some(PlainSecret::from_presented(&secret)));
    }
    bearer_secret(headers)
}

/// Returns the first word after `Bearer` in `Authorization`.
pub(super) fn bearer_secret(headers: &HeaderMap) -> Result<Option<PlainSecret>, ApiError> {
    let mut presented: Option<&str> = None;
    for value in headers.get_all(header::AUTHORIZATION) {
        let Some((scheme, rest)) = header_text(value)?.split_once(' ') else { continue };
        // As Consul: the scheme in any case (RFC 9110, 11.1), and only the first word after it.
        let Some(secret) = rest.split_whitespace().next() else { continue };
        if scheme.eq_ignore_ascii_case("bearer") && presented.replace(secret).is_some_and(|other| other != secret) {
            return Err(ApiError::ConflictingHeaders("authorization"));
        }
    }
    Ok(presented.map(PlainSecret::from_presented))
}

/// Returns the value of a header with several names; `None` if it is absent or empty. Two different values are an
/// error, and so is one that is not visible ASCII.
pub(super) fn single_header(headers: &HeaderMap, names: &'static [HeaderName]) -> Result<Option<String>, ApiError> {
    let mut first: Option<&str> = None;
    // One pass: looking each name up costs its hash.
    for (_, value) in headers.iter().filter(|(name, _)| names.contains(name)) {
        let value = header_text(value)?;
        // A proxy may check one of two values, and this server use the other.
        if !value.is_empty() && first.replace(value).is_some_and(|other| other != value) {
            return Err(ApiError::ConflictingHeaders(names.first().map_or("", |name| name.as_str())));
        }
    }
    Ok(first.map(str::to_owned))
}

fn header_text(value: &HeaderValue) -> Result<&str, ApiError> {
    value.to_str().map_err(|_| ApiError::HeaderNotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_request_comes_from_one_place() {
        let check = |query: &str, given: &[(&str, &str)], expected: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let found = token_secret(&headers, &QueryString::parse(Some(query)).unwrap(), true).map_err(|_| ());
            let found = found.map(|secret| secret.map(|secret| secret.reveal().to_owned()));
            assert_eq!(found, expected.map(|secret| secret.map(str::to_owned)), "{query} {given:?}");
        };
        check("", &[], Ok(None));
        check("", &[("X-Service-Token", "a")], Ok(Some("a")));
        check("", &[("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", ""), ("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", "a"), ("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", "a"), ("X-Consul-Token", "b")], Err(()));
        check("", &[("X-Service-Token", "a"), ("X-Service-Token", "b")], Err(()));
        check("", &[("Authorization", "bearer a")], Ok(Some("a")));
        check("", &[("Authorization", "Bearer  a b")], Ok(Some("a")));
        check("", &[("Authorization", "Basic a")], Ok(None));
        check("", &[("Authorization", "Bearer b"), ("X-Service-Token", "a")], Ok(Some("a")));
        check("token=q", &[("X-Service-Token", "a")], Ok(Some("q")));
        check("token=", &[("X-Service-Token", "a")], Ok(Some("a")));
        check("token=q&token=r", &[], Err(()));
        let mut headers = HeaderMap::new();
        headers.append("x-service-token", "a".parse().unwrap());
        let query = QueryString::parse(Some("token=q")).unwrap();
        assert_eq!(token_secret(&headers, &query, false).unwrap().unwrap().reveal(), "a");
    }
}
