//! Removes the session's token from the response to a look-up or a renewal of it.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use keyward_http::body_buffer::collect;
use serde_json::Value;

use super::response::{ProxyBody, error_response};
use super::session_token::TokenHeader;

/// Returns the response without the token and its accessor, or a 502 where the response cannot be read.
pub(super) async fn redact(response: Response<ProxyBody>, token: &TokenHeader) -> Response<ProxyBody> {
    let (mut parts, body) = response.into_parts();
    let unreadable = || {
        error_response(
            StatusCode::BAD_GATEWAY,
            "cannot parse the server's response, which may contain the session's token",
        )
    };
    // The token belongs into the body alone. The request asked for `identity`: a compressed body cannot be searched for the token.
    if parts.headers.contains_key(CONTENT_ENCODING) || token.finder.is_in_headers(&parts.headers) {
        return unreadable();
    }
    let Ok(body) = collect(body, MAX_BODY).await else { return unreadable() };
    let body = body.into_bytes();
    let secret = token.token.secret.secret().expose_secret();
    let body = match remove_token(&body, secret, token.token.accessor.as_deref()) {
        None => body,
        Some(redacted) => redacted.into(),
    };
    // The token may stand in a field that is not known here.
    if body.windows(secret.len()).any(|window| window == secret.as_bytes()) {
        return unreadable();
    }
    // The new body has a length, and no trailers.
    parts.headers.remove(TRAILER);
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(parts, Either::Right(Full::new(body)))
}

/// The longest response that is read, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// Objects of a response that may be the token's, with the fields of the token and of its accessor: a look-up, a renewal, and
/// the token as Consul's API returns it.
const TOKEN_OBJECTS: [(&str, &str, &str); 3] =
    [("/data", "id", "accessor"), ("/auth", "client_token", "accessor"), ("", "SecretID", "AccessorID")];

/// Returns the JSON document without the token and its accessor; `None` if it has no object that may be the token's.
fn remove_token(body: &[u8], secret: &str, accessor: Option<&str>) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let mut has_object = false;
    for (pointer, secret_field, accessor_field) in TOKEN_OBJECTS {
        let Some(Value::Object(object)) = document.pointer_mut(pointer) else { continue };
        has_object |= !pointer.is_empty() || object.contains_key(secret_field);
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        let has_accessor = accessor.is_some() && text(accessor_field) == accessor;
        if text(secret_field) == Some(secret) || has_accessor {
            object.remove(secret_field);
            object.remove(accessor_field);
        }
    }
    if has_object { serde_json::to_vec(&document).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_renewal_and_consuls_own_token_have_neither_the_token_nor_its_accessor() {
        let check = |body: Value, expected: Value| {
            let found = remove_token(body.to_string().as_bytes(), "ours", Some("accessor")).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), expected);
        };
        let renewed = |auth: Value| json!({ "data": null, "auth": auth });
        let ours = json!({ "client_token": "ours", "accessor": "a", "renewable": true });
        check(renewed(ours), renewed(json!({ "renewable": true })));
        let other = json!({ "client_token": "other", "accessor": "b" });
        check(renewed(other.clone()), renewed(other));
        check(json!({ "SecretID": "ours", "AccessorID": "accessor", "Local": true }), json!({ "Local": true }));
        check(json!({ "SecretID": "other", "AccessorID": "b" }), json!({ "SecretID": "other", "AccessorID": "b" }));
    }

    #[test]
    fn a_look_up_returns_neither_the_token_nor_its_accessor() {
        let check = |data: Value, expected: Value| {
            let body = json!({ "data": data, "lease_id": "" }).to_string();
            let found = remove_token(body.as_bytes(), "ours", Some("accessor")).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&found).unwrap()["data"], expected);
        };
        check(json!({ "id": "ours", "accessor": "accessor", "ttl": 60 }), json!({ "ttl": 60 }));
        check(json!({ "id": "", "accessor": "accessor", "ttl": 60 }), json!({ "ttl": 60 }));
        check(json!({ "id": "other", "accessor": "x" }), json!({ "id": "other", "accessor": "x" }));
        assert_eq!(remove_token(b"{}", "ours", None), None);
        assert_eq!(remove_token(br#"{"auth":null,"data":null}"#, "ours", None), None);
        assert_eq!(remove_token(br#"{"errors":["permission denied"]}"#, "ours", None), None);
    }
}
