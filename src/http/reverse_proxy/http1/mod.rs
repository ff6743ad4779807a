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
use super::request_body::{BodyProgress, ProgressBody};
use super::request_head::{BodyFraming, RequestHead};
pub use body_decoder::ProtocolError;
use request_writer::RequestWriter;
use response_reader::ResponseReader;

/// What HTTP is spoken on, without TLS of its own: a socket, or a way through a proxy.
pub(super) type Plain = Either<Either<TcpStream, UnixStream>, TokioIo<Upgraded>>;

/// What HTTP is spoken on.
pub(super) type Stream = Either<Plain, Box<TlsStream<Plain>>>;

/// The connection. While nobody polls it, it does not move.
pub(super) struct UpstreamConnection {
    stream: Stream,
    sending: RequestWriter,
    receiving: ResponseReader,
    /// Why no more can be written. What the upstream has said before, or says of it, can still be read.
    unwritable: Option<io::Error>,
    /// Since when an answer's body has brought nothing, if it is waited for.
    quiet_since: Option<Instant>,
    alarm: LazyTimeout,
}

impl fmt::Debug for UpstreamConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("may_stay", &self.may_stay()).finish_non_exhaustive()
    }
}

/// Why a request has no answer, or an answer no end, though there was a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It was closed.
    #[error("it closed the connection")]
    Closed,
    /// It failed.
    #[error("the connection failed")]
    Failed(#[source] io::Error),
    /// What came is not HTTP/1.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The request's own body did not arrive whole.
    #[error("the caller's body ended early")]
    RequestBody(#[source] hyper::Error),
    /// The request's own body came too slowly.
    #[error("the caller's body came too slowly")]
    SlowRequestBody,
    /// The answer's body brought nothing for too long.
    #[error("nothing more of the body came within {0:?}")]
    Idle(Duration),
    /// The request's own body is not as long as its head says.
    #[error("the caller's body has another length than was said")]
    Length,
}

impl UpstreamConnection {
    pub(super) fn new(stream: Stream) -> Self {
        let (sending, receiving) = (RequestWriter::default(), ResponseReader::default());
        Self { stream, sending, receiving, unwritable: None, quiet_since: None, alarm: LazyTimeout(None) }
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
        head: &RequestHead,
        body: ProgressBody,
        moved: &BodyProgress,
        limit: Duration,
    ) -> Result<Response<()>, SendError> {
        let (mut end, mut seen) = (Instant::now() + limit, moved.count());
        let mut unsent = Some(body);
        poll_fn(|cx| {
            if let Some(body) = unsent.take() {
                self.begin(head, body, cx)?;
            }
            if let Poll::Ready(answer) = self.poll_answer(head.is_bodiless(), cx) {
                return Poll::Ready(answer.map_err(|error| {
                    SendError::Sent(match error {
                        ConnectionError::RequestBody(_)
                        | ConnectionError::SlowRequestBody
                        | ConnectionError::Length => ForwardError::RequestBody(error),
                        error => ForwardError::Connection(error),
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
                        return Poll::Ready(Err(SendError::Sent(ForwardError::RequestBody(
                            ConnectionError::SlowRequestBody,
                        ))));
                    }
                    continue;
                }
                if moved.count() == seen && moved.awaited_until().is_some() {
                    return Poll::Ready(Err(SendError::Sent(ForwardError::RequestBody(
                        ConnectionError::SlowRequestBody,
                    ))));
                }
                if moved.count() == seen {
                    return Poll::Ready(Err(SendError::Sent(ForwardError::ResponseTimeout(limit))));
                }
                (end, seen) = (Instant::now() + limit, moved.count());
            }
            Poll::Pending
        })
        .await
    }

    /// Takes a request, and writes one without a body as far as that goes now. What has a body is written with it.
    fn begin(&mut self, head: &RequestHead, body: ProgressBody, cx: &mut Context<'_>) -> Result<(), SendError> {
        let (bytes, ending) = (head.as_bytes(), head.ending());
        if ending != BodyFraming::Length(0) {
            self.sending.begin(bytes, Some((body, ending)));
            return Ok(());
        }
        let written = match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => {
                return Err(SendError::Unsent(ForwardError::Connection(ConnectionError::Failed(error))));
            }
            Poll::Pending => 0,
        };
        self.sending.begin(bytes.get(written..).unwrap_or_default(), None);
        Ok(())
    }

    fn poll_answer(&mut self, bodiless: bool, cx: &mut Context<'_>) -> Poll<Result<Response<()>, ConnectionError>> {
        self.write_on(cx)?;
        let answer = ready!(self.receiving.poll_head(&mut self.stream, bodiless, cx));
        // That it could not be written says more than that nothing came then.
        Poll::Ready(answer.map_err(|error| self.unwritable.take().map_or(error, ConnectionError::Failed)))
    }

    /// Writes what can be of the request.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        match self.sending.poll(&mut self.stream, cx) {
            Poll::Ready(Err(ConnectionError::Failed(error))) => {
                self.sending = RequestWriter::default();
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
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
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
                return Poll::Ready(Some(Err(ConnectionError::Idle(idle))));
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
pub(super) enum SendError {
    /// Nothing of it was sent, and it has no body.
    Unsent(ForwardError),
    /// Some of it may have been.
    Sent(ForwardError),
}

/// A timer that is set anew only when it goes off: requests end long before their time, and to set one for each costs more
/// than all else that is done for them here.
struct LazyTimeout(Option<Pin<Box<Sleep>>>);

impl LazyTimeout {
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
