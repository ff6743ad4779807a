//! Client for calls that carry tokens and logins: requests and responses are zeroed when they are freed, which reqwest
//! does not do.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use keyward_machine::secret::{self, SecretWriter};
use keyward_telemetry::error_chain::format_chain;
use serde::Serialize;
use tokio::time::Instant;
use url::Url;
use zeroize::Zeroizing;

use crate::client::{
    BuildError, ClientOptions, ClientResponse, MAX_RESPONSE, TransportError, join_path, join_segments,
};
use crate::reverse_proxy::{
    ForwardError, Forwarder, ForwarderOptions, RequestBody, RequestHead, RequestLine, ResponseBody, UpstreamOutcome,
    UpstreamRecorder, UpstreamTarget, UpstreamTargetError,
};
use crate::server::ConnectionCaller;

/// Client of one server for calls that carry secrets. Clones share it.
#[derive(Debug, Clone)]
pub struct ZeroizingClient {
    forwarder: Forwarder,
    base: Url,
    host: HeaderValue,
    /// The server for messages.
    name: String,
    timeout: Duration,
    /// Counts calls by the class of their path, which the function returns.
    recorder: Option<(UpstreamRecorder, Classify)>,
}

/// Returns the index of the class of a path.
pub(crate) type Classify = fn(&str) -> usize;

/// Request to a server, zeroed on drop.
pub struct ZeroizingRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    auth: Option<(HeaderName, HeaderValue)>,
    body: Zeroizing<Vec<u8>>,
    /// Part of the request that cannot be sent.
    invalid: Option<&'static str>,
}

impl fmt::Debug for ZeroizingRequest {
    /// Without headers, query and body, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZeroizingRequest")
            .field("method", &self.method)
            .field("path", &self.url.path())
            .finish_non_exhaustive()
    }
}

impl ZeroizingRequest {
    /// Sets a header that is not secret.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        match HeaderValue::from_bytes(value.as_bytes()) {
            Ok(value) => drop(self.headers.insert(name, value)),
            Err(_) => self.invalid = Some(name),
        }
        self
    }

    /// Sets the header that authenticates the request.
    #[must_use]
    pub fn auth_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.auth = Some((name, value));
        self
    }

    /// Adds parameters to the query.
    #[must_use]
    pub fn query(mut self, pairs: &[(impl AsRef<str>, impl AsRef<str>)]) -> Self {
        self.url.query_pairs_mut().extend_pairs(pairs);
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, body: &impl Serialize) -> Self {
        let mut bytes = Zeroizing::new(Vec::with_capacity(BODY_CAPACITY));
        if serde_json::to_writer(SecretWriter::new(&mut bytes), body).is_err() {
            self.invalid = Some("body");
        }
        self.body = bytes;
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }
}

/// Initial capacity of bodies, in bytes: more than a login or a look-up has.
const BODY_CAPACITY: usize = 16 * 1024;

impl ZeroizingClient {
    /// Builds a client that follows the changes of its certificate files. Sends nothing yet.
    pub fn build(options: &ClientOptions) -> Result<Self, BuildError> {
        let base = options.validate()?;
        let name = options.server();
        let UpstreamTarget { target, tls, host, .. } =
            UpstreamTarget::resolve(options).map_err(|error| match error {
                UpstreamTargetError::NoHost => BuildError::Url { address: name.clone() },
                UpstreamTargetError::Proxy => BuildError::Proxy,
                UpstreamTargetError::Tls(error) => BuildError::Certificate(error),
            })?;
        let forwarder = Forwarder::for_secrets(ForwarderOptions {
            target,
            tls,
            connections: CONNECTIONS,
            // Calls are minutes apart, so a kept connection would more often be dead (suspend, restart) than useful.
            idle: Duration::ZERO,
            connect_timeout: options.connect_timeout,
            body_idle: None,
            recorder: None,
        });
        Ok(Self {
            forwarder,
            base,
            host,
            name,
            timeout: options.response_timeout.max(options.connect_timeout),
            recorder: None,
        })
    }

    /// Counts calls from now on. `classify` returns the index of a path's class, from the path below the server's address.
    pub fn record_in(&mut self, recorder: UpstreamRecorder, classify: Classify) {
        self.recorder = Some((recorder, classify));
    }

    /// Returns the server for messages: its origin or its socket's path, without path, user or query.
    pub fn server(&self) -> &str {
        &self.name
    }

    /// Returns the time limit of a call.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Creates a request to a path.
    pub fn request(&self, method: Method, path: &str) -> ZeroizingRequest {
        Self::request_to_url(method, join_path(&self.base, path))
    }

