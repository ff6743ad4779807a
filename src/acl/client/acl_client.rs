//! The client: address, token, namespace, retries, and parsing of responses.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_http::client;
use keyward_http::client::{BuildError, ClientResponse, ProxyMode, ServerAddress, TlsOptions, TransportError};
use keyward_machine::secret_string::SecretString;
use reqwest::RequestBuilder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{AclClientError, parse_error};
use super::query::{QueryOptions, ReadResponse};

/// Options of the client.
#[derive(Debug, Clone)]
pub struct AclClientOptions {
    /// HTTP options. A path of the URL is the prefix of `/v1`.
    pub http: client::ClientOptions,
    /// Secret of the token; `None` for anonymous calls.
    pub token: Option<SecretString>,
    /// Namespace of the calls; `None` for the token's own. `*` lists all namespaces.
    pub namespace: Option<String>,
}

impl AclClientOptions {
    /// Creates options for a URL: the system's CA certificates, 5 s to connect, 30 s for a response.
    pub fn for_url(url: url::Url) -> Self {
        let http = client::ClientOptions {
            address: ServerAddress::Url(url),
            tls: TlsOptions::default(),
            proxy: ProxyMode::Environment,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
        };
        Self { http, token: None, namespace: None }
    }
}

/// Client of one server, with one token and one namespace. Clones share connections.
#[derive(Debug, Clone)]
pub struct AclClient {
    http: client::Client,
    response_timeout: Duration,
    token: Option<SecretString>,
    namespace: Option<String>,
}

/// Endpoint of a call.
pub(super) struct Endpoint<'a> {
    /// Segments of the path after `/v1`.
    pub(super) path: &'a [&'a str],
    /// Name of the endpoint in errors, with its article.
    pub(super) name: Cow<'a, str>,
    /// First version of Consul with the endpoint; `None` if all have it.
    pub(super) since: Option<&'static str>,
}

impl AclClient {
    /// Creates a client and reads its certificates, without a connection.
    pub fn new(options: &AclClientOptions) -> Result<Self, BuildError> {
        Ok(Self {
            http: options.http.build()?,
            response_timeout: options.http.response_timeout,
            token: options.token.clone(),
            namespace: options.namespace.clone(),
        })
    }

    /// Returns a client with another token.
    #[must_use]
    pub fn with_token(&self, token: SecretString) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// Returns a client without a token.
    #[must_use]
    pub(crate) fn anonymous(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    /// Returns a client for another namespace; `None` for the token's own.
    #[must_use]
    pub fn in_namespace(&self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..self.clone() }
    }

    /// True if calls send a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the client that sends its calls.
    pub fn http(&self) -> &client::Client {
        &self.http
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(super) fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    /// Returns the server's origin or socket path, for messages.
    pub fn server(&self) -> &str {
        self.http.server()
    }

    /// Performs a read and decodes the response.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint<'_>,
        parameters: &[(&str, String)],
        query: &QueryOptions,
    ) -> Result<ReadResponse<T>, AclClientError> {
        let response = self.get_raw(endpoint, parameters, query).await?;
        let value = parse(&response)?;
        Ok(ReadResponse::from_headers(&response.headers).map(|()| value))
    }

    /// Performs a read, and repeats it after connection errors.
    pub(super) async fn get_raw(
        &self,
        endpoint: &Endpoint<'_>,
        parameters: &[(&str, String)],
        query: &QueryOptions,
    ) -> Result<ClientResponse, AclClientError> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            let request = self.request(Method::GET, endpoint)?.query(&query.parameters()).query(parameters);
            match self.send(request, endpoint, query.server_wait()).await {
                // Reads only: a write without a response may have been done.
                Err(AclClientError::Transport(TransportError::Connect { .. } | TransportError::Broken { .. }))
                    if backoff.failures() < READ_RETRIES =>
                {
                    tokio::time::sleep(backoff.next(random_unit())).await;
                }
                result => return result,
            }
        }
    }

    /// Sends a body once and decodes the response.
    pub(super) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        endpoint: &Endpoint<'_>,
        body: &(impl Serialize + Sync),
    ) -> Result<T, AclClientError> {
        let request = self.request(method, endpoint)?.json(body);
        parse(&self.send(request, endpoint, Duration::ZERO).await?)
    }

    /// Sends a call without a body once.
    pub(super) async fn call(&self, method: Method, endpoint: &Endpoint<'_>) -> Result<ClientResponse, AclClientError> {
        self.send(self.request(method, endpoint)?, endpoint, Duration::ZERO).await
    }

    /// Builds a call without a body.
    pub(super) fn request(&self, method: Method, endpoint: &Endpoint<'_>) -> Result<RequestBuilder, AclClientError> {
        // In a URL such a segment leads to another path.
        if let Some(segment) = endpoint.path.iter().find(|segment| ["", ".", ".."].contains(segment)) {
            return Err(AclClientError::Invalid {
                text: format!("{segment:?} cannot be a path segment; expected a name or an id"),
            });
        }
        let mut request = self.http.request_to(method, std::iter::once("v1").chain(endpoint.path.iter().copied()));
        if let Some(token) = &self.token {
            let value = HeaderValue::from_str(token.expose_secret());
            let mut value = value.map_err(|_| AclClientError::Invalid {
                text: "the token contains characters that are invalid in a header".to_owned(),
            })?;
            // `Debug` output of the request then lacks the token.
            value.set_sensitive(true);
            // keyward's server accepts both names with one value, Consul knows only its own name.
            request = request.header("x-service-token", value.clone()).header("x-consul-token", value);
        }
        if let Some(namespace) = &self.namespace {
            request = request.query(&[("ns", namespace)]);
        }
        Ok(request)
    }

    /// Sends a call once. The server may delay the response by `server_wait`.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        endpoint: &Endpoint<'_>,
        server_wait: Duration,
    ) -> Result<ClientResponse, AclClientError> {
        let response = self.http.send_bounded(request, self.response_timeout + server_wait, MAX_RESPONSE_BYTES).await?;
        if response.status == StatusCode::OK {
            return Ok(response);
        }
        let sent = self.token.as_ref().map_or("", |token| token.expose_secret());
        Err(parse_error(response.status, &response.headers, &response.body, &endpoint.name, endpoint.since, sent))
    }
}

/// Number of retries of a read without a response.
const READ_RETRIES: u32 = 2;

/// Largest response in bytes, the size of a list of half a million tokens.
const MAX_RESPONSE_BYTES: usize = 256 * 1024 * 1024;

pub(super) fn parse<T: DeserializeOwned>(response: &ClientResponse) -> Result<T, AclClientError> {
    serde_json::from_slice(&response.body).map_err(|error| {
        // serde_json's own text may quote the response.
        let line = error.line();
        let column = error.column();
        let text = format!("unexpected JSON at line {line}, column {column}");
        AclClientError::Unexpected { status: response.status.as_u16(), text }
    })
}
