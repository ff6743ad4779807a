//! Makes one call: with a time limit, a size limit for the response, and an error of one line.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use keyward_machine::os::request_page_release;
use keyward_telemetry::error_chain::{causes, format_chain};
use keyward_telemetry::error_code::ErrorCode;
use reqwest::RequestBuilder;
use url::Url;

use super::reqwest_resolver::ConnectionRoute;
use crate::tls::FileBacked;

/// Largest response body, in bytes.
pub const MAX_RESPONSE: usize = 1024 * 1024;

/// HTTP client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    http: FileBacked<reqwest::Client>,
    route: ConnectionRoute,
    base: Url,
    name: String,
    timeout: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.name).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) const fn new(
        http: FileBacked<reqwest::Client>,
        route: ConnectionRoute,
        base: Url,
        name: String,
        timeout: Duration,
    ) -> Self {
        Self { http, route, base, name, timeout }
    }

    /// Returns the server for messages: its origin or its socket's path, without path, user or query.
    pub fn server(&self) -> &str {
        &self.name
    }

    /// Returns the time limit of a call.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Builds the URL of a path below the address's own path. Segments are escaped; `..` is dropped.
    pub(crate) fn url(&self, path: &str) -> Url {
        join_path(&self.base, path)
    }

    /// Creates a request to a path, for [`Client::send`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.current().request(method, self.url(path))
    }

    /// Creates a request to the address itself, whose path is sent as it was written: another one may end without its slash.
    pub fn request_to_address(&self, method: Method) -> RequestBuilder {
        self.http.current().request(method, self.base.clone())
    }

    /// Creates a request from the path's segments; a `/` inside a segment is escaped. A URL cannot express a segment
    /// that is empty, `.` or `..`: the caller must refuse those.
    pub fn request_to<'a>(&self, method: Method, segments: impl IntoIterator<Item = &'a str>) -> RequestBuilder {
        self.http.current().request(method, join_segments(&self.base, segments))
    }

    /// Sends a request and reads its whole response, of any status, within the client's time limit.
    pub async fn send(&self, request: RequestBuilder) -> Result<ClientResponse, TransportError> {
        self.send_within(request, self.timeout).await
    }

    /// Sends a request like [`Client::send`] within `time`.
    pub async fn send_within(&self, request: RequestBuilder, time: Duration) -> Result<ClientResponse, TransportError> {
        self.send_bounded(request, time, MAX_RESPONSE).await
    }

    /// Sends a request like [`Client::send_within`] and reads at most `limit` bytes of body.
    pub async fn send_bounded(
        &self,
        request: RequestBuilder,
        time: Duration,
        limit: usize,
    ) -> Result<ClientResponse, TransportError> {
        let server = || self.name.clone();
        let call = async { self.open(request, time).await?.read_all(time, limit).await };
        let result = tokio::time::timeout(time, call).await;
        // Calls are minutes apart.
        request_page_release();
        result.unwrap_or_else(|_| Err(TransportError::TimedOut { server: server(), after: time }))
    }

    /// Sends a request and reads the head of its response within `time`; the body is read chunk by chunk afterwards.
    pub async fn open(&self, request: RequestBuilder, time: Duration) -> Result<StreamingResponse, TransportError> {
        let sent = tokio::time::timeout(time, request.send()).await;
        let timed_out = |_| TransportError::TimedOut { server: self.name.clone(), after: time };
        let response = sent.map_err(timed_out)?.map_err(|error| self.failed(error))?;
        Ok(StreamingResponse { client: self.clone(), response })
    }

    /// Converts an error of the HTTP library.
    pub fn failed(&self, error: reqwest::Error) -> TransportError {
        if error.is_connect() || error.is_builder() {
            // The addresses of the proxy or of the name; a server that fails in TLS was reached.
            let is_tls = causes(&error).any(<dyn std::error::Error>::is::<rustls::Error>);
            let addresses = if is_tls { Vec::new() } else { self.route.addresses() };
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let mut cause = if error.is_timeout() { TOO_SLOW.to_owned() } else { format_causes(&error.without_url()) };
            if addresses.iter().any(|address| !self.name.contains(address)) {
                cause = format!("{}: {cause}", addresses.join(", "));
            }
            TransportError::Connect { server: self.name.clone(), cause }
        } else {
            self.to_transport_error(error)
        }
    }

    fn to_transport_error(&self, error: reqwest::Error) -> TransportError {
        TransportError::Broken { server: self.name.clone(), cause: format_causes(&error.without_url()) }
    }
}

/// Cause of a connection that was not there within the client's time; the library only says that a deadline has elapsed.
const TOO_SLOW: &str = "no connection within the time allowed";

