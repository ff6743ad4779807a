//! A service principal by its client secret, by Azure's SDK.

use azure_identity::{ClientSecretCredential, ClientSecretCredentialOptions};
use keyward_machine::secret_string::SecretString;

use super::azure_sdk;
use super::error::AttemptError;
use super::source_selection::ServicePrincipal;
use super::transport::Transport;

/// Requests a token of this scope from the token endpoint.
pub(super) async fn request_token(
    transport: &Transport,
    principal: &ServicePrincipal,
    secret: &SecretString,
    scope: &str,
) -> Result<SecretString, AttemptError> {
    let client = azure_sdk::SdkHttpClient::new(transport.with_redacted_secret(secret.clone()));
    let client_options = azure_sdk::options(client, Some(&principal.authority));
    let options = ClientSecretCredentialOptions { client_options };
    let secret = secret.expose_secret().to_owned();
    let credential =
        ClientSecretCredential::new(&principal.tenant, principal.client_id.clone(), secret.into(), Some(options))
            .map_err(|error| azure_sdk::extract_error(&error))?;
    azure_sdk::request_token(credential.as_ref(), scope).await
}
