//! One call: a bounded wait, a bounded answer, an error in one line.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::RequestBuilder;
use url::Url;
use zeroize::Zeroizing;

use super::unreached;
use crate::error_chain::format_chain;
use crate::http::tls::FollowedFiles;

/// The largest answer that is read, in bytes.
pub const MAX_RESPONSE: usize = 1024 * 1024;

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    http: FollowedFiles<reqwest::Client>,
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
    pub(super) const fn new(http: FollowedFiles<reqwest::Client>, base: Url, name: String, timeout: Duration) -> Self {
        Self { http, base, name, timeout }
    }

    /// The server in words for messages: its origin, or its socket's path. No path, user or query.
    pub fn server(&self) -> &str {
        &self.name
    }

    /// The URL of a path on the server, below the address's own path. Segments are escaped; `..` is dropped.
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        // Fails for URLs that cannot be a base alone; building refused those.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/').filter(|segment| !segment.is_empty()));
        }
        url
    }

    /// A request to a path on the server, for [`Client::send`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.current().request(method, self.url(path))
    }

    /// As [`Client::request`], with the path's segments one by one: what is in a segment stays in it, a `/` too. A
    /// segment that is empty, `.` or `..` has no place in a URL; it is for the caller to refuse.
    pub fn request_to<'a>(&self, method: Method, segments: impl IntoIterator<Item = &'a str>) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self.http.current().request(method, url)
    }

    /// Sends a request and reads its whole answer, whatever its status, within the time that the options give.
    ///
    /// # Errors
    /// There was no whole answer in time, or it was too large.
    pub async fn send(&self, request: RequestBuilder) -> Result<ClientResponse, TransportError> {
        self.send_within(request, self.timeout).await
    }

    /// As [`Client::send`], with another time for the whole call.
    ///
    /// # Errors
    /// There was no whole answer in time, or it was too large.
    pub async fn send_within(&self, request: RequestBuilder, time: Duration) -> Result<ClientResponse, TransportError> {
        self.send_bounded(request, time, MAX_RESPONSE).await
    }

    /// As [`Client::send_within`], with another bound for the answer's body, in bytes.
    ///
    /// # Errors
    /// There was no whole answer in time, or it was too large.
    pub async fn send_bounded(
        &self,
        request: RequestBuilder,
        time: Duration,
        limit: usize,
    ) -> Result<ClientResponse, TransportError> {
        let server = || self.name.clone();
        let call = async { self.open(request, time).await?.read_all(time, limit).await };
        tokio::time::timeout(time, call)
            .await
            .unwrap_or_else(|_| Err(TransportError::TimedOut { server: server(), after: time }))
    }

    /// Sends a request and reads the head of its answer alone, within `time`; what follows is read piece by piece.
    ///
    /// # Errors
    /// There was no answer in time.
    pub async fn open(&self, request: RequestBuilder, time: Duration) -> Result<StreamingResponse, TransportError> {
        let sent = tokio::time::timeout(time, request.send()).await;
        let silent = |_| TransportError::TimedOut { server: self.name.clone(), after: time };
        let response = sent.map_err(silent)?.map_err(|error| self.failed(error))?;
        Ok(StreamingResponse { client: self.clone(), response })
    }

    fn failed(&self, error: reqwest::Error) -> TransportError {
        if error.is_connect() || error.is_builder() {
            // The proxy's, or one of several that a name stands for.
            let address = unreached::address(&error).map(|address| address.to_string());
            let cause = format_chain(&error.without_url());
            let cause = match address.filter(|address| !self.name.contains(address)) {
                Some(address) => format!("{address}: {cause}"),
                None => cause,
            };
            TransportError::Connect { server: self.name.clone(), cause }
        } else {
            self.broken(error)
        }
    }

    fn broken(&self, error: reqwest::Error) -> TransportError {
        TransportError::Broken { server: self.name.clone(), cause: format_chain(&error.without_url()) }
    }
}

/// Reads a body of at most `limit` bytes; `None` if it is larger. The time it takes is for the caller to bound.
///
/// # Errors
/// The connection ended before the body did.
pub async fn read_body(
    response: &mut reqwest::Response,
    limit: usize,
) -> Result<Option<Zeroizing<Vec<u8>>>, reqwest::Error> {
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An answer whose body is still coming.
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
    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The next bytes of its body, within `time`; `None` at its end.
    ///
    /// # Errors
    /// None came in time, or the body broke off.
    pub async fn chunk(&mut self, time: Duration) -> Result<Option<Bytes>, TransportError> {
        match tokio::time::timeout(time, self.response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| self.client.broken(error)),
            Err(_) => Err(TransportError::TimedOut { server: self.client.name.clone(), after: time }),
        }
    }

    /// The whole answer, within `time`, where its body has at most `limit` bytes.
    ///
    /// # Errors
    /// It did not come in time, broke off, or is larger.
    pub async fn read_all(mut self, time: Duration, limit: usize) -> Result<ClientResponse, TransportError> {
        let server = || self.client.name.clone();
        let body = tokio::time::timeout(time, read_body(&mut self.response, limit)).await;
        let body = body.map_err(|_| TransportError::TimedOut { server: server(), after: time })?;
        let body = body.map_err(|error| self.client.broken(error))?;
        let body = body.ok_or_else(|| TransportError::TooLarge { server: server(), limit })?;
        let headers = std::mem::take(self.response.headers_mut());
        Ok(ClientResponse { status: self.response.status(), headers, body })
    }
}

/// A whole answer.
pub struct ClientResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, within the bound that the call gave it.
    pub body: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ClientResponse {
    /// Neither headers nor body: both may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why there was no whole answer. Holds no URL beyond the server's origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No connection, or no TLS on it.
    #[error("cannot connect to {server}: {cause}")]
    Connect {
        /// The server in words.
        server: String,
        /// The whole chain of causes.
        cause: String,
    },
    /// The time for the whole call was up.
    #[error("no answer from {server} within {} s", after.as_secs_f32())]
    TimedOut {
        /// The server in words.
        server: String,
        /// The time that was given.
        after: Duration,
    },
    /// The connection ended, or spoke something else than HTTP, before the answer was whole.
    #[error("the call to {server} broke off: {cause}")]
    Broken {
        /// The server in words.
        server: String,
        /// The whole chain of causes.
        cause: String,
    },
    /// The answer was larger than what is read.
    #[error("the answer of {server} is larger than {limit} bytes")]
    TooLarge {
        /// The server in words.
        server: String,
        /// What is read at most.
        limit: usize,
    },
}
