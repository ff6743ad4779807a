//! Verification of AWS Signature Version 4 (docs.aws.amazon.com, "Create a signed AWS API request"), as the services of AWS do it: the
//! signature is computed again from the request that arrived.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign as hmac};
use http::{HeaderMap, Method, StatusCode};
use keyward_machine::secret_string::SecretString;
use time::PrimitiveDateTime;
use time::macros::format_description;

/// A request that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignedRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

/// Refusal of STS: its status, code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StsError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl StsError {
    pub(super) fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, code, message: message.into() }
    }

    pub(super) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, message: message.into() }
    }

    fn mismatch(message: impl Into<String>) -> Self {
        Self::forbidden("SignatureDoesNotMatch", message)
    }
}

/// The parts of `Authorization`.
#[derive(Debug)]
pub(super) struct Authorization<'a> {
    pub(super) access_key_id: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    /// Parses the header of a request.
    pub(super) fn parse(headers: &'a HeaderMap) -> Result<Self, StsError> {
        let missing = || StsError::forbidden("MissingAuthenticationToken", "Request is missing Authentication Token");
        let text = headers.get("authorization").ok_or_else(missing)?.to_str().unwrap_or_default();
        let incomplete = |what: &str| {
            StsError::bad_request("IncompleteSignature", format!("Authorization header requires '{what}' parameter."))
        };
        let rest = text.strip_prefix("AWS4-HMAC-SHA256 ").ok_or_else(|| incomplete("Credential"))?;
        let field = |name: &str| {
            let mut fields = rest.split(',').filter_map(|field| field.trim().split_once('='));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(|| incomplete(name))
        };
        let scope: Vec<&str> = field("Credential")?.split('/').collect();
        let [access_key_id, date, region, service, "aws4_request"] = scope.as_slice() else {
            return Err(incomplete("Credential"));
        };
        let signed_headers = field("SignedHeaders")?.split(';').collect();
        Ok(Self { access_key_id, date, region, service, signed_headers, signature: field("Signature")? })
    }

    /// Verifies the signature of a request at a time.
    pub(super) fn verify(
        &self,
        request: SignedRequest<'_>,
        secret_access_key: &SecretString,
        now: SystemTime,
    ) -> Result<(), StsError> {
        self.check_scope(request.headers)?;
        let time = self.check_time(request.headers, now)?;
        for name in request.headers.keys().map(http::HeaderName::as_str) {
            let must_be_signed = name == "host" || name.starts_with("x-amz-");
            if must_be_signed && !self.signed_headers.contains(&name) {
                return Err(StsError::mismatch(format!("'{name}' must be a 'SignedHeader' in the AWS Authorization.")));
            }
        }
        let scope = format!("{}/{}/{}/aws4_request", self.date, self.region, self.service);
        let canonical = hex(digest(&SHA256, self.canonical_request(request).as_bytes()).as_ref());
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
        let mut key = format!("AWS4{}", secret_access_key.expose_secret()).into_bytes();
        for part in [self.date, self.region, self.service, "aws4_request"] {
            key = hmac(&Key::new(HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let signature = hex(hmac(&Key::new(HMAC_SHA256, &key), to_sign.as_bytes()).as_ref());
        verify_slices_are_equal(signature.as_bytes(), self.signature.as_bytes()).map_err(|_| {
            StsError::mismatch(
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
                 Access Key and signing method. Consult the service documentation for details.",
            )
        })
    }

    /// The scope names the service and the region of the host: this stands for the endpoints of all regions.
    fn check_scope(&self, headers: &HeaderMap) -> Result<(), StsError> {
        let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        if self.service != "sts" {
            return Err(StsError::mismatch("Credential should be scoped to correct service: 'sts'. "));
        }
        let expected = match host.strip_prefix("sts.").and_then(|rest| rest.split_once(".amazonaws.com")) {
            Some((region, "" | ".cn")) => region,
            _ => "us-east-1",
        };
        if self.region == expected {
            return Ok(());
        }
        Err(StsError::mismatch("Credential should be scoped to a valid region. "))
    }

    /// Returns `X-Amz-Date` of a request that is at most 15 minutes from `now`.
    fn check_time<'h>(&self, headers: &'h HeaderMap, now: SystemTime) -> Result<&'h str, StsError> {
        let text = headers.get("x-amz-date").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let time = PrimitiveDateTime::parse(text, format).map_err(|_| {
            StsError::bad_request(
                "IncompleteSignature",
                "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.",
            )
        })?;
        if !text.starts_with(self.date) {
            return Err(StsError::mismatch(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date",
            ));
        }
        let time = SystemTime::from(time.assume_utc());
        if time + WINDOW < now {
            return Err(StsError::mismatch(format!(
                "Signature expired: {text} is now earlier than the current time - 15 min."
            )));
        }
        if time > now + WINDOW {
            return Err(StsError::mismatch(format!(
                "Signature not yet current: {text} is still later than the current time + 15 min."
            )));
        }
        Ok(text)
    }

    fn canonical_request(&self, request: SignedRequest<'_>) -> String {
        let SignedRequest { method, path, query, headers, body } = request;
        // Other services than S3 normalize the path; no other path exists here.
        let path = if path.bytes().all(|byte| byte == b'/') { "/" } else { path };
        let mut text = format!("{method}\n{path}\n{query}\n");
        for name in &self.signed_headers {
            let values = headers.get_all(*name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<String> =
                values.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            let _ = writeln!(text, "{name}:{}", values.join(","));
        }
        let _ = write!(text, "\n{}\n{}", self.signed_headers.join(";"), hex(digest(&SHA256, body).as_ref()));
        text
    }
}

/// Time for which AWS accepts a signature, and that its clock may be behind (docs.aws.amazon.com, "Elements of an AWS API request signature").
const WINDOW: Duration = Duration::from_mins(15);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::Value;

    use super::*;

    const BODY: &[u8] = b"Action=GetCallerIdentity&Version=2011-06-15";

    /// Requests that AWS's SDK for Go signed, as `tests/oracles/aws-signatures` recorded them.
    fn recorded() -> Vec<(HeaderMap, SecretString, SystemTime)> {
        let text = include_str!("../../../tests/it/fixtures/aws_signatures.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        let case = |case: &Value| {
            let mut headers = HeaderMap::new();
            for (name, values) in case["headers"].as_object().unwrap() {
                let name = HeaderName::try_from(name.as_str()).unwrap();
                headers.insert(name, HeaderValue::from_str(values[0].as_str().unwrap()).unwrap());
            }
            let url = url::Url::parse(case["url"].as_str().unwrap()).unwrap();
            headers.insert("host", HeaderValue::from_str(url.host_str().unwrap()).unwrap());
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(case["time"].as_u64().unwrap());
            (headers, SecretString::from(case["secret_access_key"].as_str().unwrap()), time)
        };
        cases.iter().map(case).collect()
    }

    fn verify(headers: &HeaderMap, body: &[u8], secret: &SecretString, now: SystemTime) -> Result<(), StsError> {
        let request = SignedRequest { method: &Method::POST, path: "//", query: "", headers, body };
        Authorization::parse(headers)?.verify(request, secret, now)
    }

    #[test]
    fn requests_of_the_sdk_are_accepted_for_15_minutes() {
        let cases = recorded();
        assert!(!cases.is_empty());
        for (headers, secret, time) in cases {
            for (now, is_accepted) in [
                (time, true),
                (time + WINDOW, true),
                (time + WINDOW + Duration::from_secs(1), false),
                (time - WINDOW, true),
                (time - WINDOW - Duration::from_secs(1), false),
            ] {
                assert_eq!(verify(&headers, BODY, &secret, now).is_ok(), is_accepted, "{now:?}");
            }
        }
    }

    #[test]
    fn a_changed_request_is_refused() {
        let code = |result: Result<(), StsError>| result.map_err(|error| error.code);
        for (headers, secret, now) in recorded() {
            assert_eq!(code(verify(&headers, b"Action=Other", &secret, now)), Err("SignatureDoesNotMatch"));
            assert_eq!(code(verify(&headers, BODY, &"other".into(), now)), Err("SignatureDoesNotMatch"));
            let changes = [
                ("host", "sts.example.com", "SignatureDoesNotMatch"),
                ("content-type", "text/plain", "SignatureDoesNotMatch"),
                ("x-amz-security-token", "another", "SignatureDoesNotMatch"),
                ("x-amz-unsigned", "1", "SignatureDoesNotMatch"),
                ("x-amz-date", "20150830", "IncompleteSignature"),
                ("authorization", "Bearer token", "IncompleteSignature"),
                ("authorization", "AWS4-HMAC-SHA256 Credential=A/B/C", "IncompleteSignature"),
            ];
            for (name, value, expected) in changes {
                let mut changed = headers.clone();
                changed.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
                assert_eq!(code(verify(&changed, BODY, &secret, now)), Err(expected), "{name}");
            }
            let mut without = headers.clone();
            without.remove("authorization");
            assert_eq!(code(verify(&without, BODY, &secret, now)), Err("MissingAuthenticationToken"));
        }
    }
}
