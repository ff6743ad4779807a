//! A connection to an upstream, and HTTP/1.1 on it (RFC 9112), driven by whoever has a request on it: no task of its own stands
//! between a request and its answer, so that neither has to be handed from one to the other.
//!
//! What is read goes first into a room that all connections of a thread share: one that waits for its answer, or for its next
//! request, has no buffer. `answer` and `frames` are pure; `sending` and `receiving` hold what is under way.

mod body_decoder;
mod response_head;
mod response_reader;
mod request_writer;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::Frame;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWrite as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::ForwardError;
use super::request_body::{Moved, Sent};
use super::request_head::{Ending, Head};
pub use body_decoder::Malformed;
use request_writer::Sending;
use response_reader::Receiving;

/// What HTTP is spoken on, without TLS of its own: a socket, or a way through a proxy.
pub(super) type Plain = Either<Either<TcpStream, UnixStream>, TokioIo<Upgraded>>;

/// What HTTP is spoken on.
pub(super) type Stream = Either<Plain, Box<TlsStream<Plain>>>;

/// The connection. While nobody polls it, it does not move.
pub(super) struct Wire {
    stream: Stream,
    sending: Sending,
    receiving: Receiving,
    /// Why no more can be written. What the upstream has said before, or says of it, can still be read.
    unwritable: Option<io::Error>,
    /// Since when an answer's body has brought nothing, if it is waited for.
    quiet_since: Option<Instant>,
    alarm: Alarm,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("may_stay", &self.may_stay()).finish_non_exhaustive()
    }
}

/// Why a request has no answer, or an answer no end, though there was a connection.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It was closed.
    #[error("it closed the connection")]
    Closed,
    /// It failed.
    #[error("the connection failed")]
    Failed(#[source] io::Error),
    /// What came is not HTTP/1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The request's own body did not arrive whole.
    #[error("the caller's body ended early")]
    Asked(#[source] hyper::Error),
    /// The request's own body came too slowly.
    #[error("the caller's body came too slowly")]
    Slow,
    /// The answer's body brought nothing for too long.
    #[error("nothing more of the body came within {0:?}")]
    Idle(Duration),
    /// The request's own body is not as long as its head says.
    #[error("the caller's body has another length than was said")]
    Length,
}

impl Wire {
    pub(super) fn new(stream: Stream) -> Self {
        let (sending, receiving) = (Sending::default(), Receiving::default());
        Self { stream, sending, receiving, unwritable: None, quiet_since: None, alarm: Alarm(None) }
    }

    /// Whether it takes a request: not if the upstream has closed it, or has said something unasked.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.receiving.poll_silence(&mut self.stream, cx).is_pending()
    }

    /// Whether both sides have said all, and the upstream does not close it now.
    pub(super) fn may_stay(&self) -> bool {
        self.sending.is_done() && self.unwritable.is_none() && self.receiving.may_stay()
    }

    /// Sends a request and waits for the head of its answer, so long after the last piece of its body was seen to move.
    pub(super) async fn exchange(
        &mut self,
        head: &Head,
        body: Sent,
        moved: &Moved,
        limit: Duration,
    ) -> Result<Response<()>, Failed> {
        let (mut end, mut seen) = (Instant::now() + limit, moved.count());
        let mut unsent = Some(body);
        poll_fn(|cx| {
            if let Some(body) = unsent.take() {
                self.begin(head, body, cx)?;
            }
            if let Poll::Ready(answer) = self.poll_answer(head.is_bodiless(), cx) {
                return Poll::Ready(answer.map_err(|error| {
                    Failed::Sent(match error {
                        Broken::Asked(_) | Broken::Slow | Broken::Length => ForwardError::Asked(error),
                        error => ForwardError::Broken(error),
                    })
                }));
            }
            loop {
                let awaited = moved.awaited_until().filter(|until| *until < end);
                if self.alarm.poll_at(awaited.unwrap_or(end), cx).is_pending() {
                    break;
                }
                if awaited.is_some() {
                    if moved.is_too_slow() {
                        return Poll::Ready(Err(Failed::Sent(ForwardError::Asked(Broken::Slow))));
                    }
                    continue;
                }
                if moved.count() == seen && moved.awaited_until().is_some() {
                    return Poll::Ready(Err(Failed::Sent(ForwardError::Asked(Broken::Slow))));
                }
                if moved.count() == seen {
                    return Poll::Ready(Err(Failed::Sent(ForwardError::AnswerTimeout(limit))));
                }
                (end, seen) = (Instant::now() + limit, moved.count());
            }
            Poll::Pending
        })
        .await
    }

    /// Takes a request, and writes one without a body as far as that goes now. What has a body is written with it.
    fn begin(&mut self, head: &Head, body: Sent, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (bytes, ending) = (head.as_bytes(), head.ending());
        if ending != Ending::Length(0) {
            self.sending.begin(bytes, Some((body, ending)));
            return Ok(());
        }
        let written = match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return Err(Failed::Unsent(ForwardError::Broken(Broken::Failed(error)))),
            Poll::Pending => 0,
        };
        self.sending.begin(bytes.get(written..).unwrap_or_default(), None);
        Ok(())
    }

    fn poll_answer(&mut self, bodiless: bool, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Broken>> {
        self.write_on(cx)?;
        let answer = ready!(self.receiving.poll_head(&mut self.stream, bodiless, cx));
        // That it could not be written says more than that nothing came then.
        Poll::Ready(answer.map_err(|error| self.unwritable.take().map_or(error, Broken::Failed)))
    }

    /// Writes what can be of the request.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        match self.sending.poll(&mut self.stream, cx) {
            Poll::Ready(Err(Broken::Failed(error))) => {
                self.sending = Sending::default();
                self.unwritable = Some(error);
                Ok(())
            }
            Poll::Ready(done) => done,
            Poll::Pending => Ok(()),
        }
    }

    /// The answer's body, if all of it is here.
    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        self.receiving.whole_body()
    }

    /// The next part of the answer's body.
    pub(super) fn poll_body(
        &mut self,
        idle: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Err(error) = self.write_on(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = self.receiving.poll_body(&mut self.stream, cx);
        // An upstream that is still sent something may wait for that.
        if polled.is_ready() || !self.sending.is_done() {
            self.quiet_since = None;
        } else if let Some(idle) = idle {
            let since = *self.quiet_since.get_or_insert_with(Instant::now);
            if self.alarm.poll_at(since + idle, cx).is_ready() {
                return Poll::Ready(Some(Err(Broken::Idle(idle))));
            }
        }
        polled
    }

    /// How much of the answer's body is still to come, where that is known.
    pub(super) fn body_left(&self) -> Option<u64> {
        self.receiving.left()
    }
}

/// What became of a request that has no answer.
pub(super) enum Failed {
    /// Nothing of it was sent, and it has no body.
    Unsent(ForwardError),
    /// Some of it may have been.
    Sent(ForwardError),
}

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
