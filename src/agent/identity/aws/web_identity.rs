//! Exchange of a signed token for credentials of a role: `AssumeRoleWithWebIdentity` of STS
//! (docs.aws.amazon.com, `AssumeRoleWithWebIdentity`).

use std::time::{Duration, SystemTime};

use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use serde::Deserialize;
use url::Url;

use super::credentials::AwsCredentials;
use super::selection::WebIdentity;
use crate::identity::error::AttemptError;
use crate::identity::transport::Transport;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    assume_role_with_web_identity_response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    assume_role_with_web_identity_result: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Outcome {
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// Seconds since 1970.
    expiration: f64,
}

/// Role that a token is exchanged for.
pub(super) struct RoleRequest<'a> {
    pub(super) role_arn: &'a str,
    pub(super) session_name: &'a str,
    /// Lifetime of the credentials; `None` for AWS's default.
    pub(super) duration: Option<Duration>,
}

/// Exchanges the token of a file at STS.
pub(super) async fn request(
    transport: &Transport,
    sts: &Url,
    identity: &WebIdentity,
) -> Result<AwsCredentials, AttemptError> {
    let token =
        secret::read_file(&identity.token_file).map_err(|error| AttemptError::NoAssertion(format_chain(&error)))?;
    let role = RoleRequest { role_arn: &identity.role_arn, session_name: &identity.session_name, duration: None };
    exchange(transport, sts, &role, &token).await
}

/// Exchanges a token at STS.
pub(super) async fn exchange(
    transport: &Transport,
    sts: &Url,
    role: &RoleRequest<'_>,
    token: &SecretString,
) -> Result<AwsCredentials, AttemptError> {
    let transport = transport.with_redacted_secret(token.clone());
    let mut form = vec![
        ("Action", "AssumeRoleWithWebIdentity".to_owned()),
        ("Version", "2011-06-15".to_owned()),
        ("RoleArn", role.role_arn.to_owned()),
        ("RoleSessionName", role.session_name.to_owned()),
        ("WebIdentityToken", token.expose_secret().to_owned()),
    ];
    form.extend(role.duration.map(|duration| ("DurationSeconds", duration.as_secs().to_string())));
    // STS answers XML otherwise.
    let request = transport.http.post(sts.clone()).header("accept", "application/json").form(&form);
    parse(&transport.send(request).await?)
}

fn parse(body: &[u8]) -> Result<AwsCredentials, AttemptError> {
    // The cause may quote the secret.
    let document: Document = serde_json::from_slice(body)
        .map_err(|_| AttemptError::Unreadable(format!("{} bytes that are not credentials of STS", body.len())))?;
    let found = document.assume_role_with_web_identity_response.assume_role_with_web_identity_result.credentials;
    let credentials = AwsCredentials::new(&found.access_key_id, &found.secret_access_key, Some(&found.session_token))
        .map_err(|reason| AttemptError::Unreadable(format!("the response {reason}")))?;
    let expires = Duration::try_from_secs_f64(found.expiration).ok();
    let expires = expires.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    Ok(AwsCredentials { expires, ..credentials })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_sts_is_parsed_and_never_quoted() {
        let body = |secret: &str| {
            format!(
                r#"{{"AssumeRoleWithWebIdentityResponse":{{"AssumeRoleWithWebIdentityResult":{{"Audience":"sts.amazonaws.com",
                "Credentials":{{"AccessKeyId":"ASIA1","Expiration":1500000001.0,"SecretAccessKey":{secret},"SessionToken":"t"}}}}}}}}"#
            )
        };
        let credentials = parse(body("\"s\"").as_bytes()).unwrap();
        assert_eq!(credentials.access_key_id, "ASIA1");
        assert_eq!(credentials.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_001)));
        for bad in ["\"canary canary\"", "[\"canary\"]"] {
            assert!(!parse(body(bad).as_bytes()).unwrap_err().to_string().contains("canary"));
        }
    }
}
