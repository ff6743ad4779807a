//! HTTP transport to Azure's services: no redirects, bounded time and response size, and errors with their cause.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keyward_http::client::{EnvironmentProxies, Resolver, read_body};
use keyward_http::tls::{TlsOptions, client_config, client_config_of};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::{causes, format_chain};
use reqwest::RequestBuilder;
use url::{Host, Url};

use super::error::{AttemptError, ErrorResponse, MAX_RESPONSE};
use super::token_response;

/// HTTP client of one kind of service. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) http: reqwest::Client,
    limit: Duration,
    /// Secrets to redact from messages, in case a response echoes them.
    redacted_secrets: Vec<SecretString>,
    route: Route,
}

/// Way of the requests, which errors name: what answers or fails may not be the service itself.
#[derive(Debug, Clone)]
enum Route {
    Direct,
    /// Through the proxy of the environment, if it has one for the URL.
    Environment(Box<EnvironmentProxies>),
    /// To a token proxy at this address, verified with these CA certificates.
    TokenProxy {
        address: String,
        trusted: String,
    },
}

impl Transport {
    /// Creates a client of local services: never through a proxy, which would answer for another machine.
    ///
    /// All sources of the process share it.
    pub(super) fn machine() -> Result<&'static Self, AttemptError> {
        static MACHINE: OnceLock<Transport> = OnceLock::new();
        Self::get_or_build(&MACHINE, || {
            // None of these services uses TLS with a public certificate, so the system's CA certificates are not loaded.
            let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]).connect_timeout(LOCAL_CONNECT);
            Self::build(builder, LOCAL_LIMIT, Route::Direct)
        })
    }

    /// Returns the client in a cell, which is built for the first call.
    pub(super) fn get_or_build(
        cell: &OnceLock<Self>,
        build: impl FnOnce() -> Result<Self, AttemptError>,
    ) -> Result<&Self, AttemptError> {
        if let Some(transport) = cell.get() {
            return Ok(transport);
        }
        let transport = build()?;
        Ok(cell.get_or_init(|| transport))
    }

    /// Creates a client of the token endpoint, through the environment's proxy if there is one, unless it `is_local`.
    pub(super) fn authority(ca: Option<&Path>, is_local: bool) -> Result<Self, AttemptError> {
        Self::with_proxies(ca, (!is_local).then(EnvironmentProxies::from_env))
    }

    fn with_proxies(ca: Option<&Path>, proxies: Option<EnvironmentProxies>) -> Result<Self, AttemptError> {
        let mut builder = reqwest::Client::builder().https_only(true).connect_timeout(AUTHORITY_CONNECT);
        let route = proxies.clone().map_or(Route::Direct, |proxies| Route::Environment(Box::new(proxies)));
        builder = match proxies {
            Some(proxies) => builder.proxy(reqwest::Proxy::custom(move |url| proxies.proxy_for(url).cloned())),
            None => builder.no_proxy(),
        };
        if let Some(path) = ca {
            let tls = TlsOptions { ca_file: Some(path.to_owned()), ..TlsOptions::default() };
            let config = client_config(&tls).map_err(|error| AttemptError::setting(format_chain(&error)))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        Self::build(builder, AUTHORITY_LIMIT, route)
    }

    /// Creates a client of the token proxy at `address`, through no other proxy.
    ///
    /// With `ca` (PEM text and its name) only those certificates are trusted. With `connect_to` all connections go to that host,
    /// and the name in a request's URL is verified at that host.
    pub(super) fn token_proxy(
        address: String,
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
        let trusted = ca.map_or("the system's CA certificates", |(_, name)| name).to_owned();
        Self::build(builder, AUTHORITY_LIMIT, Route::TokenProxy { address, trusted })
    }

    fn build(builder: reqwest::ClientBuilder, limit: Duration, route: Route) -> Result<Self, AttemptError> {
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
        Ok(Self { http, limit, redacted_secrets: Vec::new(), route })
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
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Vec<u8>, AttemptError> {
        let late = |_| {
            let way = self.route.describe(None);
            Err(AttemptError::Broken(format!("no response{way} within {} s", self.limit.as_secs())))
        };
        tokio::time::timeout(self.limit, self.exchange(request)).await.unwrap_or_else(late)
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Vec<u8>, AttemptError> {
        let mut response = request.send().await.map_err(|error| self.to_attempt_error(error))?;
        let status = response.status();
        let way = self.route.describe(Some(response.url()));
        if status.is_redirection() {
            return Err(AttemptError::Redirected(status.as_u16()));
        }
        let body = read_body(&mut response, MAX_RESPONSE).await.map_err(|error| self.to_attempt_error(error))?;
        let body = body.ok_or(AttemptError::TooLarge)?;
        if status.is_success() {
            return Ok(body);
        }
        let refusal = token_response::parse_error(status, response.headers(), &body, &self.redacted_secrets);
        let is_token_proxy = matches!(self.route, Route::TokenProxy { .. });
        let text = format!("{}{way}", refusal.text).trim_start().to_owned();
        Err(AttemptError::Refused(ErrorResponse { text, is_token_proxy, ..refusal }))
    }

    fn to_attempt_error(&self, error: reqwest::Error) -> AttemptError {
        let way = self.route.describe(error.url());
        // Only the origin: the query holds parameters of the request.
        let origin = error.url().map_or_else(|| "the service".to_owned(), |url| url.origin().ascii_serialization());
        let origin = match &self.route {
            Route::TokenProxy { address, .. } => format!("the token proxy {address} ({PROXY_VARIABLE})"),
            Route::Direct | Route::Environment(_) => format!("{origin}{way}"),
        };
        to_attempt_error(error, origin, &way, &self.route)
    }
}

/// Variable with the URL of the token proxy.
pub(super) const PROXY_VARIABLE: &str = "AZURE_KUBERNETES_TOKEN_PROXY";

impl Route {
    /// Returns words that name what stands between this machine and the service; empty if there is nothing.
    fn describe(&self, url: Option<&Url>) -> String {
        match self {
            Self::Direct => String::new(),
            Self::TokenProxy { address, .. } => format!(" from the token proxy {address} ({PROXY_VARIABLE})"),
            Self::Environment(proxies) => {
                let proxy = url.map_or_else(|| proxies.https(), |url| proxies.proxy_for(url));
                let address = proxy.and_then(|proxy| Some((proxy.host_str()?, proxy.port_or_known_default()?)));
                address.map(|(host, port)| format!(" through the proxy {host}:{port}")).unwrap_or_default()
            }
        }
    }
}

fn to_attempt_error(error: reqwest::Error, origin: String, way: &str, route: &Route) -> AttemptError {
    let error = error.without_url();
    let connecting = error.is_connect() || error.is_builder();
    if connecting && error.is_timeout() {
        return AttemptError::ConnectTimedOut(origin);
    }
    let text = format_chain(&error);
    if is_tls_error(&error) {
        return AttemptError::Untrusted(match route {
            Route::Direct => text,
            Route::Environment(_) => format!("{text}{way}"),
            Route::TokenProxy { address, trusted } => {
                format!("{text}, at the token proxy {address} ({PROXY_VARIABLE}) with {trusted}")
            }
        });
    }
    let timed_out = causes(&error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    match timed_out.map(std::io::Error::kind).find(|kind| *kind == ErrorKind::TimedOut) {
        Some(_) if connecting => AttemptError::ConnectTimedOut(origin),
        _ if connecting => AttemptError::Unreachable(format!("{origin}: {text}")),
        _ => AttemptError::Broken(format!("{text}{way}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_of_the_token_endpoint_names_the_proxy_of_the_environment() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = format!("http://me:canary@{closed}");
        let error = async |no_proxy: &str| {
            let get = |name: &str| match name {
                "HTTPS_PROXY" => Some(proxy.clone()),
                "NO_PROXY" => Some(no_proxy.to_owned()),
                _ => None,
            };
            let transport = Transport::with_proxies(None, Some(EnvironmentProxies::from_variables(get))).unwrap();
            transport.send(transport.http.get("https://login.invalid/token?secret=x")).await.unwrap_err().to_string()
        };
        let by_proxy = error("").await;
        let expected = format!("cannot connect to https://login.invalid through the proxy {closed}: ");
        assert!(by_proxy.starts_with(&expected) && !by_proxy.contains("canary"), "{by_proxy}");
        let direct = error("*.invalid").await;
        assert!(direct.starts_with("cannot connect to https://login.invalid: "), "{direct}");
    }
}
