//! Copies request bodies while they are sent, so that a request can be retried, within limits of size and memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body_buffer::{BodyBuffer, BufferBudget};
use crate::server::{IncomingBody, IncomingBodyError};

/// Body that is copied while it is read.
#[derive(Debug)]
pub struct TeeBody {
    body: IncomingBody,
    copied: ReplayBuffer,
}

impl TeeBody {
    /// Copies a body while it is read, if it has at most `limit` bytes and `budget` has the memory.
    pub fn new(body: IncomingBody, limit: usize, budget: &BufferBudget) -> (Self, ReplayBuffer) {
        let mut buffer = budget.buffer(limit);
        buffer.expect(&body);
        let copied = ReplayBuffer(Arc::new(Mutex::new(Copy { buffer, complete: None })));
        (Self { body, copied: copied.clone() }, copied)
    }
}

/// Copy of a body, or of its beginning.
#[derive(Debug, Clone)]
pub struct ReplayBuffer(Arc<Mutex<Copy>>);

#[derive(Debug)]
struct Copy {
    buffer: BodyBuffer,
    /// `None` while the body is being read.
    complete: Option<bool>,
}

impl ReplayBuffer {
    /// Returns true once the whole body was read and copied.
    pub fn is_whole(&self) -> bool {
        self.0.lock().complete == Some(true)
    }

    /// Returns the whole body if it was read and copied completely.
    pub fn into_whole(self) -> Option<Bytes> {
        let mut copy = self.0.lock();
        let is_complete = copy.complete.replace(false) == Some(true);
        is_complete.then(|| std::mem::take(&mut copy.buffer).into_bytes())
    }
}

impl Copy {
    fn add(&mut self, piece: &[u8]) {
        if self.complete.is_none() && self.buffer.push(piece).is_err() {
            self.discard();
        }
    }

    fn discard(&mut self) {
        self.complete = Some(false);
        self.buffer = BodyBuffer::default();
    }
}

impl Body for TeeBody {
    type Data = Bytes;
    type Error = IncomingBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncomingBodyError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let mut copy = this.copied.0.lock();
        match &frame {
            None => {
                copy.complete.get_or_insert(true);
            }
            Some(Ok(frame)) => match frame.data_ref() {
                Some(piece) => {
                    copy.add(piece);
                    // The reader may not poll again after the last frame.
                    if this.body.is_end_stream() {
                        copy.complete.get_or_insert(true);
                    }
                }
                // Trailers are not copied, so the body could not be repeated.
                None => copy.discard(),
            },
            Some(Err(_)) => copy.discard(),
        }
        drop(copy);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_always_returns_its_memory() {
        let budget = BufferBudget::new(100);
        let copy = |limit| Copy { buffer: budget.buffer(limit), complete: None };
        let available = || budget.available();
        let mut first = copy(50);
        first.add(&[b'x'; 30]);
        first.add(&[b'x'; 20]);
        assert_eq!((first.complete, available()), (None, 50));
        let mut second = copy(50);
        second.add(&[b'x'; 40]);
        second.add(&[b'x'; 11]);
        assert_eq!((second.complete, available()), (Some(false), 50), "larger than what is kept of one");
        let mut third = copy(50);
        third.add(&[b'x'; 50]);
        let mut fourth = copy(50);
        fourth.add(b"x");
        assert_eq!((fourth.complete, available()), (Some(false), 0), "no memory is left");
        drop((first, second, third, fourth));
        assert_eq!(available(), 100);
    }
}
