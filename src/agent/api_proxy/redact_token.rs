//! The session's token does not leave by an answer: what a look-up tells of it is taken out.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use zeroize::Zeroizing;

use super::answer::{ProxyBody, refuse};
use crate::agent::token::Token;
use crate::http::body_buffer::collect;

/// The answer without the token and its accessor. One that cannot be read is not passed on.
pub(super) async fn redact(answer: Response<ProxyBody>, token: &Token) -> Response<ProxyBody> {
    let (mut parts, body) = answer.into_parts();
    let unread = || refuse(StatusCode::BAD_GATEWAY, "the server's answer about the token cannot be read");
    if parts.headers.contains_key(CONTENT_ENCODING) {
        return unread();
    }
    let Ok(body) = collect(body, MOST).await else { return unread() };
    let body = body.into_bytes();
    let secret = token.secret.secret().expose_secret();
    let body = match without(&body, secret, token.accessor.as_deref()) {
        None => body,
        Some(without) => without.into(),
    };
    if body.windows(secret.len()).any(|found| found == secret.as_bytes()) {
        return unread();
    }
    parts.headers.remove(TRAILER);
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(parts, Either::Right(Full::new(body)))
}

/// The largest answer to a look-up that is read, in bytes.
const MOST: usize = 1024 * 1024;

/// The document with `data.id` and `data.accessor` taken out where they are the token's; `None` where it is none.
fn without(body: &[u8], secret: &str, accessor: Option<&str>) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let data = document.get_mut("data")?.as_object_mut()?;
    let its = data.get("id").and_then(Value::as_str) == Some(secret);
    if its || data.get("accessor").and_then(Value::as_str).is_some_and(|found| Some(found) == accessor) {
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
    fn a_look_up_tells_neither_the_token_nor_its_accessor() {
        let check = |data: Value, wanted: Value| {
            let body = json!({ "data": data, "lease_id": "" }).to_string();
            let found = without(body.as_bytes(), "ours", Some("accessor")).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&found).unwrap()["data"], wanted);
        };
        check(json!({ "id": "ours", "accessor": "accessor", "ttl": 60 }), json!({ "ttl": 60 }));
        check(json!({ "id": "", "accessor": "accessor", "ttl": 60 }), json!({ "ttl": 60 }));
        check(json!({ "id": "other", "accessor": "x" }), json!({ "id": "other", "accessor": "x" }));
        assert_eq!(without(b"{}", "ours", None), None);
        assert_eq!(without(br#"{"errors":["permission denied"]}"#, "ours", None), None);
    }
}
