//! Requests to the metadata server of Compute Engine and GKE
//! (cloud.google.com, "About VM metadata", "Verifying the identity of instances").

use keyward_machine::secret_string::SecretString;
use url::Url;

use super::endpoints::GcpEndpoints;
use crate::identity::error::AttemptError;
use crate::identity::metadata::MACHINE_LIMIT;
use crate::identity::token_response;
use crate::identity::transport::Transport;

/// Requests an identity token for an audience, with all claims about the machine.
pub(super) async fn identity_token(
    transport: &Transport,
    base: &Url,
    service_account: &str,
    audience: &str,
) -> Result<SecretString, AttemptError> {
    let mut url = account_url(base, service_account, "identity");
    url.query_pairs_mut().append_pair("audience", audience).append_pair("format", "full");
    let body = get(transport, url).await?;
    let token = std::str::from_utf8(&body).ok().map(str::trim);
    let token = token.filter(|token| token_response::is_signed_token(token));
    // A truncated token is a secret too, so that nothing is quoted.
    let token =
        token.ok_or_else(|| AttemptError::Unreadable(format!("{} bytes that are not a signed token", body.len())))?;
    Ok(SecretString::from(token))
}

/// Requests an access token for Google's APIs.
pub(super) async fn access_token(
    transport: &Transport,
    base: &Url,
    service_account: &str,
) -> Result<SecretString, AttemptError> {
    let body = get(transport, account_url(base, service_account, "token")).await?;
    token_response::parse_token(&body, &[])
}

/// Project and service account of a virtual machine of Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcpMachine {
    /// Id of the project.
    pub project: String,
    /// E-mail of the machine's default service account.
    pub service_account: String,
}

/// Returns what the metadata server says of this machine; `None` if nothing usable answers there within a second.
pub async fn gcp_machine(endpoints: &GcpEndpoints) -> Option<GcpMachine> {
    let asked = async {
        let transport = Transport::machine().ok()?;
        let mut url = endpoints.metadata.clone();
        url.set_path("/computeMetadata/v1/project/project-id");
        let project = String::from_utf8(get(transport, url).await.ok()?).ok()?.trim().to_owned();
        // cloud.google.com, "Creating and managing projects"; older ones have a domain in front of a colon.
        let is_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
        let service_account = email(transport, &endpoints.metadata, "default").await.ok()?;
        (!project.is_empty() && project.bytes().all(is_id)).then_some(GcpMachine { project, service_account })
    };
    tokio::time::timeout(MACHINE_LIMIT, asked).await.ok()?
}

/// Requests the e-mail of a service account.
pub(super) async fn email(transport: &Transport, base: &Url, service_account: &str) -> Result<String, AttemptError> {
    let body = get(transport, account_url(base, service_account, "email")).await?;
    let text = std::str::from_utf8(&body).ok().map(str::trim);
    let email = text.filter(|text| text.contains('@') && text.bytes().all(|byte| byte.is_ascii_graphic()));
    email
        .map(str::to_owned)
        .ok_or_else(|| AttemptError::Unreadable(format!("{} bytes that are not an e-mail", body.len())))
}

fn account_url(base: &Url, service_account: &str, what: &str) -> Url {
    let mut url = base.clone();
    url.set_path("/computeMetadata/v1/instance/service-accounts/");
    // The base is an http URL, which has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(service_account).push(what);
    }
    url
}

async fn get(transport: &Transport, url: Url) -> Result<Vec<u8>, AttemptError> {
    // The server refuses requests without this header, which a forged request seldom can set.
    transport.send(transport.http.get(url).header("metadata-flavor", "Google")).await
}
