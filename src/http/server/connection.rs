//! Serves HTTP/1 on one connection (RFC 9112), one request after the other, and records its progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use http::response::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop;

use super::Peer;
use super::connection_state::ConnectionState;
use super::connection_table::Registration;
use super::incoming_body::{BodyFeed, IncomingBody, IncomingBodyError};
use super::lingering::Lingering;
use super::request_head::{self, HeadError, RequestHead, RequestTraits};
use super::response_head::{self, HeadFacts, ResponseFraming};
use super::tracked_stream::TrackedStream;
use crate::http1::headers::recycle_map;
use crate::http1::message_writer::{BodyFraming, MessageWriter, OutgoingBody, WriteError};
use crate::http1::receive_buffer::ReceiveBuffer;
use crate::peer::PeerIdentity;

/// Peer of a connection, and its identity if the listener reads that.
#[derive(Debug)]
pub(super) struct ConnectedPeer {
    pub(super) peer: Peer,
    pub(super) identity: Option<Arc<PeerIdentity>>,
}

/// A connection; a future of its end.
pub(super) struct Connection<I, S, F, B> {
    stream: TrackedStream<I>,
    input: ReceiveBuffer,
    /// Number of received bytes that are no complete head.
    incomplete: usize,
    writer: MessageWriter<B>,
    service: S,
    connected: ConnectedPeer,
    /// Largest head in bytes.
    head_limit: usize,
    step: Step,
    /// The response being made.
    response: Pin<Box<Option<F>>>,
    /// The rest of the request's body.
    body: Option<BodyFeed>,
    traits: RequestTraits,
    /// The connection is closed after the response.
    closes: bool,
    /// The head was refused.
    is_refused: bool,
    /// `None` without a listener.
    registration: Option<Registration>,
    waker: Option<Waker>,
}

/// Work that a connection does next.
enum Step {
    /// Receive a head.
    Receive,
    /// Wait for the response.
    Respond,
    /// Send the response.
    Send,
    /// Close this side; then read on for a while, so that the client can read the response before a reset (RFC 9112, 9.6).
    Close { lingering: Option<Box<Lingering>>, lingers: bool },
}

/// A response that cannot be sent.
struct Aborted;

/// Result of looking at the client's side while a response is made or sent.
enum Input {
    /// The reader of the body can go on.
    Progress,
    Nothing,
    /// The client has closed the connection.
    Gone,
}

impl<I, S, F, B> Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Peer, Request<IncomingBody>) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin,
{
    pub(super) fn new(
        stream: I,
        connected: ConnectedPeer,
        service: S,
        head_limit: usize,
        state: Arc<ConnectionState>,
        registration: Option<Registration>,
    ) -> Self {
        let traits = RequestTraits::default();
        Self {
            stream: TrackedStream { stream, state },
            input: ReceiveBuffer::default(),
            incomplete: 0,
            writer: MessageWriter::default(),
            service,
            connected,
            head_limit,
            step: Step::Receive,
            response: Box::pin(None),
            body: None,
            traits,
            closes: false,
            is_refused: false,
            registration,
            waker: None,
        }
    }

