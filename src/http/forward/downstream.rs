//! Bodies on their way back from an upstream, and what becomes of the connection that they come on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::pool::Lent;
use super::wire::Broken;

/// What an upstream answers: read to its end, its connection is kept; dropped before, it is closed.
pub struct Downstream(Part);

enum Part {
    /// All that is left of it, perhaps nothing.
    Whole(Bytes),
    Coming(Lent),
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
}

impl Body for Downstream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let lent = match &mut self.0 {
            Part::Whole(body) if body.is_empty() => return Poll::Ready(None),
            Part::Whole(body) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Part::Coming(lent) => lent,
        };
        let frame = ready!(lent.wire.poll_body(cx));
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
        }
    }
}
