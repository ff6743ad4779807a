//! Removes the session's token from the response to a look-up of it.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use serde_json::Value;
use zeroize::Zeroizing;

use super::response::{ProxyBody, error_response};
use crate::agent::token::Token;
use crate::http::body_buffer::collect;

/// Returns the response without the token and its accessor, or a 502 where the response cannot be read.
pub(super) async fn redact(response: Response<ProxyBody>, token: &Token) -> Response<ProxyBody> {
    let (mut parts, body) = response.into_parts();
    let unreadable = || error_response(StatusCode::BAD_GATEWAY, "cannot parse the server's lookup response");
    if parts.headers.contains_key(CONTENT_ENCODING) {
        return unreadable();
    }
    let Ok(body) = collect(body, MAX_BODY).await else { return unreadable() };
    let body = body.into_bytes();
    let secret = token.secret.secret().expose_secret();
    let body = match remove_token(&body, secret, token.accessor.as_deref()) {
        None => body,
        Some(redacted) => redacted.into(),
    };
    if body.windows(secret.len()).any(|window| window == secret.as_bytes()) {
        return unreadable();
    }
    parts.headers.remove(TRAILER);
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(parts, Either::Right(Full::new(body)))
}

/// The longest response to a look-up that is read, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// Returns the JSON document without `data.id` and `data.accessor` if they are the token's; `None` if it has no `data`.
fn remove_token(body: &[u8], secret: &str, accessor: Option<&str>) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let data = document.get_mut("data")?.as_object_mut()?;
    let is_token = data.get("id").and_then(Value::as_str) == Some(secret);
    if is_token || data.get("accessor").and_then(Value::as_str).is_some_and(|value| Some(value) == accessor) {
        if let Some(Value::String(id)) = data.remove("id") {
            drop(Zeroizing::new(id));
        }
        data.remove("accessor");
    }
    serde_json::to_vec(&document).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(remove_token(br#"{"errors":["permission denied"]}"#, "ours", None), None);
    }
}
