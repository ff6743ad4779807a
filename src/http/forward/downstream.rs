//! Bodies on their way back from an upstream, and what becomes of the connection that they come on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::pool::Lent;

/// What an upstream answers: read to its end, its connection is kept; dropped before, it is closed.
#[derive(Debug)]
pub struct Downstream {
    body: Incoming,
    lent: Option<Lent>,
}

impl Downstream {
    pub(super) fn new(body: Incoming, lent: Lent) -> Self {
        let mut this = Self { body, lent: Some(lent) };
        this.give_back_at_end();
        this
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lent) = self.lent.take()
        {
            lent.give_back();
        }
    }
}

impl Body for Downstream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = match &mut this.lent {
            Some(lent) => ready!(lent.wire.poll_body(&mut this.body, cx)),
            None => ready!(Pin::new(&mut this.body).poll_frame(cx)),
        };
        match &frame {
            None => {
                if let Some(lent) = this.lent.take() {
                    lent.give_back();
                }
            }
            Some(Ok(_)) => this.give_back_at_end(),
            Some(Err(_)) => this.lent = None,
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
