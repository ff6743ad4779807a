//! Bodies on their way to an upstream: streamed, never collected.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Instant;

use super::http1::ConnectionError;
use super::replay_buffer::TeeBody;

/// What is sent to an upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// The caller's body, as it comes.
    Streamed(Incoming),
    /// The same, copied as it passes.
    Teed(TeeBody),
    /// The pieces of the caller's body that are here already, the next one last, and the rest as it comes.
    Prefixed(Vec<Bytes>, Incoming),
    /// A body of our own.
    Buffered(Full<Bytes>),
}

impl RequestBody {
    /// No body.
    pub fn empty() -> Self {
        Self::Buffered(Full::default())
    }

    /// How many bytes it has, where that is known.
    pub fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
            Self::Prefixed(pieces, body) => match pieces.pop() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None => Pin::new(body).poll_frame(cx),
            },
            Self::Teed(body) => Pin::new(body).poll_frame(cx),
            Self::Buffered(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Prefixed(pieces, _) if !pieces.is_empty() => false,
            Self::Streamed(body) | Self::Prefixed(_, body) => body.is_end_stream(),
            Self::Teed(body) => body.is_end_stream(),
            Self::Buffered(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Prefixed(pieces, _) if !pieces.is_empty() => SizeHint::default(),
            Self::Streamed(body) | Self::Prefixed(_, body) => body.size_hint(),
            Self::Teed(body) => body.size_hint(),
            Self::Buffered(body) => body.size_hint(),
        }
    }
}

/// Progress of a body, for the time-outs of the exchange that sends it.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyProgress(Option<Arc<Mutex<Progress>>>);

#[derive(Debug, Default)]
struct Progress {
    /// Pieces so far.
    pieces: u64,
    /// Since when its caller is waited for, if it is.
    awaited_since: Option<Instant>,
    /// Time that its caller was waited for before that, and bytes that came, in the current window.
    awaited: Duration,
    bytes: u64,
}

impl Progress {
    fn awaited(&self) -> Duration {
        self.awaited + self.awaited_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn is_too_slow(&self) -> bool {
        self.awaited() >= WINDOW && self.bytes < SLOWEST * WINDOW.as_secs()
    }

    /// A piece has come.
    fn moved(&mut self, bytes: usize) {
        self.awaited = self.awaited();
        self.awaited_since = None;
        self.pieces += 1;
        self.bytes += bytes as u64;
        if self.awaited >= WINDOW && !self.is_too_slow() {
            (self.awaited, self.bytes) = (Duration::ZERO, 0);
        }
    }
}

/// A body has at least so many bytes a second,
const SLOWEST: u64 = 1024;
/// while its caller is waited for, over this time.
const WINDOW: Duration = Duration::from_secs(30);

impl BodyProgress {
    /// Of a body that is there at once nothing is counted.
    pub(super) fn new(body: &RequestBody) -> Self {
        Self((!matches!(body, RequestBody::Buffered(_)) && !body.is_end_stream()).then(Arc::default))
    }

    fn with<R>(&self, look: impl FnOnce(&mut Progress) -> R) -> Option<R> {
        self.0.as_ref().map(|progress| look(&mut progress.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Pieces so far.
    pub(super) fn count(&self) -> u64 {
        self.with(|progress| progress.pieces).unwrap_or(0)
    }

    /// Until when its caller is waited for, if it sends nothing more; `None` while nobody waits for it.
    pub(super) fn awaited_until(&self) -> Option<Instant> {
        self.with(|progress| Some(progress.awaited_since? + WINDOW.saturating_sub(progress.awaited)))?
    }

    /// True once its caller was waited for over a whole window and sent too little in it. A good window is followed by a new one.
    pub(super) fn is_too_slow(&self) -> bool {
        let judge = |progress: &mut Progress| {
            let too_slow = progress.is_too_slow();
            if !too_slow && progress.awaited() >= WINDOW {
                (progress.awaited, progress.bytes) = (Duration::ZERO, 0);
                progress.awaited_since = Some(Instant::now());
            }
            too_slow
        };
        self.with(judge).unwrap_or(false)
    }
}

/// A body as a connection sends it.
#[derive(Debug)]
pub(super) struct ProgressBody {
    body: RequestBody,
    moved: BodyProgress,
}

impl ProgressBody {
    pub(super) const fn new(body: RequestBody, moved: BodyProgress) -> Self {
        Self { body, moved }
    }
}

impl Drop for ProgressBody {
    /// Nobody waits for its caller any more.
    fn drop(&mut self) {
        self.moved.with(|progress| progress.awaited_since = None);
    }
}

impl Body for ProgressBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let too_slow = this.moved.with(|progress| match &polled {
            Poll::Pending => {
                progress.awaited_since.get_or_insert_with(Instant::now);
                false
            }
            Poll::Ready(None | Some(Err(_))) => {
                progress.moved(0);
                false
            }
            Poll::Ready(Some(Ok(frame))) => {
                progress.moved(frame.data_ref().map_or(0, Bytes::len));
                progress.is_too_slow()
            }
        });
        if too_slow == Some(true) {
            return Poll::Ready(Some(Err(ConnectionError::SlowRequestBody)));
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(ConnectionError::RequestBody)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
