//! AWS Signature Version 4, for requests without a query
//! (docs.aws.amazon.com, "Create a signed AWS API request").
//!
//! The SDK's crate would bring its own HTTP and credential types for these lines; they are compared with botocore's requests in the tests.

use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign as hmac};
use keyward_machine::secret_string::SecretString;
use time::OffsetDateTime;
use time::macros::format_description;

use super::credentials::AwsCredentials;

/// Request to sign: a POST to the root of a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnsignedRequest<'a> {
    pub(super) host: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// Headers beside `Host`, `X-Amz-Date` and `X-Amz-Security-Token`, which are all signed.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a str,
}

impl UnsignedRequest<'_> {
    /// Signs the request at a time; returns its headers with `Authorization`, which AWS accepts for 15 minutes.
    pub(super) fn sign(self, credentials: &AwsCredentials, now: SystemTime) -> Vec<(String, SecretString)> {
        let now = OffsetDateTime::from(now);
        // Both formats have only fields that a time always has.
        let time = now.format(format_description!("[year][month][day]T[hour][minute][second]Z")).unwrap_or_default();
        let date = time.get(..8).unwrap_or_default();

        let mut headers: Vec<(String, SecretString)> =
            vec![("Host".to_owned(), self.host.into()), ("X-Amz-Date".to_owned(), time.as_str().into())];
        headers.extend(self.headers.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))));
        if let Some(token) = &credentials.session_token {
            headers.push(("X-Amz-Security-Token".to_owned(), token.clone()));
        }
        headers.sort_by_key(|(name, _)| name.to_ascii_lowercase());

        let mut canonical = String::from("POST\n/\n\n");
        for (name, value) in &headers {
            let _ = writeln!(canonical, "{}:{}", name.to_ascii_lowercase(), canonical_value(value.expose_secret()));
        }
        let names: Vec<_> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let names = names.join(";");
        let _ = write!(canonical, "\n{names}\n{}", hex(digest(&SHA256, self.body.as_bytes()).as_ref()));

        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let canonical = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
        let mut key = format!("AWS4{}", credentials.secret_access_key.expose_secret()).into_bytes();
        for part in [date, self.region, self.service, "aws4_request"] {
            key = hmac(&Key::new(HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let signature = hex(hmac(&Key::new(HMAC_SHA256, &key), to_sign.as_bytes()).as_ref());
        let id = &credentials.access_key_id;
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        headers.push(("Authorization".to_owned(), authorization.into()));
        headers
    }
}

/// Removes white space around a value, and makes inner runs of it one space.
fn canonical_value(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Test `post-vanilla` and `post-header-value-trim` like ones of AWS's published suite: credentials, time and result.
    #[test]
    fn the_published_vectors_are_signed_as_published() {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
            expires: None,
        };
        // 2015-08-30T12:36:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_mins(24_015_636);
        let request = |headers, body| UnsignedRequest {
            host: "example.amazonaws.com",
            region: "us-east-1",
            service: "service",
            headers,
            body,
        };
        let check = |request: UnsignedRequest<'_>, expected: &str| {
            let headers = request.sign(&credentials, now);
            assert_eq!(headers.last().unwrap().1.expose_secret(), expected);
        };
        check(
            request(&[], ""),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        );
        check(
            request(&[("Content-Type", "application/x-www-form-urlencoded")], "Param1=value1"),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        );
        assert_eq!(canonical_value("  a   b\tc "), "a b c");
    }
}
