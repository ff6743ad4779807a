//! Azure's SDK over our transport.
//!
//! The SDK's own retries (up to 100 s, without the cause) are off. Every error of our transport passes through it unchanged.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, ClientOptions, HttpClient, Method, Request, RetryOptions, StatusCode};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use url::Url;

use super::error::{AttemptError, quote};
use super::token_proxy::TokenProxy;
use super::transport::Transport;

/// Returns options for a credential of the SDK: our transport, the authority if it uses one, no retries.
pub(super) fn options(client: SdkHttpClient, authority: Option<&Url>) -> ClientOptions {
    // Otherwise the SDK would read AZURE_AUTHORITY_HOST from the process, which may differ from our value.
    let cloud = authority.map(|authority| {
        let mut cloud = CustomConfiguration::default();
        cloud.authority_host = authority.to_string();
        Arc::new(CloudConfiguration::Custom(cloud))
    });
    let transport = azure_core::http::Transport::new(Arc::new(client));
    ClientOptions { transport: Some(transport), retry: RetryOptions::none(), cloud, ..ClientOptions::default() }
}

/// Requests a token from a credential; errors are those of our transport or assertion.
pub(super) async fn request_token(credential: &dyn TokenCredential, scope: &str) -> Result<SecretString, AttemptError> {
    match credential.get_token(&[scope], None).await {
        Ok(AccessToken { token, .. }) => Ok(token.secret().to_owned().into()),
        Err(error) => Err(extract_error(&error)),
    }
}

/// Extracts our error from an error of the SDK, whose own errors are about settings.
pub(super) fn extract_error(error: &Error) -> AttemptError {
    let first: &(dyn std::error::Error + 'static) = error;
    let own_error = std::iter::successors(Some(first), |error| error.source()).find_map(|error| error.downcast_ref());
    own_error.cloned().unwrap_or_else(|| AttemptError::setting(quote(&format_chain(first), 300)))
}

/// Wraps our error in one that the SDK passes on without a retry.
pub(super) fn wrap_error(failure: AttemptError) -> Error {
    Error::new(ErrorKind::Other, failure)
}

/// HTTP client of the SDK.
#[derive(Debug)]
pub(super) struct SdkHttpClient {
    transport: Transport,
    target: RequestTarget,
}

/// Destination of the SDK's requests.
#[derive(Debug)]
enum RequestTarget {
    /// The URL of the SDK's request.
    AsRequested,
    /// This URL, with the request's query.
    Fixed(Url),
    /// The request's path below this token proxy.
    TokenProxy(TokenProxy),
}

impl SdkHttpClient {
    /// Creates a client that sends to the SDK's URL.
    pub(super) const fn new(transport: Transport) -> Self {
        Self { transport, target: RequestTarget::AsRequested }
    }

    /// Creates a client that sends to this URL, since the SDK would choose one by variables of the process.
    pub(super) const fn with_url(transport: Transport, instead: Url) -> Self {
        Self { transport, target: RequestTarget::Fixed(instead) }
    }

    /// Creates a client that sends to the token proxy.
    pub(super) const fn with_token_proxy(transport: Transport, proxy: TokenProxy) -> Self {
        Self { transport, target: RequestTarget::TokenProxy(proxy) }
    }
}

#[async_trait]
impl HttpClient for SdkHttpClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let url = match &self.target {
            RequestTarget::AsRequested => request.url().clone(),
            RequestTarget::Fixed(instead) => {
                let mut url = instead.clone();
                url.set_query(request.url().query());
                url
            }
            RequestTarget::TokenProxy(proxy) => {
                let mut url = proxy.url_for(request.url().path());
                url.set_query(request.url().query());
                url
            }
        };
        let method = match request.method() {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            other => {
                return Err(wrap_error(AttemptError::setting(format!(
                    "the library sent an unexpected {other} request"
                ))));
            }
        };
        let mut outgoing = self.transport.http.request(method, url);
        if let RequestTarget::TokenProxy(proxy) = &self.target {
            // The URL's host may be the certificate's name, which differs from the proxy's.
            outgoing = outgoing.header(http::header::HOST, proxy.address());
        }
        for (name, value) in request.headers().iter() {
            // The SDK adds the value of IDENTITY_HEADER, a secret of another service, if it is set.
            if name.as_str() != "x-identity-header" {
                outgoing = outgoing.header(name.as_str(), value.as_str());
            }
        }
        if let Body::Bytes(body) = request.body() {
            outgoing = outgoing.body(body.clone());
        }
        let token = self.transport.request_token(outgoing).await.map_err(wrap_error)?;
        Ok(AsyncRawResponse::from_bytes(StatusCode::Ok, Headers::new(), to_sdk_response(&token)))
    }
}

/// Converts a token to the response form that the SDK reads: `expires_on` has to be a string.
///
/// Both times matter only to the SDK's cache, which is dropped with the credential.
fn to_sdk_response(token: &SecretString) -> String {
    serde_json::json!({
        "access_token": token.expose_secret(), "expires_on": "0", "expires_in": 0, "ext_expires_in": 0,
        "token_type": "Bearer", "resource": "",
    })
    .to_string()
}
