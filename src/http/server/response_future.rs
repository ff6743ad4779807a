//! An answer on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

/// An answer on its way: most are there at once, and only those that wait for something cost an allocation.
pub enum ResponseFuture<B> {
    /// Here it is; taken when polled.
    Ready(Option<Response<B>>),
    /// It waits.
    Waiting(Pin<Box<dyn Future<Output = Response<B>> + Send>>),
}

impl<B> ResponseFuture<B> {
    /// An answer that is there.
    pub const fn ready(answer: Response<B>) -> Self {
        Self::Ready(Some(answer))
    }

    /// One that is not.
    pub fn waiting(answer: impl Future<Output = Response<B>> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(answer))
    }
}

impl<B> std::fmt::Debug for ResponseFuture<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "ResponseFuture::Ready",
            Self::Waiting(_) => "ResponseFuture::Waiting",
        })
    }
}

impl<B: Unpin> Future for ResponseFuture<B> {
    type Output = Response<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(answer) => answer.as_mut().poll(cx),
        }
    }
}
