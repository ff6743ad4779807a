//! A service principal by its secret, by the provider's library.

use azure_identity::{ClientSecretCredential, ClientSecretCredentialOptions};
use secrecy::{ExposeSecret as _, SecretString};

use super::azure_sdk;
use super::failure::Failure;
use super::source_selection::Principal;
use super::transport::Transport;

/// Asks the token endpoint for a token of this scope.
pub(super) async fn token(
    transport: &Transport,
    who: &Principal,
    secret: &SecretString,
    scope: &str,
) -> Result<SecretString, Failure> {
    let client = azure_sdk::Client::new(transport.hiding(secret.clone()));
    let client_options = azure_sdk::options(client, Some(&who.authority));
    let options = ClientSecretCredentialOptions { client_options };
    let secret = secret.expose_secret().to_owned();
    let credential = ClientSecretCredential::new(&who.tenant, who.client_id.clone(), secret.into(), Some(options))
        .map_err(|error| azure_sdk::failure(&error))?;
    azure_sdk::token(credential.as_ref(), scope).await
}
