//! Handler of `POST /v1/auth/MOUNT/login` in Vault's wire format.

use http::{HeaderName, Response};
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::json;

use super::VaultRequest;
use crate::api::body;
use crate::api::error::ApiError;
use crate::api::response::ResponseBody;
use crate::api::state::ApiState;
use crate::model::aws_identity::UnverifiedCallerRequest;
use crate::model::azure_identity::ClaimedFields;
use crate::model::id::Id;
use crate::service::login::{ConfiguredLoginRequest, LoginResult};

const WRAP_HEADER: HeaderName = HeaderName::from_static("x-vault-wrap-ttl");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VaultLoginRequest {
    role: Option<String>,
    jwt: Option<UnverifiedProof>,
    subscription_id: Option<String>,
    resource_group_name: Option<String>,
    vm_name: Option<String>,
    vmss_name: Option<String>,
    resource_id: Option<String>,
    iam_http_request_method: Option<String>,
    iam_request_url: Option<String>,
    iam_request_body: Option<String>,
    iam_request_headers: Option<UnverifiedProof>,
}

/// Proof kept as a secret from parsing on.
#[derive(Deserialize)]
#[serde(from = "String")]
struct UnverifiedProof(SecretString);

impl From<String> for UnverifiedProof {
    fn from(text: String) -> Self {
        Self(SecretString::from(text))
    }
}

pub(crate) async fn log_in(state: &ApiState, request: VaultRequest) -> Result<Response<ResponseBody>, ApiError> {
    let VaultRequest { mount, head, body } = request;
    super::require_default_namespace(&head.headers)?;
    // A caller that expects a wrapped token must not get a bare one.
    if head.headers.contains_key(WRAP_HEADER) {
        return Err(ApiError::WrappingUnsupported);
    }
    let body: VaultLoginRequest = body::read_vault_login(body).await?;
    let request = ConfiguredLoginRequest {
        role: body.role,
        unverified_jwt: body.jwt.map(|UnverifiedProof(jwt)| jwt).filter(|jwt| !jwt.expose_secret().is_empty()),
        unverified_fields: ClaimedFields {
            vm_name: body.vm_name,
            vmss_name: body.vmss_name,
            resource_group_name: body.resource_group_name,
            subscription_id: body.subscription_id,
            resource_id: body.resource_id,
        },
        unverified_request: UnverifiedCallerRequest {
            method: body.iam_http_request_method,
            url: body.iam_request_url,
            body: body.iam_request_body,
            headers: body.iam_request_headers.map(|UnverifiedProof(headers)| headers),
        },
    };
    let granted = state.methods.login(&mount, request).await.map_err(ApiError::Login)?;
    super::audit_accessor(&head, &granted.live);
    super::json(&login_response(&granted))
}

fn login_response(granted: &LoginResult) -> serde_json::Value {
    let LoginResult { live, secret, policies } = granted;
    let token = &live.token.value;
    let immutable = token.immutable();
    let mut metadata = immutable.login.as_ref().map(|login| login.facts.clone()).unwrap_or_default();
    metadata.extend(immutable.login.as_ref().and_then(|login| Some(("role".to_owned(), login.role.clone()?))));
    json!({
        "request_id": Id::random(),
        "lease_id": "",
        "renewable": false,
        "lease_duration": 0,
        "data": null,
        "wrap_info": null,
        "warnings": null,
        "auth": {
            "client_token": secret.reveal(),
            "accessor": immutable.accessor_id,
            "policies": policies,
            "token_policies": policies,
            "metadata": metadata,
            "lease_duration": token.remaining(live.read_at).map_or(0, |remaining| remaining.as_secs()),
            "renewable": false,
            "entity_id": "",
            "token_type": "service",
            "orphan": true,
            "num_uses": 0,
        },
    })
}
