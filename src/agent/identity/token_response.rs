//! Parses responses of Azure's services: token responses, which differ by host, and error responses.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use keyward_machine::secret_string::SecretString;
use serde_json::{Map, Value};

use super::error::{AttemptError, ErrorResponse, quote, redact};

/// Parses a token response. `expires_on` is ignored: its type differs by host, and the token has an `exp` claim.
pub(super) fn parse_token(body: &[u8], secrets: &[SecretString]) -> Result<SecretString, AttemptError> {
    let mut response: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| AttemptError::Unreadable(describe_body(body, secrets)))?;
    match response.remove("access_token") {
        Some(Value::String(token)) if fits_a_header(&token) => Ok(token.into()),
        Some(_) => Err(AttemptError::Unreadable("access_token is not a valid token".to_owned())),
        None => Err(AttemptError::Unreadable("access_token is missing".to_owned())),
    }
}

/// Returns true for the compact form of a signed token (RFC 7515, 7.1): three parts of base64url.
pub(super) fn is_signed_token(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.split('.').count() == 3 && text.split('.').all(is_part)
}

fn fits_a_header(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a response that is not 2xx.
pub(super) fn parse_error(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[SecretString],
) -> ErrorResponse {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(header::RETRY_AFTER).and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
    let challenge = header(header::WWW_AUTHENTICATE).map(str::to_owned);
    let mut refusal = ErrorResponse { status: status.as_u16(), retry_after, challenge, ..ErrorResponse::default() };
    let Ok(Value::Object(document)) = serde_json::from_slice(body) else {
        refusal.is_foreign = true;
        refusal.text = if body.is_empty() { String::new() } else { quote_body(body, secrets) };
        return refusal;
    };
    // Some hosts nest code and message in an `error` object, STS in `Error`.
    let inner = document.get("error").or_else(|| document.get("Error")).and_then(Value::as_object);
    let text = |names: &[&str]| {
        let value = names.iter().find_map(|name| document.get(*name).or_else(|| inner?.get(*name))?.as_str());
        value.unwrap_or_default().to_owned()
    };
    refusal.error = quote(&redact(&text(&["error", "code", "Code"]), secrets), 80);
    let description = text(&["error_description", "message", "Message"]);
    refusal.codes = codes(&document, &description);
    refusal.text = quote(&redact(&description, secrets), 300);
    refusal
}

/// Returns Azure's error numbers: listed, or in the text as `AADSTS` and digits.
fn codes(document: &Map<String, Value>, description: &str) -> Vec<u32> {
    let listed = document.get("error_codes").and_then(Value::as_array).into_iter().flatten();
    let listed = listed.filter_map(|code| u32::try_from(code.as_u64()?).ok());
    let written = description.split("AADSTS").skip(1).filter_map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    });
    let mut codes: Vec<u32> = listed.chain(written).collect();
    codes.dedup();
    codes
}

fn quote_body(body: &[u8], secrets: &[SecretString]) -> String {
    let text = redact(&String::from_utf8_lossy(body), secrets);
    format!("{} bytes that are not a JSON object: {}", body.len(), quote(&text, 200))
}

/// Describes a body without a token. An HTML page is quoted; a truncated token response, which may be a secret, is not.
fn describe_body(body: &[u8], secrets: &[SecretString]) -> String {
    if body.trim_ascii_start().starts_with(b"<") {
        quote_body(body, secrets)
    } else {
        format!("{} bytes that are not a JSON object", body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_is_parsed_with_any_form_of_expires_on() {
        let check = |body: &str, expected: Result<&str, &str>| match (parse_token(body.as_bytes(), &[]), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.expose_secret(), expected),
            (Err(found), Err(expected)) => assert!(found.to_string().contains(expected), "{found}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        };
        check(r#"{"access_token":"t","expires_on":"1506484173"}"#, Ok("t"));
        check(r#"{"access_token":"t","expires_on":1506484173}"#, Ok("t"));
        check(r#"{"access_token":"t","expires_on":"09/14/2017 00:00:00 +00:00"}"#, Ok("t"));
        check(r#"{"access_token":"t"}"#, Ok("t"));
        check(r#"{"access_token":""}"#, Err("no token"));
        check(r#"{"access_token":"a b"}"#, Err("no token"));
        check(r#"{"access_token":7}"#, Err("no token"));
        check(r#"{"error":"x"}"#, Err("missing"));
        check("<html>login here</html>", Err("23 bytes that are not a JSON object: <html>login here</html>"));
        check("[]", Err("not a JSON object"));
        check(r#"{"access_token":"opaque"#, Err("23 bytes that are not a JSON object"));
        assert!(!parse_token(br#"{"access_token":"opaque"#, &[]).unwrap_err().to_string().contains("opaque"));
    }

    #[test]
    fn an_error_response_keeps_the_services_text() {
        let check = |status: u16, body: &str, expected: &str, codes: &[u32]| {
            let found = parse_error(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes(), &[]);
            assert_eq!((found.to_string().as_str(), found.codes.as_slice()), (expected, codes));
        };
        check(
            400,
            r#"{"error":"invalid_request","error_description":"Identity not found"}"#,
            "answered 400 invalid_request: Identity not found",
            &[],
        );
        check(
            401,
            r#"{"error":"invalid_client","error_description":"AADSTS700024: late.\r\nTrace","error_codes":[700024]}"#,
            "answered 401 invalid_client: AADSTS700024: late. Trace",
            &[700_024],
        );
        check(
            400,
            r#"{"error":{"code":"BadRequest","message":"AADSTS500011 unknown"}}"#,
            "answered 400 BadRequest: AADSTS500011 unknown",
            &[500_011],
        );
        check(502, "<p>proxy</p>", "answered 502: 12 bytes that are not a JSON object: <p>proxy</p>", &[]);
        check(500, "", "answered 500", &[]);
    }

    #[test]
    fn a_response_without_a_json_object_is_not_from_azure() {
        for (body, is_foreign) in [("<p>blocked</p>", true), ("", true), ("[]", true), ("{}", false)] {
            let found = parse_error(StatusCode::FORBIDDEN, &HeaderMap::new(), body.as_bytes(), &[]);
            assert_eq!(found.is_foreign, is_foreign, "{body}");
        }
    }

    #[test]
    fn a_long_description_is_truncated_without_leaving_half_of_a_secret() {
        let secrets = [SecretString::from("canary in a mine")];
        for length in 280..310 {
            let padding = "x".repeat(length);
            let json = format!(r#"{{"error_description":"{padding}canary in a mine{padding}"}}"#);
            for body in [json, format!("{}canary+in+a+mine{padding}", &padding[100..])] {
                let found = parse_error(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes(), &secrets);
                assert!(found.text.len() <= 300 && !found.text.contains("can"), "{}", found.text);
            }
        }
    }

    proptest! {
        #[test]
        fn parsing_accepts_any_response(body in "[\\[\\]{}\":,a-zAST0-9_é\\\\]{0,200}", number: u64) {
            let _ = parse_token(body.as_bytes(), &[]);
            let _ = parse_error(StatusCode::BAD_GATEWAY, &HeaderMap::new(), body.as_bytes(), &[]);
            let text = serde_json::json!({"error_codes": [number], "error_description": format!("AADSTS{number}{body}")});
            let _ = parse_error(StatusCode::BAD_GATEWAY, &HeaderMap::new(), text.to_string().as_bytes(), &[]);
        }
    }
}
