//! Credentials of a virtual machine's instance profile, by version 2 of the metadata service
//! (docs.aws.amazon.com, "Use the Instance Metadata Service to access instance metadata"). Version 1, without a session token, is not
//! used: any request that a program can be tricked into would get the credentials.

use http::HeaderValue;
use keyward_machine::secret_string::SecretString;
use url::Url;

use super::credentials::AwsCredentials;
use crate::identity::error::AttemptError;
use crate::identity::transport::Transport;

/// Time to live of the session token, in seconds: one login.
const SESSION_SECONDS: &str = "60";

/// Requests the credentials of the instance profile.
pub(super) async fn request(transport: &Transport, base: &Url) -> Result<AwsCredentials, AttemptError> {
    let put = transport.http.put(with_path(base, "/latest/api/token"));
    let session = transport.send(put.header("x-aws-ec2-metadata-token-ttl-seconds", SESSION_SECONDS)).await?;
    let session = one_line(&session, "a session token")?;
    let mut header = HeaderValue::from_str(&session)
        .map_err(|_| AttemptError::Unreadable("the session token does not fit into a header".to_owned()))?;
    header.set_sensitive(true);
    let transport = transport.with_redacted_secret(SecretString::from(session));
    let get = async |path: &str| {
        let request = transport.http.get(with_path(base, path));
        transport.send(request.header("x-aws-ec2-metadata-token", header.clone())).await
    };
    let role = get(CREDENTIALS).await?;
    let role = one_line(&role, "the name of a role")?;
    // A name may have these characters (docs.aws.amazon.com, "IAM and AWS STS quotas").
    if !role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte)) {
        return Err(AttemptError::Unreadable("the name of a role has characters that none has".to_owned()));
    }
    AwsCredentials::parse(&get(&format!("{CREDENTIALS}{role}")).await?)
}

const CREDENTIALS: &str = "/latest/meta-data/iam/security-credentials/";

fn with_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url
}

/// Returns the first line of a body that has to hold `what`.
fn one_line(body: &[u8], what: &str) -> Result<String, AttemptError> {
    let text = std::str::from_utf8(body).ok().and_then(|text| text.lines().next()).map(str::trim);
    let line = text.filter(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic()));
    line.map(str::to_owned).ok_or_else(|| AttemptError::Unreadable(format!("{} bytes that are not {what}", body.len())))
}