    /// Creates a request to a path of segments; a `/` inside a segment is escaped. The caller refuses segments that are
    /// empty, `.` or `..`.
    pub fn request_to<'a>(&self, method: Method, segments: impl IntoIterator<Item = &'a str>) -> ZeroizingRequest {
        Self::request_to_url(method, join_segments(&self.base, segments))
    }

    fn request_to_url(method: Method, url: Url) -> ZeroizingRequest {
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
        ]);
        ZeroizingRequest { method, url, headers, auth: None, body: Zeroizing::default(), invalid: None }
    }

    /// Sends a request and reads its whole response, of any status, within the server's time limit.
    pub async fn send(&self, request: ZeroizingRequest) -> Result<ClientResponse, TransportError> {
        self.send_within(request, self.timeout).await
    }

    /// Sends a request like [`ZeroizingClient::send`] within `time`.
    pub async fn send_within(
        &self,
        request: ZeroizingRequest,
        time: Duration,
    ) -> Result<ClientResponse, TransportError> {
        let late = |_| Err(TransportError::TimedOut { server: self.name.clone(), after: time });
        let started = Instant::now();
        let path = self.recorder.is_some().then(|| request.url.path().to_owned());
        let result = tokio::time::timeout(time, self.exchange(request, time)).await.unwrap_or_else(late);
        if let (Some((recorder, classify)), Some(path)) = (&self.recorder, path) {
            let outcome = match &result {
                Ok(response) => UpstreamOutcome::Response(response.status),
                Err(TransportError::Connect { .. }) => UpstreamOutcome::Unreachable,
                Err(TransportError::TimedOut { .. }) => UpstreamOutcome::Timeout,
                Err(TransportError::Broken { .. } | TransportError::TooLarge { .. }) => UpstreamOutcome::Broken,
            };
            recorder.record(classify(self.below_base(&path)), outcome, started.elapsed());
        }
        result
    }

    /// Returns a path without the prefix of the server's address, and without `v1/`.
    fn below_base<'a>(&self, path: &'a str) -> &'a str {
        let below = path.strip_prefix(self.base.path()).unwrap_or(path).trim_start_matches('/');
        below.strip_prefix("v1/").unwrap_or(below)
    }

    async fn exchange(&self, request: ZeroizingRequest, time: Duration) -> Result<ClientResponse, TransportError> {
        let ZeroizingRequest { method, url, mut headers, auth, body, invalid } = request;
        let broken = |cause| TransportError::Broken { server: self.name.clone(), cause };
        if let Some(part) = invalid {
            return Err(broken(format!("invalid {part} in the request")));
        }
        let target = match url.query() {
            None => url.path().parse(),
            Some(query) => format!("{}?{query}", url.path()).parse::<PathAndQuery>(),
        };
        let target = target.map_err(|error| broken(error.to_string()))?;
        if body.is_empty() && !method.is_safe() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let body = if body.is_empty() { Bytes::new() } else { Bytes::from_owner(body) };
        let body = RequestBody::Buffered(Full::new(body));
        let line = RequestLine { method: &method, prefix: "", target: &target, host: &self.host };
        let mut head = RequestHead::new(line, &headers, |_| true, &body);
        if let Some((name, value)) = &auth {
            head.set_auth_header(name, value);
        }
        let response = self.forwarder.send(ConnectionCaller::own_process(), &head, body, time).await;
        let (parts, body) = response.map_err(|error| self.failed(error))?.into_parts();
        Ok(ClientResponse { status: parts.status, headers: parts.headers, body: self.read(body).await? })
    }

    async fn read(&self, mut body: ResponseBody) -> Result<Zeroizing<Vec<u8>>, TransportError> {
        let server = || self.name.clone();
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut bytes = Zeroizing::new(Vec::with_capacity(announced.clamp(BODY_CAPACITY, MAX_RESPONSE)));
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| TransportError::Broken { server: server(), cause: format_chain(&error) })?;
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len() + piece.len() > MAX_RESPONSE {
                return Err(TransportError::TooLarge { server: server(), limit: MAX_RESPONSE });
            }
            secret::append(&mut bytes, &piece);
        }
        Ok(bytes)
    }

    fn failed(&self, error: ForwardError) -> TransportError {
        let server = self.name.clone();
        match error {
            ForwardError::Connect(address, error) => {
                let cause = format_chain(&error);
                let cause = if server.contains(&address) { cause } else { format!("{address}: {cause}") };
                TransportError::Connect { server, cause }
            }
            ForwardError::ConnectTimeout { .. } | ForwardError::Busy(_) | ForwardError::ShareBusy(_) => {
                TransportError::Connect { server, cause: format_chain(&error) }
            }
            ForwardError::ResponseTimeout(after) => TransportError::TimedOut { server, after },
            ForwardError::Connection(error) | ForwardError::RequestBody(error) => {
                TransportError::Broken { server, cause: format_chain(&error) }
            }
        }
    }
}

/// Limit of concurrent calls to one server, far above what a session or a gateway makes.
const CONNECTIONS: usize = 512;
