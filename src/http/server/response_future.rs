//! Future of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

/// Future of a response. Most responses are ready at once; only those that wait cost an allocation.
pub enum ResponseFuture<B> {
    /// The response; taken by the first poll.
    Ready(Option<Response<B>>),
    /// The response is still being made.
    Waiting(Pin<Box<dyn Future<Output = Response<B>> + Send>>),
}

impl<B> ResponseFuture<B> {
    /// Wraps a response that is ready.
    pub const fn ready(response: Response<B>) -> Self {
        Self::Ready(Some(response))
    }

    /// Boxes the future of a response.
    pub fn waiting(response: impl Future<Output = Response<B>> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(response))
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
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(response) => response.as_mut().poll(cx),
        }
    }
}
