//! A connection to an upstream, driven by whoever has a request on it: no task of its own stands between a request and its
//! answer, so that neither has to be handed from one to the other.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ForwardError;
use super::body::{Moved, Sent};

/// The connection. While nobody polls it, it does not move.
pub(super) struct Wire {
    sender: SendRequest<Sent>,
    /// What reads and writes.
    driver: Driver,
    alarm: Alarm,
}

/// `None` once the connection has ended. Its failure is the failure of the request on it, told there.
struct Driver(Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>);

impl Driver {
    /// Reads and writes what can be.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(running) = &mut self.0
            && running.as_mut().poll(cx).is_ready()
        {
            self.0 = None;
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("ended", &self.driver.0.is_none()).finish_non_exhaustive()
    }
}

impl Wire {
    /// Speaks HTTP/1 on a stream.
    pub(super) async fn new<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: I) -> hyper::Result<Self> {
        let (sender, driver) = handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Driver(Some(Box::pin(driver))), alarm: Alarm(None) })
    }

    /// Whether it takes a request: not if the upstream has closed it, or the last answer's end does not come in time.
    pub(super) async fn is_ready(&mut self) -> bool {
        let end = Instant::now() + READY_WITHIN;
        poll_fn(|cx| {
            self.driver.drive(cx);
            match self.sender.poll_ready(cx) {
                Poll::Ready(ready) => Poll::Ready(ready.is_ok() && self.driver.0.is_some()),
                Poll::Pending => self.alarm.poll_at(end, cx).map(|()| false),
            }
        })
        .await
    }

    /// Sends a request and waits for the head of its answer, so long after the last piece of its body was seen to move.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Sent>,
        moved: &Moved,
        limit: Duration,
    ) -> Result<Response<Incoming>, Failed> {
        let (mut end, mut seen) = (Instant::now() + limit, moved.count());
        let mut answer = pin!(self.sender.try_send_request(request));
        let (driver, alarm) = (&mut self.driver, &mut self.alarm);
        poll_fn(|cx| {
            driver.drive(cx);
            match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => return Poll::Ready(answer.map_err(Failed::of)),
                Poll::Pending => {}
            }
            while alarm.poll_at(end, cx).is_ready() {
                if moved.count() == seen {
                    return Poll::Ready(Err(Failed::Sent(ForwardError::AnswerTimeout(limit))));
                }
                (end, seen) = (Instant::now() + limit, moved.count());
            }
            Poll::Pending
        })
        .await
    }

    /// The next part of an answer's body.
    pub(super) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<bytes::Bytes>>>> {
        // Only what is asked for is read: so the body is polled before the connection, and once more for what it brought.
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.driver.drive(cx);
        Pin::new(body).poll_frame(cx)
    }
}

/// What became of a request that has no answer.
pub(super) enum Failed {
    /// Nothing of it was sent.
    Unsent(Box<Request<Sent>>, ForwardError),
    /// Some of it may have been.
    Sent(ForwardError),
}

impl Failed {
    fn of(mut error: TrySendError<Request<Sent>>) -> Self {
        let unsent = error.take_message();
        let error = ForwardError::Broken(error.into_error());
        match unsent {
            Some(request) => Self::Unsent(Box::new(request), error),
            None => Self::Sent(error),
        }
    }
}

/// A connection that takes longer than this to end its last answer is closed, and another taken.
const READY_WITHIN: Duration = Duration::from_millis(100);

/// A timer that is set anew only when it goes off: requests end long before their time, and to set one for each costs more
/// than all else that is done for them here.
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready once that moment has come.
    fn poll_at(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if end < timer.deadline() {
            timer.as_mut().reset(end);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= end || Instant::now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}
