//! A service principal by its secret, by the provider's library.

use azure_identity::{ClientSecretCredential, ClientSecretCredentialOptions};
use secrecy::{ExposeSecret as _, SecretString};

use super::chain::Principal;
use super::failure::Failure;
use super::sdk;
use super::transport::Transport;

/// Asks the token endpoint for a token of this scope.
pub(super) async fn token(
    transport: &Transport,
    who: &Principal,
    secret: &SecretString,
    scope: &str,
) -> Result<SecretString, Failure> {
    let client = sdk::Client::new(transport.hiding(secret.clone()));
    let client_options = sdk::options(client, Some(&who.authority));
    let options = ClientSecretCredentialOptions { client_options };
    let secret = secret.expose_secret().to_owned();
    let credential = ClientSecretCredential::new(&who.tenant, who.client_id.clone(), secret.into(), Some(options))
        .map_err(|error| sdk::failure(&error))?;
    sdk::token(credential.as_ref(), scope).await
}
