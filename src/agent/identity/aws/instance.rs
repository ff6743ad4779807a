//! Credentials of a virtual machine's instance profile, by version 2 of the metadata service
//! (docs.aws.amazon.com, "Use the Instance Metadata Service to access instance metadata"). Version 1, without a session token, is not
//! used: any request that a program can be tricked into would get the credentials.

use http::HeaderValue;
use keyward_machine::secret_string::SecretString;
use serde_json::Value;
use url::Url;

use super::credentials::AwsCredentials;
use super::endpoints::AwsEndpoints;
use crate::identity::error::AttemptError;
use crate::identity::metadata::MACHINE_LIMIT;
use crate::identity::transport::Transport;

/// Time to live of the session token, in seconds: one login.
const SESSION_SECONDS: &str = "60";

/// Requests the credentials of the instance profile.
pub(super) async fn request(transport: &Transport, base: &Url) -> Result<AwsCredentials, AttemptError> {
    let session = Session::open(transport, base).await?;
    let role = session.role().await?;
    AwsCredentials::parse(&session.get(&format!("{CREDENTIALS}{role}")).await?)
}

/// Account and IAM role of a virtual machine of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsMachine {
    /// Number of the account.
    pub account: String,
    /// Name of the role of the instance profile, without path.
    pub role: String,
}

/// Returns what the metadata service says of this machine; `None` if nothing usable answers there within a second.
pub async fn aws_machine(endpoints: &AwsEndpoints) -> Option<AwsMachine> {
    let asked = async {
        let session = Session::open(Transport::machine().ok()?, &endpoints.metadata).await.ok()?;
        let role = session.role().await.ok()?;
        let document: Value = serde_json::from_slice(&session.get(DOCUMENT).await.ok()?).ok()?;
        let account = document.get("accountId")?.as_str()?;
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        is_account.then(|| AwsMachine { account: account.to_owned(), role })
    };
    tokio::time::timeout(MACHINE_LIMIT, asked).await.ok()?
}

/// A session with the metadata service.
struct Session<'a> {
    transport: Transport,
    base: &'a Url,
    token: HeaderValue,
}

impl<'a> Session<'a> {
    async fn open(transport: &Transport, base: &'a Url) -> Result<Self, AttemptError> {
        let put = transport.http.put(with_path(base, "/latest/api/token"));
        let session = transport.send(put.header("x-aws-ec2-metadata-token-ttl-seconds", SESSION_SECONDS)).await?;
        let session = one_line(&session, "a session token")?;
        let mut token = HeaderValue::from_str(&session)
            .map_err(|_| AttemptError::Unreadable("the session token does not fit into a header".to_owned()))?;
        token.set_sensitive(true);
        Ok(Self { transport: transport.with_redacted_secret(SecretString::from(session)), base, token })
    }

    async fn get(&self, path: &str) -> Result<Vec<u8>, AttemptError> {
        let request = self.transport.http.get(with_path(self.base, path));
        self.transport.send(request.header("x-aws-ec2-metadata-token", self.token.clone())).await
    }

    /// Returns the name of the role of the instance profile.
    async fn role(&self) -> Result<String, AttemptError> {
        let role = one_line(&self.get(CREDENTIALS).await?, "the name of a role")?;
        // A name may have these characters (docs.aws.amazon.com, "IAM and AWS STS quotas").
        if !role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte)) {
            return Err(AttemptError::Unreadable("the name of a role has characters that none has".to_owned()));
        }
        Ok(role)
    }
}

const DOCUMENT: &str = "/latest/dynamic/instance-identity/document";
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
