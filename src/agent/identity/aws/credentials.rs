//! AWS credentials, and the document that holds them.

use std::time::SystemTime;

use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::identity::error::AttemptError;

/// Credentials that sign requests.
#[derive(Debug, Clone)]
pub(crate) struct AwsCredentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: SecretString,
    /// Part of temporary credentials.
    pub(crate) session_token: Option<SecretString>,
    /// End of temporary credentials.
    pub(crate) expires: Option<SystemTime>,
}

/// Credentials as the container endpoints and the metadata service return them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CredentialDocument {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    expiration: Option<String>,
}

impl AwsCredentials {
    /// Creates credentials from the texts of a document, a file or variables.
    ///
    /// # Errors
    /// A text has characters that no credential has.
    pub(super) fn new(
        access_key_id: &str,
        secret_access_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, &'static str> {
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain(access_key_id) || access_key_id.contains(['/', ',']) {
            return Err("has an access key id with characters that none has");
        }
        if !is_plain(secret_access_key) || session_token.is_some_and(|token| !is_plain(token)) {
            return Err("has a secret with characters that none has");
        }
        Ok(Self {
            access_key_id: access_key_id.to_owned(),
            secret_access_key: secret_access_key.into(),
            session_token: session_token.map(SecretString::from),
            expires: None,
        })
    }

    /// Parses the JSON of a container endpoint or the metadata service.
    pub(super) fn parse(body: &[u8]) -> Result<Self, AttemptError> {
        // The cause may quote the secret.
        let document: CredentialDocument = serde_json::from_slice(body)
            .map_err(|_| AttemptError::Unreadable(format!("{} bytes that are not credentials of AWS", body.len())))?;
        let token = document.token.as_deref().filter(|token| !token.is_empty());
        let credentials = Self::new(&document.access_key_id, &document.secret_access_key, token)
            .map_err(|reason| AttemptError::Unreadable(format!("the document {reason}")))?;
        let expires = document.expiration.as_deref().map(|text| OffsetDateTime::parse(text, &Rfc3339));
        let expires =
            expires.transpose().map_err(|_| AttemptError::Unreadable("Expiration is not a time".to_owned()))?;
        Ok(Self { expires: expires.map(SystemTime::from), ..credentials })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_parsed_and_never_quoted() {
        let check = |body: &str, expected: Result<(&str, bool), &str>| {
            let parsed = AwsCredentials::parse(body.as_bytes());
            let found = parsed.as_ref().map(|it| (it.access_key_id.as_str(), it.expires.is_some()));
            let message = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(_), Err(expected)) => assert!(message.contains(expected), "{message}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
            assert!(!message.contains("canary"), "{message}");
        };
        let document = r#"{"Code":"Success","AccessKeyId":"ASIA1","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-01T00:00:00Z"}"#;
        check(document, Ok(("ASIA1", true)));
        check(r#"{"AccessKeyId":"ASIA1","SecretAccessKey":"s"}"#, Ok(("ASIA1", false)));
        check(r#"{"AccessKeyId":"ASIA1","SecretAccessKey":"s","Expiration":"soon"}"#, Err("Expiration is not a time"));
        check(r#"{"AccessKeyId":"ASIA1","SecretAccessKey":"canary canary"}"#, Err("characters that none has"));
        check(r#"{"AccessKeyId":"canary/x","SecretAccessKey":"s"}"#, Err("characters that none has"));
        check(r#"{"SecretAccessKey":"canary"}"#, Err("not credentials of AWS"));
        check("<html>", Err("6 bytes"));
    }
}
