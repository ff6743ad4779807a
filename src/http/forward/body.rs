//! Bodies on their way to an upstream: streamed, never collected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::keep::Copying;

/// What is sent to an upstream.
#[derive(Debug)]
pub enum Upstream {
    /// The caller's body, as it comes.
    Streamed(Incoming),
    /// The same, copied as it passes.
    Copied(Copying),
    /// What of the caller's body is here already, and the rest as it comes.
    Begun(Bytes, Incoming),
    /// A body of our own.
    Whole(Full<Bytes>),
}

impl Upstream {
    /// No body.
    pub fn empty() -> Self {
        Self::Whole(Full::default())
    }

    /// How many bytes it has, where that is known.
    pub fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }
}

impl Body for Upstream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Begun(bytes, _) if !bytes.is_empty() => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Streamed(body) | Self::Begun(_, body) => Pin::new(body).poll_frame(cx),
            Self::Copied(body) => Pin::new(body).poll_frame(cx),
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Begun(bytes, _) if !bytes.is_empty() => false,
            Self::Streamed(body) | Self::Begun(_, body) => body.is_end_stream(),
            Self::Copied(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Begun(bytes, _) if !bytes.is_empty() => SizeHint::default(),
            Self::Streamed(body) | Self::Begun(_, body) => body.size_hint(),
            Self::Copied(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
        }
    }
}

/// Counts the pieces of a body that have been sent, so that who waits for its answer knows that it moves.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved(Option<Arc<AtomicU64>>);

impl Moved {
    /// Of a body that is there at once nothing is counted.
    pub(super) fn of(body: &Upstream) -> Self {
        Self((!matches!(body, Upstream::Whole(_)) && !body.is_end_stream()).then(Arc::default))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// A body as a connection sends it.
#[derive(Debug)]
pub(super) struct Sent {
    body: Upstream,
    moved: Moved,
}

impl Sent {
    pub(super) const fn new(body: Upstream, moved: Moved) -> Self {
        Self { body, moved }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(count) = &this.moved.0 {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
