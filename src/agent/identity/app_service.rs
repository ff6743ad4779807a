//! The identity endpoint of App Service, Functions and Container Apps
//! (learn.microsoft.com, "How to use managed identities for App Service").

use http::HeaderValue;
use keyward_machine::secret_string::SecretString;
use url::Url;

use super::ManagedIdentity;
use super::error::AttemptError;
use super::managed_identity_host::AppServiceApi;
use super::transport::Transport;

/// Requests a token for `resource`, byte for byte.
pub(super) async fn request_token(
    transport: &Transport,
    endpoint: &Url,
    header: &SecretString,
    form: AppServiceApi,
    managed_identity: &ManagedIdentity,
    resource: &str,
) -> Result<SecretString, AttemptError> {
    let (version, key) = match form {
        AppServiceApi::Current => ("2019-08-01", "x-identity-header"),
        AppServiceApi::Old => ("2017-09-01", "secret"),
    };
    // The two versions name an identity differently. `check_identity` refuses an object id for the old one.
    let id_parameter = match (managed_identity, form) {
        (ManagedIdentity::System, _) => None,
        (ManagedIdentity::ObjectId(id), _) => Some(("principal_id", id)),
        (ManagedIdentity::ClientId(id), AppServiceApi::Current) => Some(("client_id", id)),
        (ManagedIdentity::ClientId(id), AppServiceApi::Old) => Some(("clientid", id)),
    };
    let mut url = endpoint.clone();
    url.query_pairs_mut()
        .append_pair("api-version", version)
        .append_pair("resource", resource)
        .extend_pairs(id_parameter);
    let mut value = HeaderValue::from_str(header.expose_secret()).map_err(|_| {
        AttemptError::setting("IDENTITY_HEADER (or MSI_SECRET) contains characters that are invalid in a header")
    })?;
    value.set_sensitive(true);
    transport.with_redacted_secret(header.clone()).request_token(transport.http.get(url).header(key, value)).await
}
