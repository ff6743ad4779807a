//! Bodies on their way back from an upstream, and what becomes of the connection that they come on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};

use super::http1::Broken;
use super::pool::Lent;
use crate::http::body_buffer::BodyBuffer;

/// What an upstream answers: read to its end, its connection is kept; dropped before, it is closed.
pub struct Downstream(Part);

enum Part {
    /// All that is left of it, perhaps nothing.
    Whole(Bytes),
    Coming(Lent),
    /// The part that was read already, and the rest.
    Begun(Box<([Bytes; 2], Downstream)>),
}

/// A response body that was read up to a limit.
#[derive(Debug)]
pub enum Buffered<B = Downstream> {
    /// All of it.
    Complete(Bytes),
    /// It is longer than the limit: the same body, from its start.
    TooLong(B),
    /// The upstream broke off, or sent nothing for too long.
    Failed,
}

impl fmt::Debug for Downstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Downstream").field(&self.size_hint()).finish()
    }
}

impl Downstream {
    pub(super) fn new(mut lent: Lent) -> Self {
        match lent.wire.whole_body() {
            None => Self(Part::Coming(lent)),
            Some(body) => {
                lent.give_back();
                Self(Part::Whole(body))
            }
        }
    }

    /// Reads the body, whatever its framing, if it ends within `limit` bytes. Fails if no piece of it comes for `idle`.
    pub async fn buffer(mut self, limit: usize, idle: Duration) -> Buffered {
        let expected = usize::try_from(self.size_hint().lower()).unwrap_or(usize::MAX);
        if expected > limit {
            return Buffered::TooLong(self);
        }
        if let Part::Whole(body) = self.0 {
            return Buffered::Complete(body);
        }
        let mut buffer = BodyBuffer::new(limit);
        buffer.expect(&self);
        loop {
            let Ok(frame) = tokio::time::timeout(idle, self.frame()).await else { return Buffered::Failed };
            let piece = match frame {
                None => return Buffered::Complete(buffer.into_bytes()),
                Some(Err(_)) => return Buffered::Failed,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if buffer.push(&piece).is_err() {
                return Buffered::TooLong(Self(Part::Begun(Box::new(([buffer.into_bytes(), piece], self)))));
            }
        }
    }
}

impl Downstream {
    /// All that is left of it, where nothing is still to come.
    pub const fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Part::Whole(body) => Some(body),
            Part::Coming(_) | Part::Begun(_) => None,
        }
    }
}

impl Body for Downstream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let lent = match &mut self.0 {
            Part::Begun(begun) => {
                let (pieces, rest) = &mut **begun;
                if let Some(piece) = pieces.iter_mut().find(|piece| !piece.is_empty()) {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(piece)))));
                }
                let rest = std::mem::replace(rest, Self(Part::Whole(Bytes::new())));
                *self = rest;
                return self.poll_frame(cx);
            }
            Part::Whole(body) if body.is_empty() => return Poll::Ready(None),
            Part::Whole(body) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Part::Coming(lent) => lent,
        };
        let idle = lent.body_idle();
        let frame = ready!(lent.wire.poll_body(idle, cx));
        let over = !matches!(frame, Some(Ok(_))) || lent.wire.body_left() == Some(0);
        if over && let Part::Coming(lent) = std::mem::replace(&mut self.0, Part::Whole(Bytes::new())) {
            lent.give_back();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Part::Whole(body) if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Part::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Part::Coming(lent) => lent.wire.body_left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Part::Begun(_) => SizeHint::default(),
        }
    }
}
