//! An answer on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

/// An answer on its way: most are there at once, and only those that wait for something cost an allocation.
pub enum Answering {
    /// Here it is; taken when polled.
    Ready(Option<Response<Full<Bytes>>>),
    /// It waits.
    Waiting(Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>),
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Answering::Ready",
            Self::Waiting(_) => "Answering::Waiting",
        })
    }
}

impl Future for Answering {
    type Output = Response<Full<Bytes>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(answer) => answer.as_mut().poll(cx),
        }
    }
}
