//! Bodies on their way through the gateway.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::link_rewriter::Links;
use crate::http::body_buffer::{BufferBudget, FillError};
use crate::http::reverse_proxy::{ConnectionError, RequestBody, ResponseBody};

/// What a caller is sent.
#[derive(Debug)]
pub enum Answered {
    /// An answer of the gateway's own, or one that was held as a whole.
    Whole(Full<Bytes>),
    /// The platform's, as it comes.
    Streamed(ResponseBody),
    /// The platform's, its links moved as it comes.
    Moved(Box<Moving>),
}

impl Body for Answered {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
            Self::Moved(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Streamed(body) => body.is_end_stream(),
            Self::Moved(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Streamed(body) => body.size_hint(),
            Self::Moved(_) => SizeHint::default(),
        }
    }
}

/// A document whose links are moved as it passes: as much of it is in memory as comes at once.
#[derive(Debug)]
pub struct Moving {
    body: ResponseBody,
    /// `None` once the document has ended.
    links: Option<Links>,
    /// What follows what was held back at the end.
    last: Option<Frame<Bytes>>,
}

impl Moving {
    pub(super) const fn new(body: ResponseBody, links: Links) -> Self {
        Self { body, links: Some(links), last: None }
    }
}

impl Body for Moving {
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
            let Some(links) = &mut this.links else { return Poll::Ready(None) };
            let mut out = Vec::new();
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => links.pass(&bytes, &mut out),
                    // Trailers: the document is over.
                    Err(trailers) => {
                        links.end(&mut out);
                        (this.links, this.last) = (None, Some(trailers));
                    }
                },
                None => {
                    links.end(&mut out);
                    this.links = None;
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
pub(super) enum Asked {
    /// Held as a whole, perhaps empty.
    Held(Bytes),
    /// Sent on once: what of it is here, its next piece last, and the rest as it comes.
    Streamed(Vec<Bytes>, Incoming),
}

/// Why a body that was to be held could not be.
#[derive(Debug)]
pub(super) enum Unheld {
    /// It did not come in time.
    Late,
    /// It ended early.
    Broken,
}

/// The largest body that is held to be sent again where the platform refuses the token, in bytes.
const HELD: usize = 1024 * 1024;

/// Memory for callers' bodies that are held, for all of them together, in bytes.
pub(super) const ALL_HELD: usize = 32 * 1024 * 1024;

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

impl Asked {
    /// Takes a body: held where it is small and there is memory for it, else to be streamed.
    pub(super) async fn take(mut body: Incoming, budget: &BufferBudget) -> Result<Self, Unheld> {
        if body.is_end_stream() {
            return Ok(Self::empty());
        }
        if body.size_hint().lower() > HELD as u64 {
            return Ok(Self::Streamed(Vec::new(), body));
        }
        let told = body.size_hint().exact().is_some();
        let mut buffer = budget.buffer(HELD);
        match tokio::time::timeout(ARRIVES_WITHIN, buffer.fill(&mut body)).await {
            Ok(Ok(())) => Ok(Self::Held(buffer.into_bytes())),
            Ok(Err(FillError::Full(_, piece))) => Ok(Self::Streamed(vec![piece, buffer.into_bytes()], body)),
            Ok(Err(FillError::Broken(_))) => Err(Unheld::Broken),
            Err(_) if told => Err(Unheld::Late),
            // Its caller may be one who makes it as it goes.
            Err(_) => Ok(Self::Streamed(vec![buffer.into_bytes()], body)),
        }
    }

    /// No body.
    pub(super) const fn empty() -> Self {
        Self::Held(Bytes::new())
    }

    /// The same once more, where it is held.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Streamed(..) => None,
            Self::Held(bytes) => Some(Self::Held(bytes.clone())),
        }
    }

    /// What is held of it.
    pub(super) fn held(&self) -> Option<&[u8]> {
        match self {
            Self::Streamed(..) => None,
            Self::Held(bytes) => Some(bytes),
        }
    }

    /// What is sent.
    pub(super) fn send(self) -> RequestBody {
        match self {
            Self::Streamed(first, rest) if first.is_empty() => RequestBody::Streamed(rest),
            Self::Streamed(first, rest) => RequestBody::Prefixed(first, rest),
            Self::Held(bytes) => RequestBody::Buffered(Full::new(bytes)),
        }
    }
}
