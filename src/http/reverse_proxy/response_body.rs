//! Response bodies of an upstream, which return their connection to the pool.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};

use super::http1::ConnectionError;
use super::pool::PooledConnection;
use crate::body_buffer::BodyBuffer;

/// Response body of an upstream. Read to its end, its connection is kept; dropped before, it is closed.
pub struct ResponseBody(Part);

enum Part {
    /// The complete rest of the body, possibly empty.
    Complete(Bytes),
    Streaming(PooledConnection),
    /// A part that was read already, and the rest.
    Prefixed(Box<([Bytes; 2], ResponseBody)>),
}

/// Result of reading a response body up to a limit.
#[derive(Debug)]
pub enum BufferedBody<B = ResponseBody> {
    /// The whole body.
    Complete(Bytes),
    /// The body is longer than the limit; holds the whole body from its start.
    TooLong(B),
    /// The body ended early or paused for too long.
    Failed,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseBody").field(&self.size_hint()).finish()
    }
}

impl ResponseBody {
    pub(super) fn new(mut connection: PooledConnection) -> Self {
        match connection.wire.whole_body() {
            None => Self(Part::Streaming(connection)),
            Some(body) => {
                connection.release();
                Self(Part::Complete(body))
            }
        }
    }

    /// Reads the body if it ends within `limit` bytes. Fails if no chunk arrives for `idle`.
    pub async fn buffer(mut self, limit: usize, idle: Duration) -> BufferedBody {
        let expected = usize::try_from(self.size_hint().lower()).unwrap_or(usize::MAX);
        if expected > limit {
            return BufferedBody::TooLong(self);
        }
        if let Part::Complete(body) = self.0 {
            return BufferedBody::Complete(body);
        }
        let mut buffer = BodyBuffer::new(limit);
        buffer.expect(&self);
        loop {
            let Ok(frame) = tokio::time::timeout(idle, self.frame()).await else { return BufferedBody::Failed };
            let piece = match frame {
                None => return BufferedBody::Complete(buffer.into_bytes()),
                Some(Err(_)) => return BufferedBody::Failed,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if buffer.push(&piece).is_err() {
                return BufferedBody::TooLong(Self(Part::Prefixed(Box::new(([buffer.into_bytes(), piece], self)))));
            }
        }
    }
}

impl ResponseBody {
    /// Returns the rest of the body if all of it was received.
    pub const fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Part::Complete(body) => Some(body),
            Part::Streaming(_) | Part::Prefixed(_) => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let connection = match &mut self.0 {
            Part::Prefixed(begun) => {
                let (pieces, rest) = &mut **begun;
                if let Some(piece) = pieces.iter_mut().find(|piece| !piece.is_empty()) {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(piece)))));
                }
                let rest = std::mem::replace(rest, Self(Part::Complete(Bytes::new())));
                *self = rest;
                return self.poll_frame(cx);
            }
            Part::Complete(body) if body.is_empty() => return Poll::Ready(None),
            Part::Complete(body) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Part::Streaming(connection) => connection,
        };
        let idle = connection.body_idle();
        let frame = ready!(connection.wire.poll_body(idle, cx));
        let over = !matches!(frame, Some(Ok(_))) || connection.wire.body_left() == Some(0);
        if over && let Part::Streaming(connection) = std::mem::replace(&mut self.0, Part::Complete(Bytes::new())) {
            connection.release();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Part::Complete(body) if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Part::Complete(body) => SizeHint::with_exact(body.len() as u64),
            Part::Streaming(connection) => {
                connection.wire.body_left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Part::Prefixed(_) => SizeHint::default(),
        }
    }
}
