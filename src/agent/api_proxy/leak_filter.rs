//! Keeps the session's token out of responses: a server, or a proxy before it, may echo a request's headers.
//!
//! A body in memory is searched before any of it is passed on. In a streamed body, trailing bytes that may begin the token are
//! held back until the next chunk, so that the caller's connection is closed before the token is complete.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_ENCODING;
use hyper::body::{Body, Frame, SizeHint};
use keyward_http::reverse_proxy::{BufferedBody, ConnectionError, ResponseBody};
use prometheus_client::metrics::counter::Counter;

use super::token_search::{TokenFinder, partial_match_len};

/// Searches the responses to requests that carry the session's token.
#[derive(Debug)]
pub(super) struct LeakFilter {
    server: String,
    leaks: Counter,
    /// The first leak was logged. Each is counted.
    is_logged: AtomicBool,
}

/// Reason why a response is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Leak {
    /// It contains the token.
    #[error("the server's response contains the session's token and is not passed on")]
    Token,
    /// It is compressed, although the request allowed no compression.
    #[error(
        "the server compressed the response although the request forbade it, so it cannot be searched for the session's token"
    )]
    Encoded,
}

impl LeakFilter {
    pub(super) const fn new(server: String, leaks: Counter) -> Self {
        Self { server, leaks, is_logged: AtomicBool::new(false) }
    }

    /// Searches a response's head, and its body if it is in memory; otherwise the body is searched as it streams.
    pub(super) fn filter(
        self: &Arc<Self>,
        response: Response<ResponseBody>,
        finder: &Arc<TokenFinder>,
    ) -> Result<Response<FilteredBody>, Leak> {
        if !is_searchable(finder.token()) {
            return Ok(response.map(FilteredBody::unfiltered));
        }
        if finder.is_in_headers(response.headers()) {
            return Err(self.record_leak());
        }
        match response.body().whole() {
            Some(body) if finder.is_in(body) => return Err(self.record_leak()),
            Some(body) if body.is_empty() => return Ok(response.map(FilteredBody::unfiltered)),
            _ => {}
        }
        let mut codings = response.headers().get_all(CONTENT_ENCODING).iter();
        if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Leak::Encoded);
        }
        if response.body().whole().is_some() {
            return Ok(response.map(FilteredBody::unfiltered));
        }
        let finder = Arc::clone(finder);
        let filter = Arc::clone(self);
        let stream = StreamSearch { finder, filter, held_len: 0, end: None };
        Ok(response.map(|body| FilteredBody { body, stream: Some(Box::new(stream)) }))
    }

    fn record_leak(&self) -> Leak {
        self.leaks.inc();
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "proxy.token.leaked",
                server = self.server,
                "a response of the server contains the session's token and is not passed on; further ones are only counted"
            );
        }
        Leak::Token
    }
}

/// Returns true for tokens that a response does not contain by chance, unlike `root` of a test server.
const fn is_searchable(token: &[u8]) -> bool {
    token.len() >= MIN_TOKEN_LEN
}

/// In bytes.
const MIN_TOKEN_LEN: usize = 16;

/// A response body without the session's token.
pub struct FilteredBody {
    body: ResponseBody,
    /// Search of a streamed body. Boxed, as most bodies are in memory.
    stream: Option<Box<StreamSearch>>,
}

struct StreamSearch {
    finder: Arc<TokenFinder>,
    filter: Arc<LeakFilter>,
    /// Number of bytes that are held back; they equal the token's first.
    held_len: usize,
    /// The end of the body, if it came while bytes were held back.
    end: Option<StreamEnd>,
}

/// The end of a body.
enum StreamEnd {
    NoTrailers,
    Trailers(Frame<Bytes>),
}

impl FilteredBody {
    /// Wraps a body that needs no search.
    pub(super) const fn unfiltered(body: ResponseBody) -> Self {
        Self { body, stream: None }
    }

