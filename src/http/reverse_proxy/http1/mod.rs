//! HTTP/1.1 connection to an upstream (RFC 9112), polled by the task that has a request on it. Without a task of its
//! own, requests and responses are not handed between tasks.
//!
//! `response_head` is pure; `response_reader` and the writer hold the state of an exchange.

mod response_head;
mod response_reader;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

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
use super::request_body::{BodyProgress, ProgressBody, RequestBodyError};
use super::request_head::RequestHead;
use crate::http1::message_writer::{BodyFraming, MessageWriter, OutgoingBody, WriteError};
pub(crate) use response_head::ProtocolError;
use response_reader::ResponseReader;

/// Stream without TLS: a socket or a tunnel through a proxy.
pub(super) type PlainStream = Either<Either<TcpStream, UnixStream>, TokioIo<Upgraded>>;

/// Stream of an HTTP connection, with or without TLS.
pub(super) type Stream = Either<PlainStream, Box<TlsStream<PlainStream>>>;

/// Connection to an upstream. It makes progress only while it is polled.
pub(super) struct UpstreamConnection {
    stream: Stream,
    writer: MessageWriter<ProgressBody>,
    reader: ResponseReader,
    /// Error after which nothing more is written. Received bytes can still be read, such as an early response.
    write_error: Option<io::Error>,
    /// Start of the current pause of a response body.
    quiet_since: Option<Instant>,
    timeout: LazyTimeout,
}

impl fmt::Debug for UpstreamConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConnection").field("reusable", &self.is_reusable()).finish_non_exhaustive()
    }
}

