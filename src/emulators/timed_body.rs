//! Limits the time for a request's body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

/// Request body with a time limit that starts when its reader first waits.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: Incoming,
    within: Duration,
    end: Option<Pin<Box<Sleep>>>,
}

/// Reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body did not arrive within {}", keyward_telemetry::time_format::format_duration(*.0))]
    Late(Duration),
    #[error("the body did not arrive completely")]
    Broken(#[source] hyper::Error),
}

impl TimedBody {
    pub(super) const fn new(body: Incoming, within: Duration) -> Self {
        Self { body, within, end: None }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let within = this.within;
        let end = this.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        end.as_mut().poll(cx).map(|()| Some(Err(BodyError::Late(within))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
