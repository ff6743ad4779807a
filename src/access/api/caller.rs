//! Who calls: the token whose secret the request carries.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use super::Rooms;
use super::error::{ApiError, Door};
use crate::access::model::secret::PlainSecret;
use crate::access::service::tokens::Live;

const TOKEN_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-service-token"),
    HeaderName::from_static("x-consul-token"),
    HeaderName::from_static("x-vault-token"),
];

const NAMESPACE_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-service-namespace"),
    HeaderName::from_static("x-consul-namespace"),
    HeaderName::from_static("x-vault-namespace"),
];

/// The caller's token and its secret.
pub(super) async fn caller(
    rooms: &Rooms,
    headers: &HeaderMap,
    uri: &Uri,
    door: Door,
) -> Result<(Live, PlainSecret), ApiError> {
    let secret = presented(headers, uri, door)?.ok_or(ApiError::NoToken)?;
    let live = rooms.tokens.by_secret(&secret).await?.ok_or(ApiError::NoToken)?;
    Ok((live, secret))
}

/// The secret that a request carries: in the query's `token` (at the access-control API's doors), else in a token
/// header, else as a bearer. Empty ones count as absent. Two different ones in the same place are refused.
fn presented(headers: &HeaderMap, uri: &Uri, door: Door) -> Result<Option<PlainSecret>, ApiError> {
    if door == Door::Acl {
        let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let tokens = query.filter(|(name, _)| name == "token").map(|(_, value)| value.into_owned());
        if let Some(secret) = only(tokens)? {
            return Ok(Some(secret));
        }
    }
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).map_err(|_| ApiError::Secrets);
    let tokens: Vec<String> =
        TOKEN_HEADERS.iter().flat_map(|name| headers.get_all(name)).map(text).collect::<Result<_, _>>()?;
    if let Some(secret) = only(tokens.into_iter())? {
        return Ok(Some(secret));
    }
    let values: Vec<String> = headers.get_all(header::AUTHORIZATION).iter().map(text).collect::<Result<_, _>>()?;
    let bearers = values.iter().filter_map(|value| {
        let (scheme, secret) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim().to_owned())
    });
    only(bearers)
}

fn only(mut secrets: impl Iterator<Item = String>) -> Result<Option<PlainSecret>, ApiError> {
    let mut secrets = secrets.by_ref().filter(|secret| !secret.is_empty());
    let Some(first) = secrets.next() else { return Ok(None) };
    if secrets.any(|other| other != first) { Err(ApiError::Secrets) } else { Ok(Some(PlainSecret::presented(&first))) }
}

/// Refuses a request for another namespace than the only one there is: to answer it from `default` would be to answer
/// another question.
pub(super) fn default_namespace(headers: &HeaderMap) -> Result<(), ApiError> {
    let named = NAMESPACE_HEADERS.into_iter().flat_map(|name| headers.get_all(name));
    for name in named.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()) {
        if !matches!(name.trim_matches('/'), "" | "default" | "root") {
            return Err(ApiError::Namespace(name.chars().take(64).collect()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_taken_from_one_place() {
        let check = |door, query: &str, given: &[(&str, &str)], wanted: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let uri = format!("/v1/acl/token/self{query}").parse().unwrap();
            let found = presented(&headers, &uri, door).map_err(|_| ());
            let found = found.map(|secret| secret.map(|secret| secret.reveal().to_owned()));
            assert_eq!(found, wanted.map(|secret| secret.map(str::to_owned)), "{query} {given:?}");
        };
        check(Door::Acl, "", &[], Ok(None));
        check(Door::Acl, "", &[("X-Service-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "", &[("X-Consul-Token", "a")], Ok(Some("a")));
        check(Door::Vault, "", &[("X-Vault-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "", &[("X-Service-Token", ""), ("X-Consul-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "", &[("X-Service-Token", "a"), ("X-Consul-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "", &[("X-Service-Token", "a"), ("X-Consul-Token", "b")], Err(()));
        check(Door::Acl, "", &[("X-Service-Token", "a"), ("X-Service-Token", "b")], Err(()));
        check(Door::Acl, "", &[("Authorization", "bearer a")], Ok(Some("a")));
        check(Door::Acl, "", &[("Authorization", "Basic a")], Ok(None));
        check(Door::Acl, "", &[("Authorization", "Bearer b"), ("X-Service-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "?token=q", &[("X-Service-Token", "a")], Ok(Some("q")));
        check(Door::Acl, "?token=", &[("X-Service-Token", "a")], Ok(Some("a")));
        check(Door::Acl, "?token=q&token=r", &[], Err(()));
        check(Door::Vault, "?token=q", &[], Ok(None));
    }
}
