//! Request bodies on their way to an upstream: streamed, never collected.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::server::{IncomingBody, IncomingBodyError};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::headers::is_hop_by_hop;
use super::replay_buffer::TeeBody;
use crate::guard::is_end_to_end;

/// Request body for an upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// The caller's body as it arrives.
    Streamed(IncomingBody),
    /// The caller's body, copied while it is read.
    Teed(TeeBody),
    /// Chunks of the caller's body that were read already, the next one last, and the rest as it arrives.
    Prefixed(Vec<Bytes>, IncomingBody),
    /// A body in memory.
    Buffered(Full<Bytes>),
}

impl RequestBody {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Self::Buffered(Full::default())
    }

    /// Returns the length in bytes, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = IncomingBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncomingBodyError>>> {
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

/// Reason why a request body did not arrive completely.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The body ended early.
    #[error("the request body ended early")]
    Failed(#[source] IncomingBodyError),
    /// The body arrived too slowly.
    #[error("the request body arrived too slowly")]
    TooSlow,
}

/// Progress of a request body, for the time limits of its exchange.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyProgress(Option<Arc<Mutex<Progress>>>);

#[derive(Debug, Default)]
struct Progress {
    /// Number of chunks so far.
    pieces: u64,
    /// Start of the current wait for the caller.
    awaited_since: Option<Instant>,
    /// Time spent waiting for the caller before that, and bytes received, in the current window.
    awaited: Duration,
    bytes: u64,
}

impl Progress {
    fn time_awaited(&self) -> Duration {
        self.awaited + self.awaited_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn is_too_slow(&self) -> bool {
        self.time_awaited() >= WINDOW && self.bytes < SLOWEST * WINDOW.as_secs()
    }

    /// Records a chunk.
    fn record(&mut self, bytes: usize) {
        self.awaited = self.time_awaited();
        self.awaited_since = None;
        self.pieces += 1;
        self.bytes += bytes as u64;
        if self.awaited >= WINDOW && !self.is_too_slow() {
            (self.awaited, self.bytes) = (Duration::ZERO, 0);
        }
    }
}

/// Minimum rate of a body in bytes a second,
const SLOWEST: u64 = 1024;
/// measured over this much time of waiting for the caller.
const WINDOW: Duration = Duration::from_secs(30);

impl BodyProgress {
    /// Creates the progress of a body; a body in memory is not tracked.
    pub(super) fn new(body: &RequestBody) -> Self {
        Self((!matches!(body, RequestBody::Buffered(_)) && !body.is_end_stream()).then(Arc::default))
    }

    fn access<R>(&self, access: impl FnOnce(&mut Progress) -> R) -> Option<R> {
        self.0.as_ref().map(|progress| access(&mut progress.lock()))
    }

    /// Number of chunks so far.
    pub(super) fn count(&self) -> u64 {
        self.access(|progress| progress.pieces).unwrap_or(0)
    }

    /// Returns the end of the wait for the caller if nothing more arrives; `None` while nothing is awaited.
    pub(super) fn awaited_until(&self) -> Option<Instant> {
        self.access(|progress| Some(progress.awaited_since? + WINDOW.saturating_sub(progress.awaited)))?
    }

    /// Returns true once a whole window of waiting has passed with too few bytes. A sufficient window is followed by a
    /// new one.
    pub(super) fn is_too_slow(&self) -> bool {
        let is_too_slow = |progress: &mut Progress| {
            let too_slow = progress.is_too_slow();
            if !too_slow && progress.time_awaited() >= WINDOW {
                (progress.awaited, progress.bytes) = (Duration::ZERO, 0);
                progress.awaited_since = Some(Instant::now());
            }
            too_slow
        };
        self.access(is_too_slow).unwrap_or(false)
    }
}

/// Request body that records its progress.
#[derive(Debug)]
pub(super) struct ProgressBody {
    body: RequestBody,
    progress: BodyProgress,
}

impl ProgressBody {
    pub(super) const fn new(body: RequestBody, progress: BodyProgress) -> Self {
        Self { body, progress }
    }
}

impl Drop for ProgressBody {
    /// Ends the wait for the caller.
    fn drop(&mut self) {
        self.progress.access(|progress| progress.awaited_since = None);
    }
}

impl Body for ProgressBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let too_slow = this.progress.access(|progress| match &polled {
            Poll::Pending => {
                progress.awaited_since.get_or_insert_with(Instant::now);
                false
            }
            Poll::Ready(None | Some(Err(_))) => {
                progress.record(0);
                false
            }
            Poll::Ready(Some(Ok(frame))) => {
                progress.record(frame.data_ref().map_or(0, Bytes::len));
                progress.is_too_slow()
            }
        });
        if too_slow == Some(true) {
            return Poll::Ready(Some(Err(RequestBodyError::TooSlow)));
        }
        polled.map(|frame| frame.map(|frame| frame.map(filter_trailers).map_err(RequestBodyError::Failed)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Removes the trailers of a frame that are not forwarded.
fn filter_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => {
            let sent = trailers.iter().filter(|(name, _)| may_follow_body(name.as_str()));
            Frame::trailers(sent.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Err(frame) => frame,
    }
}

/// Returns false for headers of framing, routing and authentication, which a receiver needs before the body; they are not sent
/// as trailers (RFC 9110, 6.5.1). A server or a proxy that takes trailers for headers would read another namespace or token
/// than the rules did. `name` is in lower case.
fn may_follow_body(name: &str) -> bool {
    let is_digest = matches!(name, "content-digest" | "content-md5");
    let is_needed_before =
        is_hop_by_hop(name) || is_end_to_end(name.as_bytes()) || matches!(name, "cookie" | "trailer");
    is_digest || !is_needed_before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_needed_before_a_body_are_not_sent_as_trailers() {
        let pairs = [
            ("x-sum", "42"),
            ("authorization", "Bearer t"),
            ("x-vault-token", "t"),
            ("x-vault-namespace", "other"),
            ("x-consul-token", "t"),
            ("x-service-namespace", "other"),
            ("x-keyward-key", "k"),
            ("proxy-authorization", "b"),
            ("content-length", "9"),
            ("cookie", "c"),
            ("content-digest", "d"),
        ];
        let trailers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let sent = filter_trailers(Frame::trailers(trailers)).into_trailers().unwrap();
        let mut names: Vec<_> = sent.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-digest", "x-sum"]);
    }
}
