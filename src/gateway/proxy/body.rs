//! Bodies on their way through the gateway.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::link_rewriter::LinkRewriter;
use crate::http::body_buffer::{BufferBudget, FillError};
use crate::http::reverse_proxy::{ConnectionError, RequestBody, ResponseBody};

/// What a caller is sent.
#[derive(Debug)]
pub enum GatewayBody {
    /// An answer of the gateway's own, or one that was held as a whole.
    Buffered(Full<Bytes>),
    /// The platform's, as it comes.
    Streamed(ResponseBody),
    /// The platform's, its links moved as it comes.
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

/// A document whose links are moved as it passes: as much of it is in memory as comes at once.
#[derive(Debug)]
pub struct RewritingBody {
    body: ResponseBody,
    /// `None` once the document has ended.
    rewriter: Option<LinkRewriter>,
    /// What follows what was held back at the end.
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
                    // Trailers: the document is over.
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

/// A body of a caller: what can be sent again is held.
#[derive(Debug)]
pub(super) enum CallerBody {
    /// Held as a whole, perhaps empty.
    Buffered(Bytes),
    /// Sent on once: what of it is here, its next piece last, and the rest as it comes.
    Streamed(Vec<Bytes>, Incoming),
}

/// Why a body that was to be held could not be.
#[derive(Debug)]
pub(super) enum BufferError {
    /// It did not come in time.
    Timeout,
    /// It ended early.
    Broken,
}

/// The largest body that is held to be sent again where the platform refuses the token, in bytes.
const MAX_BUFFERED: usize = 1024 * 1024;

/// Memory for callers' bodies that are held, for all of them together, in bytes.
pub(super) const BUFFER_BUDGET: usize = 32 * 1024 * 1024;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);

impl CallerBody {
    /// Takes a body: held where it is small and there is memory for it, else to be streamed.
    pub(super) async fn receive(mut body: Incoming, budget: &BufferBudget) -> Result<Self, BufferError> {
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
            // Its caller may be one who makes it as it goes.
            Err(_) => Ok(Self::Streamed(vec![buffer.into_bytes()], body)),
        }
    }

    /// No body.
    pub(super) const fn empty() -> Self {
        Self::Buffered(Bytes::new())
    }

    /// The same once more, where it is held.
    pub(super) fn replay(&self) -> Option<Self> {
        match self {
            Self::Streamed(..) => None,
            Self::Buffered(bytes) => Some(Self::Buffered(bytes.clone())),
        }
    }

    /// What is held of it.
    pub(super) fn buffered(&self) -> Option<&[u8]> {
        match self {
            Self::Streamed(..) => None,
            Self::Buffered(bytes) => Some(bytes),
        }
    }

    /// What is sent.
    pub(super) fn into_request_body(self) -> RequestBody {
        match self {
            Self::Streamed(first, rest) if first.is_empty() => RequestBody::Streamed(rest),
            Self::Streamed(first, rest) => RequestBody::Prefixed(first, rest),
            Self::Buffered(bytes) => RequestBody::Buffered(Full::new(bytes)),
        }
    }
}
