//! Workload identity: a federated token from a file, exchanged by Azure's SDK.
//!
//! The SDK's own credential caches the file for ten minutes, whatever the token endpoint answers, and sends its trailing
//! newline. So the file is read here, at each exchange.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;
use azure_core::http::ClientMethodOptions;
use azure_identity::{ClientAssertion, ClientAssertionCredential, ClientAssertionCredentialOptions};
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;

use super::azure_sdk;
use super::error::{AttemptError, ErrorResponse};
use super::source_selection::ServicePrincipal;

/// Exchanges the file's token for one of this scope. `now` is used only in error messages.
pub(super) async fn request_token(
    client: azure_sdk::SdkHttpClient,
    principal: &ServicePrincipal,
    file: &Path,
    scope: &str,
    now: SystemTime,
) -> Result<SecretString, AttemptError> {
    let exchanged = exchange(client, principal, File(file.to_owned()), scope).await;
    exchanged.map_err(|failure| with_age(failure, file, now))
}

/// Exchanges an assertion for a token of this scope.
pub(super) async fn exchange(
    client: azure_sdk::SdkHttpClient,
    principal: &ServicePrincipal,
    assertion: impl ClientAssertion + 'static,
    scope: &str,
) -> Result<SecretString, AttemptError> {
    let client_options = azure_sdk::options(client, Some(&principal.authority));
    let options = Some(ClientAssertionCredentialOptions { client_options });
    let credential =
        ClientAssertionCredential::new(principal.tenant.clone(), principal.client_id.clone(), assertion, options)
            .map_err(|error| azure_sdk::extract_error(&error))?;
    azure_sdk::request_token(credential.as_ref(), scope).await
}

#[derive(Debug)]
struct File(PathBuf);

#[async_trait]
impl ClientAssertion for File {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        let read = read(&self.0).map_err(azure_sdk::wrap_error)?;
        Ok(read.expose_secret().to_owned())
    }
}

fn read(file: &Path) -> Result<SecretString, AttemptError> {
    keyward_machine::secret::read_file(file).map_err(|error| AttemptError::NoAssertion(format_chain(&error)))
}

/// Adds the age of the file's token to an error response about its expiry.
fn with_age(failure: AttemptError, file: &Path, now: SystemTime) -> AttemptError {
    let AttemptError::Refused(refusal) = failure else { return failure };
    let claims = read(file).ok().and_then(|token| UnverifiedClaims::decode(token.expose_secret()).ok());
    let expired = claims.and_then(|claims| now.duration_since(claims.exp?).ok());
    match expired {
        // AADSTS700024: the assertion has expired or is not valid yet.
        Some(since) if refusal.codes.contains(&700_024) => {
            let age = format!("the token in {} expired {} s ago; ", file.display(), since.as_secs());
            AttemptError::Refused(ErrorResponse { text: age + &refusal.text, ..refusal })
        }
        _ => AttemptError::Refused(refusal),
    }
}