/// Formats why a call failed, without the layers of the HTTP libraries that only say that it did.
fn format_causes(error: &reqwest::Error) -> String {
    let is_layer = |error: &(dyn std::error::Error + 'static)| {
        error.is::<reqwest::Error>() || error.is::<hyper_util::client::legacy::Error>()
    };
    causes(error).find(|error| !is_layer(*error)).map_or_else(|| format_chain(error), format_chain)
}

/// Appends a path to a URL. Segments are escaped; `..` is dropped.
fn join_path(base: &Url, path: &str) -> Url {
    join_segments(base, path.split('/').filter(|segment| !segment.is_empty()))
}

/// Appends segments to the path of a URL. A `/` inside a segment is escaped.
fn join_segments<'a>(base: &Url, segments: impl IntoIterator<Item = &'a str>) -> Url {
    let mut url = base.clone();
    // Fails only for URLs that cannot be a base; building refused those.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// Reads a body of at most `limit` bytes; `None` if it is larger. The caller limits the time.
pub async fn read_body(response: &mut reqwest::Response, limit: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Response whose body is still being received.
pub struct StreamingResponse {
    client: Client,
    response: reqwest::Response,
}

impl std::fmt::Debug for StreamingResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamingResponse").field("status", &self.response.status()).finish_non_exhaustive()
    }
}

impl StreamingResponse {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn into_inner(self) -> reqwest::Response {
        self.response
    }

    /// Reads the next chunk of the body within `time`; `None` at its end.
    pub async fn chunk(&mut self, time: Duration) -> Result<Option<Bytes>, TransportError> {
        match tokio::time::timeout(time, self.response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| self.client.to_transport_error(error)),
            Err(_) => Err(TransportError::TimedOut { server: self.client.name.clone(), after: time }),
        }
    }

    /// Reads the rest of the response within `time`, at most `limit` bytes of body.
    pub async fn read_all(mut self, time: Duration, limit: usize) -> Result<ClientResponse, TransportError> {
        let server = || self.client.name.clone();
        let body = tokio::time::timeout(time, read_body(&mut self.response, limit)).await;
        let body = body.map_err(|_| TransportError::TimedOut { server: server(), after: time })?;
        let body = body.map_err(|error| self.client.to_transport_error(error))?;
        let body = body.ok_or_else(|| TransportError::TooLarge { server: server(), limit })?;
        let headers = std::mem::take(self.response.headers_mut());
        Ok(ClientResponse { status: self.response.status(), headers, body })
    }
}

/// Complete response.
pub struct ClientResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, within the limit of the call.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for ClientResponse {
    /// Prints neither headers nor body: both may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Reason why there was no complete response. Holds no URL beyond the server's origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No connection, or no TLS on it.
    #[error("cannot connect to {server}: {cause}")]
    Connect {
        /// The server.
        server: String,
        /// All causes on one line.
        cause: String,
    },
    /// The time limit has passed.
    #[error("no response from {server} within {} s", after.as_secs_f32())]
    TimedOut {
        /// The server.
        server: String,
        /// Time limit.
        after: Duration,
    },
    /// The connection ended or did not speak HTTP before the response was complete.
    #[error("the call to {server} failed: {cause}")]
    Broken {
        /// The server.
        server: String,
        /// All causes on one line.
        cause: String,
    },
    /// The response is larger than the limit.
    #[error("the response of {server} is larger than {limit} bytes")]
    TooLarge {
        /// The server.
        server: String,
        /// Limit in bytes.
        limit: usize,
    },
    /// The server's handshake of a WebSocket is invalid.
    #[error("{server} did not open a WebSocket: {defect}")]
    NotWebSocket {
        /// The server.
        server: String,
        /// The defect.
        defect: &'static str,
    },
}

impl TransportError {
    /// Returns the code for operators.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Connect { cause, .. } | Self::Broken { cause, .. } => connection_error_code(cause),
            Self::TimedOut { .. } => ErrorCode::ServerTimeout,
            Self::TooLarge { .. } | Self::NotWebSocket { .. } => ErrorCode::InvalidResponse,
        }
    }
}

/// Returns the code of a failed connection by the text of its causes: the types of the name resolver are private.
pub fn connection_error_code(causes: &str) -> ErrorCode {
    let has = |patterns: &[&str]| patterns.iter().any(|pattern| causes.contains(pattern));
    if has(&["peer certificate", "fatal alert", "corrupt message", "NotValidForName", "UnknownIssuer"]) {
        ErrorCode::ServerCertificate
    } else if has(&["dns error", "failed to lookup address", "Name or service not known", "name resolution"]) {
        ErrorCode::ServerNameUnknown
    } else {
        ErrorCode::ServerUnreachable
    }
}
