//! Request and response bodies on their way through the gateway.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use keyward_http::body_buffer::{BufferBudget, FillError};
use keyward_http::reverse_proxy::{ConnectionError, RequestBody, ResponseBody};
use keyward_http::server::IncomingBody;

use super::link_rewriter::LinkRewriter;

/// Body of a response to a caller.
#[derive(Debug)]
pub enum GatewayBody {
    /// The gateway's own response, or one that was buffered.
    Buffered(Full<Bytes>),
    /// The platform's response, streamed unchanged.
    Streamed(ResponseBody),
    /// The platform's response, streamed with its links rewritten.
    Rewriting(Box<RewritingBody>),
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        match self.get_mut() {
            Self::Buffered(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
            Self::Rewriting(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered(body) => body.is_end_stream(),
            Self::Streamed(body) => body.is_end_stream(),
            Self::Rewriting(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered(body) => body.size_hint(),
            Self::Streamed(body) => body.size_hint(),
            Self::Rewriting(_) => SizeHint::default(),
        }
    }
}

/// A JSON document whose links are rewritten as it streams; holds one chunk at a time.
#[derive(Debug)]
pub struct RewritingBody {
    body: ResponseBody,
    /// `None` once the document has ended.
    rewriter: Option<LinkRewriter>,
    /// Frame that follows the bytes held back at the end.
    last: Option<Frame<Bytes>>,
}

impl RewritingBody {
    pub(super) const fn new(body: ResponseBody, rewriter: LinkRewriter) -> Self {
        Self { body, rewriter: Some(rewriter), last: None }
    }
}

impl Body for RewritingBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let this = &mut *self;
        loop {
            if let Some(last) = this.last.take() {
                return Poll::Ready(Some(Ok(last)));
            }
            let Some(rewriter) = &mut this.rewriter else { return Poll::Ready(None) };
            let mut out = Vec::new();
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => rewriter.rewrite(&bytes, &mut out),
                    // Trailers: the document is complete.
                    Err(trailers) => {
                        rewriter.finish(&mut out);
                        (this.rewriter, this.last) = (None, Some(trailers));
                    }
                },
                None => {
                    rewriter.finish(&mut out);
                    this.rewriter = None;
                }
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }
}

/// A caller's request body, buffered if it may have to be sent again.
#[derive(Debug)]
pub(super) enum CallerBody {
    /// Buffered completely, perhaps empty.
    Buffered(Bytes),
    /// Streamed once: the chunks read so far (the last one newest), and the rest.
    Streamed(Vec<Bytes>, IncomingBody),
}

/// Error of reading a body into the buffer.
#[derive(Debug)]
pub(super) enum BufferError {
    /// It did not arrive in time.
    Timeout,
    /// It ended early.
    Broken,
}

/// Largest body, in bytes, that is buffered to be sent again after the platform rejects the token.
const MAX_BUFFERED: usize = 1024 * 1024;

/// Memory for buffered bodies of all callers together, in bytes.
pub(super) const BUFFER_BUDGET: usize = 32 * 1024 * 1024;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);

impl CallerBody {
    /// Reads a body: buffered if it is small and the budget allows it, else left to stream.
    pub(super) async fn receive(mut body: IncomingBody, budget: &BufferBudget) -> Result<Self, BufferError> {
        if body.is_end_stream() {
            return Ok(Self::empty());
        }
        if body.size_hint().lower() > MAX_BUFFERED as u64 {
            return Ok(Self::Streamed(Vec::new(), body));
        }
        let has_length = body.size_hint().exact().is_some();
        let mut buffer = budget.buffer(MAX_BUFFERED);
        match tokio::time::timeout(BODY_TIMEOUT, buffer.fill(&mut body)).await {
            Ok(Ok(())) => Ok(Self::Buffered(buffer.into_bytes())),
            Ok(Err(FillError::Full(_, chunk))) => Ok(Self::Streamed(vec![chunk, buffer.into_bytes()], body)),
            Ok(Err(FillError::Broken(_))) => Err(BufferError::Broken),
            Err(_) if has_length => Err(BufferError::Timeout),
            // Without a length the caller may be producing the body as it goes: stream it.
            Err(_) => Ok(Self::Streamed(vec![buffer.into_bytes()], body)),
        }
    }

    /// An empty body.
    pub(super) const fn empty() -> Self {
        Self::Buffered(Bytes::new())
    }

    /// Copies the body for another attempt, if it is buffered.
    pub(super) fn replay(&self) -> Option<Self> {
        match self {
            Self::Streamed(..) => None,
            Self::Buffered(bytes) => Some(Self::Buffered(bytes.clone())),
        }
    }

    /// Returns the bytes, if it is buffered.
    pub(super) fn buffered(&self) -> Option<&[u8]> {
        match self {
            Self::Streamed(..) => None,
            Self::Buffered(bytes) => Some(bytes),
        }
    }

    /// Converts to the body of a request to the platform.
    pub(super) fn into_request_body(self) -> RequestBody {
        match self {
            Self::Streamed(first, rest) if first.is_empty() => RequestBody::Streamed(rest),
            Self::Streamed(first, rest) => RequestBody::Prefixed(first, rest),
            Self::Buffered(bytes) => RequestBody::Buffered(Full::new(bytes)),
        }
    }
}
