//! How a call is made: address, token, namespace, retries, and what an answer is.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{Error, refusal};
use super::query::{Query, Reading};
use crate::backoff::{Backoff, random_unit};
use crate::http::client;
use crate::http::client::{BuildError, ClientResponse, ProxyMode, ServerAddress, TlsOptions, TransportError};

/// What a client is built from.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server is and how to reach it. The path of a URL is put before `/v1`.
    pub http: client::ClientOptions,
    /// The secret that calls carry; without one they are anonymous.
    pub token: Option<SecretString>,
    /// The namespace that calls are for; the token's own, where none is given. `*` in lists is all of them.
    pub namespace: Option<String>,
}

impl Options {
    /// A server at a URL, trusted as the system's certificates say, with 5 s to connect and 30 s to answer.
    pub fn at(url: url::Url) -> Self {
        let http = client::ClientOptions {
            address: ServerAddress::Url(url),
            tls: TlsOptions::default(),
            proxy: ProxyMode::Environment,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        };
        Self { http, token: None, namespace: None }
    }
}

/// A client of one server, with one token, in one namespace. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Client {
    http: client::Client,
    answer_timeout: Duration,
    token: Option<SecretString>,
    namespace: Option<String>,
}

/// What a call goes to.
pub(super) struct To<'a> {
    /// Segments of the path below `/v1`.
    pub(super) path: &'a [&'a str],
    /// What it is called in an error, with its article.
    pub(super) name: &'static str,
    /// The first version of the service that has it, if not all have.
    pub(super) since: Option<&'static str>,
}

impl Client {
    /// Reads the certificates that the options name. Nothing is sent yet.
    ///
    /// # Errors
    /// A file cannot be used, or the address cannot be: see [`BuildError`].
    pub fn new(options: &Options) -> Result<Self, BuildError> {
        Ok(Self {
            http: options.http.build()?,
            answer_timeout: options.http.answer_timeout,
            token: options.token.clone(),
            namespace: options.namespace.clone(),
        })
    }

    /// The same server and namespace with another token.
    #[must_use]
    pub fn with_token(&self, token: SecretString) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// The same server and namespace without a token.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    /// The same server and token in another namespace; `None` for the token's own.
    #[must_use]
    pub fn in_namespace(&self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..self.clone() }
    }

    /// Whether calls carry a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn http(&self) -> &client::Client {
        &self.http
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    pub(super) fn token(&self) -> Option<&SecretString> {
        self.token.as_ref()
    }

    /// The server in words: its origin, or its socket's path.
    pub fn server(&self) -> &str {
        self.http.server()
    }

    /// Reads something.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        to: &To<'_>,
        parameters: &[(&str, &str)],
        query: &Query,
    ) -> Result<Reading<T>, Error> {
        let answer = self.read(to, parameters, query).await?;
        let value = parse(&answer)?;
        Ok(Reading::of(&answer.headers).map(|()| value))
    }

    /// Reads something, and gives the answer as it came.
    pub(super) async fn read(
        &self,
        to: &To<'_>,
        parameters: &[(&str, &str)],
        query: &Query,
    ) -> Result<ClientResponse, Error> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            let request = self.request(Method::GET, to)?.query(&query.parameters()).query(parameters);
            match self.send(request, to, query.held_back()).await {
                Err(Error::Transport(TransportError::Connect { .. } | TransportError::Broken { .. }))
                    if backoff.failures() < READ_AGAIN =>
                {
                    tokio::time::sleep(backoff.next(random_unit())).await;
                }
                result => return result,
            }
        }
    }

    /// Sends a body and reads what the server made of it.
    pub(super) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        to: &To<'_>,
        body: &(impl Serialize + Sync),
    ) -> Result<T, Error> {
        let request = self.request(method, to)?.json(body);
        parse(&self.send(request, to, Duration::ZERO).await?)
    }

    /// Deletes something. `false`: it was not there, whichever way the server says so.
    pub(super) async fn delete(&self, to: &To<'_>) -> Result<bool, Error> {
        let request = self.request(Method::DELETE, to)?;
        match self.send(request, to, Duration::ZERO).await {
            // A deletion without a body tells all by its status.
            Ok(answer) if answer.body.trim_ascii().is_empty() => Ok(true),
            Ok(answer) => parse(&answer),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A call without a body.
    pub(super) fn request(&self, method: Method, to: &To<'_>) -> Result<RequestBuilder, Error> {
        if let Some(segment) = to.path.iter().find(|segment| ["", ".", ".."].contains(segment)) {
            return Err(Error::Invalid { text: format!("{segment:?} is no name or id") });
        }
        let mut request = self.http.request_to(method, std::iter::once("v1").chain(to.path.iter().copied()));
        if let Some(token) = &self.token {
            let value = HeaderValue::from_str(token.expose_secret());
            let mut value = value
                .map_err(|_| Error::Invalid { text: "the token holds characters that no header takes".to_owned() })?;
            value.set_sensitive(true);
            request = request.header("x-service-token", value);
        }
        if let Some(namespace) = &self.namespace {
            request = request.query(&[("ns", namespace)]);
        }
        Ok(request)
    }

    /// Sends a call once.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        to: &To<'_>,
        held_back: Duration,
    ) -> Result<ClientResponse, Error> {
        let answer = self.http.send_bounded(request, self.answer_timeout + held_back, LARGEST_ANSWER).await?;
        if answer.status == StatusCode::OK {
            return Ok(answer);
        }
        let sent = self.token.as_ref().map_or("", |token| token.expose_secret());
        Err(refusal((answer.status, &answer.headers, &answer.body), to.name, to.since, sent))
    }
}

/// How often a read that had no answer is sent again.
const READ_AGAIN: u32 = 2;

/// A list of half a million tokens is as large.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

pub(super) fn parse<T: DeserializeOwned>(answer: &ClientResponse) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        // Not the error's own text: it may quote the answer.
        let (line, column) = (error.line(), error.column());
        let text = format!("the answer cannot be read from line {line}, column {column} on");
        Error::Unexpected { status: answer.status.as_u16(), text }
    })
}
