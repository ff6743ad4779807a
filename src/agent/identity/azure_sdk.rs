//! The provider's library over our transport.
//!
//! Its own retries (up to 100 s with the cause lost) are off: they start only on answers with a status that it knows
//! and on errors of two kinds, and it sees neither. Every failure of ours passes through it whole.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, ClientOptions, HttpClient, Method, Request, RetryOptions, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::failure::{Failure, quoted};
use super::token_proxy::TokenProxy;
use super::transport::Transport;
use crate::error_chain::format_chain;

/// Options for a credential of the library: our transport, the authority where it asks one, no retries.
pub(super) fn options(client: Client, authority: Option<&Url>) -> ClientOptions {
    // Without this it would read AZURE_AUTHORITY_HOST from the process, which may differ from our value.
    let cloud = authority.map(|authority| {
        let mut cloud = CustomConfiguration::default();
        cloud.authority_host = authority.to_string();
        Arc::new(CloudConfiguration::Custom(cloud))
    });
    let transport = azure_core::http::Transport::new(Arc::new(client));
    ClientOptions { transport: Some(transport), retry: RetryOptions::none(), cloud, ..ClientOptions::default() }
}

/// Asks a credential for a token, or says what our transport (or an assertion) failed with.
pub(super) async fn token(credential: &dyn TokenCredential, scope: &str) -> Result<SecretString, Failure> {
    match credential.get_token(&[scope], None).await {
        Ok(AccessToken { token, .. }) => Ok(token.secret().to_owned().into()),
        Err(error) => Err(failure(&error)),
    }
}

/// The failure inside an error of the library; its own errors are about settings.
pub(super) fn failure(error: &Error) -> Failure {
    let first: &(dyn std::error::Error + 'static) = error;
    let found = std::iter::successors(Some(first), |error| error.source()).find_map(|error| error.downcast_ref());
    found.cloned().unwrap_or_else(|| Failure::setting(quoted(&format_chain(first), 300)))
}

/// A failure of ours as an error that the library passes on without trying again.
pub(super) fn error(failure: Failure) -> Error {
    Error::new(ErrorKind::Other, failure)
}

/// What the library sends with.
#[derive(Debug)]
pub(super) struct Client {
    transport: Transport,
    target: Target,
}

/// Destination of the library's requests.
#[derive(Debug)]
enum Target {
    /// Where it says.
    AsAsked,
    /// To this URL, with its query.
    Instead(Url),
    /// To its path below this proxy.
    Below(TokenProxy),
}

impl Client {
    /// Sends where the library says.
    pub(super) const fn new(transport: Transport) -> Self {
        Self { transport, target: Target::AsAsked }
    }

    /// Sends to this URL, with the library's query. It looks at variables of the process to choose a URL.
    pub(super) const fn sending_to(transport: Transport, instead: Url) -> Self {
        Self { transport, target: Target::Instead(instead) }
    }

    /// Sends to the token proxy, with the library's path.
    pub(super) const fn through(transport: Transport, proxy: TokenProxy) -> Self {
        Self { transport, target: Target::Below(proxy) }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let url = match &self.target {
            Target::AsAsked => request.url().clone(),
            Target::Instead(instead) => {
                let mut url = instead.clone();
                url.set_query(request.url().query());
                url
            }
            Target::Below(proxy) => {
                let mut url = proxy.url_for(request.url().path());
                url.set_query(request.url().query());
                url
            }
        };
        let method = match request.method() {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            other => return Err(error(Failure::setting(format!("the library sent an unexpected {other:?}")))),
        };
        let mut ours = self.transport.http.request(method, url);
        if let Target::Below(proxy) = &self.target {
            // The URL's host may be another name, that of the certificate.
            ours = ours.header(http::header::HOST, proxy.address());
        }
        for (name, value) in request.headers().iter() {
            // The library adds the value of IDENTITY_HEADER, a secret of another service, where it stands.
            if name.as_str() != "x-identity-header" {
                ours = ours.header(name.as_str(), value.as_str());
            }
        }
        if let Body::Bytes(body) = request.body() {
            ours = ours.body(body.clone());
        }
        let token = self.transport.token(ours).await.map_err(error)?;
        Ok(AsyncRawResponse::from_bytes(StatusCode::Ok, Headers::new(), rewritten(&token)))
    }
}

/// An answer as the library reads it: it takes `expires_on` as text alone, and adds any `expires_in` to its clock.
/// Both matter only to its cache, which ends with this credential.
fn rewritten(token: &SecretString) -> String {
    serde_json::json!({
        "access_token": token.expose_secret(), "expires_on": "0", "expires_in": 0, "ext_expires_in": 0,
        "token_type": "Bearer", "resource": "",
    })
    .to_string()
}
