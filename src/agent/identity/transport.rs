//! HTTP transport to Azure's services: no redirects, bounded time and response size, and errors with their cause.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyward_http::client::{Resolver, read_body};
use keyward_http::tls::{TlsOptions, client_config, client_config_of};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::{causes, format_chain};
use reqwest::RequestBuilder;
use url::Host;
use zeroize::Zeroizing;

use super::error::{AttemptError, MAX_RESPONSE};
use super::token_response;

/// HTTP client of one kind of service. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) http: reqwest::Client,
    limit: Duration,
    /// Secrets to redact from messages, in case a response echoes them.
    redacted_secrets: Vec<SecretString>,
}

impl Transport {
    /// Creates a client of local services: never through a proxy, which would answer for another machine.
    pub(super) fn machine() -> Result<Self, AttemptError> {
        // None of these services uses TLS with a public certificate, so the system's CA certificates are not loaded.
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]).connect_timeout(LOCAL_CONNECT);
        Self::build(builder, LOCAL_LIMIT)
    }

    /// Creates a client of the token endpoint, through the environment's proxy if there is one, unless it `is_local`.
    pub(super) fn authority(ca: Option<&Path>, is_local: bool) -> Result<Self, AttemptError> {
        let mut builder = reqwest::Client::builder().https_only(true).connect_timeout(AUTHORITY_CONNECT);
        if is_local {
            builder = builder.no_proxy();
        }
        if let Some(path) = ca {
            let tls = TlsOptions { ca_file: Some(path.to_owned()), ..TlsOptions::default() };
            let config = client_config(&tls).map_err(|error| AttemptError::setting(format_chain(&error)))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        Self::build(builder, AUTHORITY_LIMIT)
    }

    /// Creates a client of a token proxy, through no other proxy.
    ///
    /// With `ca` (PEM text and its name) only those certificates are trusted. With `connect_to` all connections go to that host,
    /// and the name in a request's URL is verified at that host.
    pub(super) fn token_proxy(
        ca: Option<(&[u8], &str)>,
        connect_to: Option<&Host<&str>>,
    ) -> Result<Self, AttemptError> {
        // HTTP/1.1 sends the `Host` header of the request; HTTP/2 would send the name in the URL.
        let mut builder =
            reqwest::Client::builder().https_only(true).no_proxy().http1_only().connect_timeout(AUTHORITY_CONNECT);
        if let Some((pem, name)) = ca {
            let config = client_config_of(pem, name).map_err(|error| AttemptError::setting(format_chain(&error)))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        if let Some(host) = connect_to {
            builder = builder.dns_resolver(Arc::new(Resolver::default().with_host(host)));
        }
        Self::build(builder, AUTHORITY_LIMIT)
    }

    fn build(builder: reqwest::ClientBuilder, limit: Duration) -> Result<Self, AttemptError> {
        let http = builder
            // A redirect would carry the assertion, or the key of a challenge, to another host.
            .redirect(reqwest::redirect::Policy::none())
            // `RetryPolicy` retries, so that each attempt is counted and logged.
            .retry(reqwest::retry::never())
            .referer(false)
            // Logins are hours apart: an idle connection would be dead by then.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| AttemptError::setting(format!("cannot set up TLS: {}", format_chain(&error))))?;
        Ok(Self { http, limit, redacted_secrets: Vec::new() })
    }

    /// Returns a client that redacts this secret, for requests that carry it.
    pub(super) fn with_redacted_secret(&self, secret: SecretString) -> Self {
        Self { redacted_secrets: vec![secret], ..self.clone() }
    }

    /// Sends a request and returns the token of the response.
    pub(super) async fn request_token(&self, request: RequestBuilder) -> Result<SecretString, AttemptError> {
        token_response::parse_token(&self.send(request).await?, &self.redacted_secrets)
    }

    /// Sends a request and returns the body of a 2xx response.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Zeroizing<Vec<u8>>, AttemptError> {
        let late = |_| Err(AttemptError::Broken(format!("no response within {} s", self.limit.as_secs())));
        tokio::time::timeout(self.limit, self.exchange(request)).await.unwrap_or_else(late)
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Zeroizing<Vec<u8>>, AttemptError> {
        let mut response = request.send().await.map_err(to_attempt_error)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(AttemptError::Redirected(status.as_u16()));
        }
        let body = read_body(&mut response, MAX_RESPONSE).await.map_err(to_attempt_error)?;
        let body = body.ok_or(AttemptError::TooLarge)?;
        if status.is_success() {
            return Ok(body);
        }
        Err(AttemptError::Refused(token_response::parse_error(
            status,
            response.headers(),
            &body,
            &self.redacted_secrets,
        )))
    }
}

fn to_attempt_error(error: reqwest::Error) -> AttemptError {
    // Only the origin: the query holds parameters of the request.
    let origin = error.url().map_or_else(|| "the service".to_owned(), |url| url.origin().ascii_serialization());
    let error = error.without_url();
    let connecting = error.is_connect() || error.is_builder();
    if connecting && error.is_timeout() {
        return AttemptError::ConnectTimedOut(origin);
    }
    let text = format_chain(&error);
    if is_tls_error(&error) {
        return AttemptError::Untrusted(text);
    }
    let timed_out = causes(&error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    match timed_out.map(std::io::Error::kind).find(|kind| *kind == ErrorKind::TimedOut) {
        Some(_) if connecting => AttemptError::ConnectTimedOut(origin),
        _ if connecting => AttemptError::Unreachable(format!("{origin}: {text}")),
        _ => AttemptError::Broken(text),
    }
}

/// Returns true if TLS itself failed, which a retry does not solve, unlike a connection that broke.
fn is_tls_error(error: &reqwest::Error) -> bool {
    causes(error).any(<dyn std::error::Error>::is::<rustls::Error>)
}

/// Local services are link-local or on loopback: one that takes longer is absent, or a firewall drops the packets.
const LOCAL_CONNECT: Duration = Duration::from_secs(2);
/// The metadata service may itself have to call the token endpoint.
const LOCAL_LIMIT: Duration = Duration::from_secs(10);
const AUTHORITY_CONNECT: Duration = Duration::from_secs(5);
const AUTHORITY_LIMIT: Duration = Duration::from_secs(20);