    fn state(&self) -> &ConnectionState {
        &self.stream.state
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.step {
                Step::Receive => match self.poll_head(cx) {
                    Poll::Ready(Ok(Some(head))) => self.begin_request(head),
                    Poll::Ready(Ok(None)) => self.begin_close(false),
                    Poll::Ready(Err(error)) => self.refuse(error, cx),
                    // After reading, so that a request that has arrived is still served.
                    Poll::Pending if self.state().should_close_now() => self.begin_close(false),
                    Poll::Pending => return Poll::Pending,
                },
                Step::Respond => {
                    let Some(response) = self.response.as_mut().as_pin_mut() else { return Poll::Ready(()) };
                    if let Poll::Ready(response) = response.poll(cx) {
                        self.response.set(None);
                        if self.begin_response(response, cx).is_err() {
                            return Poll::Ready(());
                        }
                        continue;
                    }
                    if !self.writer.is_done() {
                        // An interim response. If it fails, so does reading.
                        let _ = self.writer.poll_flush(&mut self.stream, cx);
                    }
                    match self.poll_input(cx) {
                        Input::Progress => {}
                        Input::Nothing => return Poll::Pending,
                        Input::Gone => return Poll::Ready(()),
                    }
                }
                Step::Send => match self.writer.poll(&mut self.stream, cx) {
                    Poll::Ready(Ok(())) => self.finish_response(),
                    Poll::Ready(Err(WriteError::Io(_))) => return Poll::Ready(()),
                    Poll::Ready(Err(WriteError::Body(_) | WriteError::Length)) => {
                        // The client sees that the response is incomplete by the end of the connection.
                        let _ = self.writer.poll_flush(&mut self.stream, cx);
                        return Poll::Ready(());
                    }
                    Poll::Pending => match self.poll_input(cx) {
                        Input::Progress => {}
                        Input::Nothing => return Poll::Pending,
                        Input::Gone => return Poll::Ready(()),
                    },
                },
                Step::Close { lingering, lingers } => {
                    if lingering.is_none() {
                        let closed = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
                        if closed.is_err() || !*lingers {
                            return Poll::Ready(());
                        }
                    }
                    let stops = self.stream.state.is_closing();
                    let lingering = lingering.get_or_insert_with(|| Box::new(Lingering::new(stops)));
                    return lingering.poll(&mut self.stream, cx);
                }
            }
        }
    }

    /// Receives a head; `None` at the end of the connection.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<RequestHead>, HeadError>> {
        loop {
            let received = &mut self.input.received;
            if self.incomplete == 0 {
                // Empty lines before a head are skipped (RFC 9112, 2.2): some clients send one behind a body.
                let lines = received.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                received.advance(lines);
            }
            if !received.is_empty() {
                self.stream.state.record_bytes();
                let is_worth_parsing = self.incomplete == 0
                    || received.len() > self.head_limit
                    || request_head::may_end(received, self.incomplete);
                if is_worth_parsing && let Some(head) = request_head::parse(received, self.head_limit)? {
                    self.incomplete = 0;
                    return Poll::Ready(Ok(Some(head)));
                }
                self.incomplete = received.len();
            }
            match ready!(self.input.poll_more(&mut self.stream, cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(Ok(None)),
            }
        }
    }

    fn begin_request(&mut self, head: RequestHead) {
        self.state().begin_request();
        let RequestHead { request, body, traits } = head;
        let (body, feed) = IncomingBody::receive(body, &mut self.input.received);
        let mut request = request.map(|()| body);
        if let Some(identity) = &self.connected.identity {
            request.extensions_mut().insert(Arc::clone(identity));
        }
        (self.body, self.traits) = (feed, traits);
        self.response.set(Some((self.service)(self.connected.peer, request)));
        self.step = Step::Respond;
    }

    /// Responds to a head that no service sees.
    fn refuse(&mut self, error: HeadError, cx: &mut Context<'_>) {
        let mut response = Response::new(());
        *response.status_mut() = match error {
            HeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadError::Malformed => StatusCode::BAD_REQUEST,
        };
        if let Some(registration) = &self.registration {
            registration.counters.refuse_head(error, &self.connected.peer);
        }
        (self.is_refused, self.closes, self.traits) = (true, true, RequestTraits::default());
        self.step = Step::Send;
        let framing = ResponseFraming::Bodiless(Some(0));
        // A failed write fails again when the response is sent.
        let _ = self.send_head(response.into_parts().0, framing, None, cx);
    }

    /// Sends the head of a response, with its body as far as that is at hand.
    fn begin_response(&mut self, response: Response<B>, cx: &mut Context<'_>) -> Result<(), Aborted> {
        let (head, mut body) = response.into_parts();
        let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        let facts = HeadFacts::parse(&head.headers);
        let framing = ResponseFraming::new(head.status, facts, length, self.traits);
        self.closes = !self.traits.keeps_alive
            || framing == ResponseFraming::Body(BodyFraming::UntilClose)
            || self.state().is_closing()
            || !self.has_body()
            || facts.says_close;
        // From now on an interim response would come too late.
        self.traits.expects_continue = false;
        self.step = Step::Send;
        let ResponseFraming::Body(mut body_framing) = framing else {
            return self.send_head(head, framing, None, cx);
        };
        let mut first = Bytes::new();
        if let BodyFraming::Length(remaining) = &mut body_framing
            && *remaining <= MAX_COPIED
            && let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(cx)
        {
            let bytes = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
            let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 <= *remaining) else {
                // The client sees by the end of the connection that the response is incomplete.
                let _ = self.send_head(head, framing, None, cx);
                return Err(Aborted);
            };
            first = bytes;
            *remaining -= first.len() as u64;
            if *remaining == 0 {
                return self.send_head(head, framing, Some(&first), cx);
            }
        }
        let trailers = response_head::allowed_trailers(&head.headers, self.traits);
        // It is written together with the first frames.
        let queue = |encoded: &mut Vec<u8>| self.writer.queue(Bytes::copy_from_slice(encoded));
        response_head::with_encoded(&head, framing, self.traits, self.closes, queue);
        self.writer.queue(first);
        self.writer.set_body(OutgoingBody { body, framing: body_framing, trailers: Some(trailers) });
        Ok(())
    }

    /// Writes a head and a whole body.
    fn send_head(
        &mut self,
        head: Parts,
        framing: ResponseFraming,
        body: Option<&[u8]>,
        cx: &mut Context<'_>,
    ) -> Result<(), Aborted> {
        let (traits, closes) = (self.traits, self.closes);
        let result = response_head::with_encoded(&head, framing, traits, closes, |encoded| {
            encoded.extend_from_slice(body.unwrap_or_default());
            // Behind an interim response that is still to be written.
            let is_next = self.writer.is_done();
            let written = match is_next.then(|| Pin::new(&mut self.stream).poll_write(cx, encoded)) {
                Some(Poll::Ready(written)) => written.map_err(|_| Aborted),
                Some(Poll::Pending) | None => Ok(0),
            };
            let rest = written.map(|written| encoded.get(written..).unwrap_or_default());
            rest.map(|rest| self.writer.queue(Bytes::copy_from_slice(rest)))
        });
        recycle_map(head.headers);
        result
    }

    fn finish_response(&mut self) {
        self.state().finish_response();
        if self.closes {
            let lingers = self.is_refused || !self.has_body() || !self.input.received.is_empty();
            return self.begin_close(lingers);
        }
        if let Some(mut body) = self.body.take() {
            body.discard(&mut self.input.received);
        }
        if self.input.received.is_empty() {
            // An idle connection holds no buffer, and nothing of the request.
            self.input = ReceiveBuffer::default();
        }
        self.step = Step::Receive;
    }

    fn begin_close(&mut self, lingers: bool) {
        self.step = Step::Close { lingering: None, lingers };
    }

    /// Returns true if the whole body of the request has been received.
    fn has_body(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_completed_by(&self.input.received))
    }

    /// Receives what the reader of the request's body waits for; without one, looks if the client has gone.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Input {
        let Some(body) = self.body.as_mut().filter(|body| !body.is_complete()) else {
            // One read only: what comes is the next request, which waits for this one's response.
            let input = &mut self.input;
            return match input.received.is_empty().then(|| input.poll_more(&mut self.stream, cx)) {
                Some(Poll::Ready(Ok(false) | Err(_))) => Input::Gone,
                Some(Poll::Ready(Ok(true)) | Poll::Pending) | None => Input::Nothing,
            };
        };
        if !body.poll_wanted(cx) {
            return Input::Nothing;
        }
        loop {
            // A read may bring thousands of chunks: they count like reads, so that other connections get their turn.
            let Poll::Ready(coop) = coop::poll_proceed(cx) else { return Input::Nothing };
            if body.push(&mut self.input.received, cx) {
                coop.made_progress();
                return Input::Progress;
            }
            if std::mem::take(&mut self.traits.expects_continue) && self.input.received.is_empty() {
                self.writer.queue(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n"));
                // If it fails, so does reading.
                let _ = self.writer.poll_flush(&mut self.stream, cx);
            }
            match self.input.poll_more(&mut self.stream, cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => body.fail(IncomingBodyError::Closed, cx),
                Poll::Ready(Err(error)) => body.fail(IncomingBodyError::Failed(error), cx),
                Poll::Pending => return Input::Nothing,
            }
            if body.has_failed() {
                return Input::Progress;
            }
        }
    }
}

/// The service is never pinned, and what else is not `Unpin` is boxed.
impl<I: Unpin, S, F, B> Unpin for Connection<I, S, F, B> {}

impl<I, S, F, B> Future for Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Peer, Request<IncomingBody>) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.waker.as_ref().is_some_and(|current| current.will_wake(cx.waker())) {
            this.state().set_waker(cx.waker());
            this.waker = Some(cx.waker().clone());
        }
        if this.poll_steps(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.state().begin_wait()
            && let Some(registration) = &this.registration
        {
            registration.entered.request_sweep();
        }
        Poll::Pending
    }
}

/// Largest body that is copied behind its head, in bytes.
const MAX_COPIED: u64 = 8 * 1024;