/// Failure of an exchange on an established connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The upstream closed the connection.
    #[error("the upstream closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed")]
    Failed(#[source] io::Error),
    /// The response is not valid HTTP/1.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The request's body did not arrive completely.
    #[error(transparent)]
    RequestBody(#[from] RequestBodyError),
    /// The response body paused for too long.
    #[error("no more of the response body arrived within {}", keyward_telemetry::time_format::format_duration(*.0))]
    Idle(Duration),
    /// The request's body has another length than its head announces.
    #[error("the request body does not match its Content-Length")]
    Length,
}

impl UpstreamConnection {
    pub(super) fn new(stream: Stream) -> Self {
        let writer = MessageWriter::default();
        let reader = ResponseReader::new();
        Self { stream, writer, reader, write_error: None, quiet_since: None, timeout: LazyTimeout(None) }
    }

    /// Returns true if the connection can take a request: the upstream has neither closed it nor sent anything
    /// unrequested.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.reader.poll_unrequested(&mut self.stream, cx).is_pending()
    }

    /// Returns true if request and response are complete and the upstream keeps the connection open.
    pub(super) fn is_reusable(&self) -> bool {
        self.writer.is_done() && self.write_error.is_none() && self.reader.is_reusable()
    }

    /// Sends a request and waits for the response head, for `limit` after the last progress of the request's body.
    pub(super) async fn exchange(
        &mut self,
        head: &RequestHead,
        body: ProgressBody,
        progress: &BodyProgress,
        limit: Duration,
    ) -> Result<Response<()>, SendError> {
        let mut end = Instant::now() + limit;
        let mut last_count = progress.count();
        let mut unsent_body = Some(body);
        poll_fn(|cx| {
            if let Some(body) = unsent_body.take() {
                self.begin(head, body, cx)?;
            }
            if let Poll::Ready(response) = self.poll_response(head.is_bodiless(), cx) {
                return Poll::Ready(response.map_err(|error| {
                    SendError::Sent(match error {
                        ConnectionError::RequestBody(_) | ConnectionError::Length => ForwardError::RequestBody(error),
                        error => ForwardError::Connection(error),
                    })
                }));
            }
            loop {
                let awaited = progress.awaited_until().filter(|until| *until < end);
                if self.timeout.poll_at(awaited.unwrap_or(end), cx).is_pending() {
                    break;
                }
                if awaited.is_some() {
                    if progress.is_too_slow() {
                        return Poll::Ready(Err(SendError::too_slow()));
                    }
                    continue;
                }
                if progress.count() == last_count && progress.awaited_until().is_some() {
                    return Poll::Ready(Err(SendError::too_slow()));
                }
                if progress.count() == last_count {
                    return Poll::Ready(Err(SendError::Sent(ForwardError::ResponseTimeout(limit))));
                }
                (end, last_count) = (Instant::now() + limit, progress.count());
            }
            Poll::Pending
        })
        .await
    }

    /// Begins a request. One without a body is written at once as far as possible; one with a body is written together
    /// with it.
    fn begin(&mut self, head: &RequestHead, body: ProgressBody, cx: &mut Context<'_>) -> Result<(), SendError> {
        let bytes = head.as_bytes();
        let framing = head.framing();
        if framing != BodyFraming::Length(0) {
            self.writer.queue(Bytes::copy_from_slice(bytes));
            self.writer.set_body(OutgoingBody { body, framing, trailers: None });
            return Ok(());
        }
        let written = match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => {
                return Err(SendError::Unsent(ForwardError::Connection(ConnectionError::Failed(error))));
            }
            Poll::Pending => 0,
        };
        self.writer.queue(Bytes::copy_from_slice(bytes.get(written..).unwrap_or_default()));
        Ok(())
    }

    fn poll_response(&mut self, bodiless: bool, cx: &mut Context<'_>) -> Poll<Result<Response<()>, ConnectionError>> {
        self.write_on(cx)?;
        let response = ready!(self.reader.poll_head(&mut self.stream, bodiless, cx));
        // A write error is more informative than the end of the stream that follows it.
        Poll::Ready(response.map_err(|error| self.write_error.take().map_or(error, ConnectionError::Failed)))
    }

    /// Writes as much of the request as possible.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        match self.writer.poll(&mut self.stream, cx) {
            Poll::Ready(Err(WriteError::Io(error))) => {
                self.writer = MessageWriter::default();
                self.write_error = Some(error);
                Ok(())
            }
            Poll::Ready(Err(WriteError::Body(error))) => Err(error.into()),
            Poll::Ready(Err(WriteError::Length)) => Err(ConnectionError::Length),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Returns the response body if all of it was received.
    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        self.reader.whole_body()
    }

    /// Polls the next frame of the response body.
    pub(super) fn poll_body(
        &mut self,
        idle: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        if let Err(error) = self.write_on(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = self.reader.poll_body(&mut self.stream, cx);
        // The upstream may wait for the rest of the request.
        if polled.is_ready() || !self.writer.is_done() {
            self.quiet_since = None;
        } else if let Some(idle) = idle {
            let since = *self.quiet_since.get_or_insert_with(Instant::now);
            if self.timeout.poll_at(since + idle, cx).is_ready() {
                return Poll::Ready(Some(Err(ConnectionError::Idle(idle))));
            }
        }
        polled
    }

    /// Returns the remaining length of the response body, if known.
    pub(super) fn body_left(&self) -> Option<u64> {
        self.reader.remaining()
    }
}

/// Failure of a request, with its safety for a retry.
pub(super) enum SendError {
    /// Nothing of the request was sent, and it has no body.
    Unsent(ForwardError),
    /// Some of the request may have been sent.
    Sent(ForwardError),
}

impl SendError {
    const fn too_slow() -> Self {
        Self::Sent(ForwardError::RequestBody(ConnectionError::RequestBody(RequestBodyError::TooSlow)))
    }
}

/// Timer that is reset only when it fires: requests end long before their limit, and setting a timer for each costs
/// more than the rest of the exchange.
struct LazyTimeout(Option<Pin<Box<Sleep>>>);

impl LazyTimeout {
    /// Ready once `end` has passed.
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
