//! Our way to the cloud's services: no redirect, a bounded wait, a bounded answer, a failure that says what happened.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::RequestBuilder;
use secrecy::SecretString;
use url::Url;
use zeroize::Zeroizing;

use super::failure::{Failure, MAX_ANSWER};
use super::token_response;
use crate::error_chain::format_chain;
use crate::http::client::Renamed;
use crate::http::tls::{Tls, client_config};

/// A client for one kind of service. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) http: reqwest::Client,
    whole: Duration,
    /// What no message may show, should an answer repeat it.
    hidden: Vec<SecretString>,
}

impl Transport {
    /// Toward services of this machine: never through a proxy, which would answer for another machine.
    pub(super) fn machine() -> Result<Self, Failure> {
        // None of these services speaks TLS with a public certificate, so the system's are not even loaded.
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]).connect_timeout(MACHINE_CONNECT);
        Self::build(builder, MACHINE_WHOLE)
    }

    /// Toward the token endpoint, through the environment's proxy where there is one, unless it `is_here`.
    pub(super) fn authority(ca: Option<&Path>, is_here: bool) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder().https_only(true).connect_timeout(AUTHORITY_CONNECT);
        if is_here {
            builder = builder.no_proxy();
        }
        if let Some(path) = ca {
            let tls = Tls { ca_file: Some(path.to_owned()), ..Tls::default() };
            let config = client_config(&tls).map_err(|error| Failure::setting(format_chain(&error)))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        Self::build(builder, AUTHORITY_WHOLE)
    }

    /// Toward a token proxy: through no other proxy, trusting the certificates in `ca` (PEM text and its name) alone where they are
    /// given. With `connect_to`, whatever name a request's URL holds is verified at that URL's host.
    pub(super) fn token_proxy(ca: Option<(&[u8], &str)>, connect_to: Option<&Url>) -> Result<Self, Failure> {
        let mut builder =
            reqwest::Client::builder().https_only(true).no_proxy().http1_only().connect_timeout(AUTHORITY_CONNECT);
        if let Some((pem, name)) = ca {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).ok().filter(|found| !found.is_empty());
            let certificates =
                certificates.ok_or_else(|| Failure::setting(format!("{name} holds no PEM certificate")))?;
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(url) = connect_to {
            let resolver = Renamed::new(url).map_err(|error| Failure::setting(error.to_string()))?;
            builder = builder.dns_resolver(Arc::new(resolver));
        }
        Self::build(builder, AUTHORITY_WHOLE)
    }

    fn build(builder: reqwest::ClientBuilder, whole: Duration) -> Result<Self, Failure> {
        let http = builder
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // Logins are hours apart; an idle connection would only be found dead.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| Failure::setting(format!("cannot set up TLS: {}", format_chain(&error))))?;
        Ok(Self { http, whole, hidden: Vec::new() })
    }

    /// The same, for requests that carry this secret.
    pub(super) fn hiding(&self, secret: SecretString) -> Self {
        Self { hidden: vec![secret], ..self.clone() }
    }

    /// Sends a request and gives the token in its answer.
    pub(super) async fn token(&self, request: RequestBuilder) -> Result<SecretString, Failure> {
        token_response::token(&self.send(request).await?, &self.hidden)
    }

    /// Sends a request and gives the body of a 2xx answer.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let late = |_| Err(Failure::Broken(format!("the time was up after {} s", self.whole.as_secs())));
        tokio::time::timeout(self.whole, self.exchange(request)).await.unwrap_or_else(late)
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let mut response = request.send().await.map_err(told)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(Failure::Redirected(status.as_u16()));
        }
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(Failure::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(body);
        }
        Err(Failure::Refused(token_response::refusal(status, response.headers(), &body, &self.hidden)))
    }
}

fn told(error: reqwest::Error) -> Failure {
    // The origin alone: the query holds what was asked for.
    let there = error.url().map_or_else(|| "the service".to_owned(), |url| url.origin().ascii_serialization());
    let error = error.without_url();
    let connecting = error.is_connect() || error.is_builder();
    if connecting && error.is_timeout() {
        return Failure::ConnectTimedOut(there);
    }
    let text = format_chain(&error);
    if is_certificate_trouble(&error) {
        return Failure::Untrusted(text);
    }
    let timed_out = causes(&error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    match timed_out.map(std::io::Error::kind).find(|kind| *kind == ErrorKind::TimedOut) {
        Some(_) if connecting => Failure::ConnectTimedOut(there),
        _ if connecting => Failure::Unreachable(format!("{there}: {text}")),
        _ => Failure::Broken(text),
    }
}

/// Whether TLS itself failed, which trying again does not mend; a connection that broke during it may.
fn is_certificate_trouble(error: &reqwest::Error) -> bool {
    causes(error).any(<dyn std::error::Error>::is::<rustls::Error>)
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &'a (dyn std::error::Error + 'static)), |error| {
        // An error of input and output that wraps another one names that one's cause as its own, not the wrapped one.
        match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

const MACHINE_CONNECT: Duration = Duration::from_secs(2);
/// The metadata service may itself have to ask the token endpoint.
const MACHINE_WHOLE: Duration = Duration::from_secs(10);
const AUTHORITY_CONNECT: Duration = Duration::from_secs(5);
const AUTHORITY_WHOLE: Duration = Duration::from_secs(20);
