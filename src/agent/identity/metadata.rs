//! Azure's instance metadata service: identity tokens by Azure's SDK, and the instance document.

use std::time::Duration;

use azure_identity::{ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId};
use keyward_machine::secret_string::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::azure_sdk;
use super::error::{AttemptError, ErrorResponse};
use super::login_fields::{InstanceMetadata, login_fields};
use super::transport::Transport;
use super::{CloudEndpoints, LoginFields, ManagedIdentity};

/// Requests a token for `resource`, byte for byte.
pub(super) async fn request_token(
    transport: &Transport,
    base: &Url,
    managed_identity: &ManagedIdentity,
    resource: &str,
) -> Result<SecretString, AttemptError> {
    let url = with_path(base, "/metadata/identity/oauth2/token");
    let mut options = ManagedIdentityCredentialOptions::default();
    options.client_options =
        azure_sdk::options(azure_sdk::SdkHttpClient::with_url(transport.clone(), url.clone()), None);
    options.user_assigned_id = match managed_identity {
        ManagedIdentity::System => None,
        ManagedIdentity::ObjectId(id) => Some(UserAssignedId::ObjectId(id.clone())),
        ManagedIdentity::ClientId(id) => Some(UserAssignedId::ClientId(id.clone())),
    };
    match ManagedIdentityCredential::new(Some(options)) {
        // The SDK removes this suffix again.
        Ok(credential) => azure_sdk::request_token(credential.as_ref(), &format!("{resource}/.default")).await,
        // The SDK reads the process's own variables and refuses some kinds of host by them. Ours have already shown that
        // this is none of those.
        Err(_) => request_without_sdk(transport, url, managed_identity, resource).await,
    }
}

/// Sends the SDK's request without the SDK.
async fn request_without_sdk(
    transport: &Transport,
    mut url: Url,
    managed_identity: &ManagedIdentity,
    resource: &str,
) -> Result<SecretString, AttemptError> {
    let id_parameter = match managed_identity {
        ManagedIdentity::System => None,
        ManagedIdentity::ObjectId(id) => Some(("object_id", id)),
        ManagedIdentity::ClientId(id) => Some(("client_id", id)),
    };
    url.query_pairs_mut()
        .append_pair("api-version", "2019-08-01")
        .append_pair("resource", resource)
        .extend_pairs(id_parameter);
    // The service refuses requests without this header, which a forged request seldom can set.
    transport.request_token(transport.http.get(url).header("metadata", "true")).await
}

/// Requests the instance document within 2 s, with one retry if the service is busy.
pub(super) async fn instance(transport: &Transport, base: &Url) -> Result<InstanceMetadata, AttemptError> {
    let mut url = with_path(base, "/metadata/instance/compute");
    // The field `resourceId` exists since version 2019-03-11.
    url.set_query(Some("api-version=2021-02-01"));
    let ask = || transport.send(transport.http.get(url.clone()).header("metadata", "true"));
    let asking = async {
        match ask().await {
            // 410 while the service updates itself; 429 beyond 5 requests a second of the whole machine.
            Err(AttemptError::Refused(ErrorResponse { status: 410 | 429 | 500.., .. })) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                ask().await
            }
            response => response,
        }
    };
    let late = |_| Err(AttemptError::Broken(format!("no response within {} s", INSTANCE_LIMIT.as_secs())));
    let body = tokio::time::timeout(INSTANCE_LIMIT, asking).await.unwrap_or_else(late)?;
    let document: Map<String, Value> = serde_json::from_slice(&body)
        .map_err(|_| AttemptError::Unreadable(format!("{} bytes that are not a JSON object", body.len())))?;
    let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(InstanceMetadata {
        name: text("name"),
        subscription: text("subscriptionId"),
        resource_group: text("resourceGroupName"),
        scale_set: text("vmScaleSetName"),
        resource_id: text("resourceId"),
    })
}

/// Returns what the metadata service says of this machine; `None` if nothing usable answers there within a second.
pub async fn machine_fields(endpoints: &CloudEndpoints) -> Option<LoginFields> {
    let transport = Transport::machine().ok()?;
    let asked = tokio::time::timeout(MACHINE_LIMIT, instance(transport, &endpoints.metadata)).await;
    let instance = asked.ok()?.ok()?;
    Some(login_fields(None, Some(&instance), &LoginFields::default()))
}

/// Time limit of a question that a person waits for.
pub(super) const MACHINE_LIMIT: Duration = Duration::from_secs(1);

fn with_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url
}

/// Time limit of the instance document, which logins can do without.
const INSTANCE_LIMIT: Duration = Duration::from_secs(2);
