//! Login of a person with a browser, at a server with auth methods of the type `oidc`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keyward_machine::secret_string::SecretString;
use serde::{Deserialize, Serialize};

use super::acl_client::{AclClient, Endpoint, parse};
use super::error::AclClientError;
use super::token::Token;
use crate::model::go_json::serialize_present_secret;

/// Begin of a login.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct OidcBegin {
    /// Name of the auth method.
    pub auth_method: String,
    /// Address to which the browser returns, which the auth method lists.
    #[serde(rename = "RedirectURI")]
    pub redirect_uri: String,
    /// Random text that [`OidcFinish`] repeats: nobody else can finish the login.
    #[serde(serialize_with = "serialize_present_secret")]
    pub client_nonce: SecretString,
    /// Metadata for the token's description.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// Page of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OidcAuthUrl {
    /// Page to which the browser goes.
    #[serde(rename = "AuthURL")]
    pub auth_url: String,
    /// Issuer of the provider, which its answer may name; Consul does not say it.
    #[serde(rename = "Issuer")]
    pub issuer: Option<String>,
    /// The provider's answer must name its issuer.
    #[serde(rename = "IssuerRequired", default)]
    pub issuer_required: bool,
}

/// End of a login.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct OidcFinish {
    /// Name of the auth method.
    pub auth_method: String,
    /// State with which the browser returned.
    #[serde(serialize_with = "serialize_present_secret")]
    pub state: SecretString,
    /// Code with which the browser returned.
    #[serde(serialize_with = "serialize_present_secret")]
    pub code: SecretString,
    /// That of [`OidcBegin`].
    #[serde(serialize_with = "serialize_present_secret")]
    pub client_nonce: SecretString,
}

/// Time that the server may wait for the provider: for a slot, the exchange of the code, and the signing keys.
const PROVIDER_WAIT: Duration = Duration::from_secs(30);

impl AclClient {
    /// Begins a login with a browser. The token of this client is not sent.
    pub async fn begin_oidc(&self, begin: &OidcBegin) -> Result<OidcAuthUrl, AclClientError> {
        self.call_oidc("auth-url", begin).await
    }

    /// Finishes a login with a browser. The token of this client is not sent.
    pub async fn finish_oidc(&self, finish: &OidcFinish) -> Result<Token, AclClientError> {
        self.call_oidc("callback", finish).await
    }

    async fn call_oidc<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, AclClientError> {
        let path = ["acl", "oidc", name];
        let endpoint = Endpoint { path: &path, name: "login with a browser".into(), since: None };
        let client = self.anonymous();
        let request = client.request(Method::POST, &endpoint)?.json(body);
        parse(&client.send(request, &endpoint, PROVIDER_WAIT).await?)
    }
}