    /// Reads the body as [`ResponseBody::buffer`] does. Fails if it contains the token.
    pub(super) async fn buffer(self, limit: usize, idle: Duration) -> BufferedBody<Self> {
        let Self { body, stream } = self;
        match body.buffer(limit, idle).await {
            BufferedBody::Complete(bytes) => match &stream {
                Some(stream) if stream.finder.is_in(&bytes) => {
                    stream.filter.record_leak();
                    BufferedBody::Failed
                }
                _ => BufferedBody::Complete(bytes),
            },
            BufferedBody::TooLong(body) => BufferedBody::TooLong(Self { body, stream }),
            BufferedBody::Failed => BufferedBody::Failed,
        }
    }
}

impl fmt::Debug for FilteredBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilteredBody").field(&self.body).finish()
    }
}

/// Error of a [`FilteredBody`].
#[derive(Debug, thiserror::Error)]
pub enum FilteredBodyError {
    /// The server's response ended early.
    #[error(transparent)]
    Broken(#[from] ConnectionError),
    /// The body contains the session's token.
    #[error("the server's response contains the session's token")]
    Token,
}

impl StreamSearch {
    /// Searches a chunk behind the bytes that are held back. Returns the part that can be passed on.
    fn push(&mut self, chunk: Bytes) -> Result<Bytes, FilteredBodyError> {
        let token = self.finder.token();
        let mut chunk = match token.get(..self.held_len) {
            None | Some([]) => chunk,
            Some(prefix) => {
                let mut joined = BytesMut::with_capacity(prefix.len() + chunk.len());
                joined.extend_from_slice(prefix);
                joined.extend_from_slice(&chunk);
                joined.freeze()
            }
        };
        if self.finder.is_in(&chunk) {
            self.filter.record_leak();
            return Err(FilteredBodyError::Token);
        }
        self.held_len = partial_match_len(token, &chunk);
        chunk.truncate(chunk.len() - self.held_len);
        Ok(chunk)
    }

    /// Returns the bytes that were held back, which turned out to be no token.
    fn release(&mut self) -> Bytes {
        let token = self.finder.token();
        Bytes::copy_from_slice(token.get(..std::mem::take(&mut self.held_len)).unwrap_or_default())
    }
}

impl Body for FilteredBody {
    type Data = Bytes;
    type Error = FilteredBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilteredBodyError>>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map_err(FilteredBodyError::Broken)));
        };
        if let Some(end) = stream.end.take() {
            return Poll::Ready(match end {
                StreamEnd::NoTrailers => None,
                StreamEnd::Trailers(frame) => Some(Ok(frame)),
            });
        }
        loop {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => frame.into_data(),
                None if stream.held_len == 0 => return Poll::Ready(None),
                None => {
                    stream.end = Some(StreamEnd::NoTrailers);
                    return Poll::Ready(Some(Ok(Frame::data(stream.release()))));
                }
            };
            match frame {
                Ok(chunk) => match stream.push(chunk) {
                    Ok(chunk) if chunk.is_empty() => {}
                    chunk => return Poll::Ready(Some(chunk.map(Frame::data))),
                },
                Err(frame) => {
                    if frame.trailers_ref().is_some_and(|trailers| stream.finder.is_in_headers(trailers)) {
                        stream.filter.record_leak();
                        return Poll::Ready(Some(Err(FilteredBodyError::Token)));
                    }
                    if stream.held_len == 0 {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    stream.end = Some(StreamEnd::Trailers(frame));
                    return Poll::Ready(Some(Ok(Frame::data(stream.release()))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_held = self.stream.as_ref().is_some_and(|stream| stream.held_len > 0 || stream.end.is_some());
        !is_held && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let held_len = self.stream.as_ref().map_or(0, |stream| stream.held_len as u64);
        // The upper bound first: `SizeHint` panics where it falls below the lower one.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + held_len);
        }
        hint.set_lower(hint.lower() + held_len);
        hint
    }
}
