//! Serves HTTP/1 on one connection and records its progress.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Peer;
use super::connection_state::{ConnectionState, ReceivedPart};
use super::connection_table::ConnectionGuard;
use super::framing::{Framing, FramingScan};
use super::lingering::Lingering;
use crate::peer::PeerIdentity;

/// Peer of a connection, and its identity if the listener reads that.
#[derive(Debug)]
pub(super) struct ConnectedPeer {
    pub(super) peer: Peer,
    pub(super) identity: Option<Arc<PeerIdentity>>,
}

/// Serves one connection to its end. An error is the client's: a malformed or too large head.
pub(super) fn serve<I, S, F, B>(
    http: &hyper::server::conn::http1::Builder,
    stream: I,
    connected: ConnectedPeer,
    service: S,
    connection: Arc<ConnectionState>,
    entered: ConnectionGuard,
) -> impl Future<Output = hyper::Result<()>> + use<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Fn(Peer, Request<Incoming>) -> F + Unpin,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let watched =
        TrackedIo { stream, connection: Arc::clone(&connection), scan: FramingScan::default(), lingering: None };
    let stream = TokioIo::new(watched);
    let ConnectedPeer { peer, identity } = connected;
    let service = {
        let connection = Arc::clone(&connection);
        service_fn(move |mut request: Request<Incoming>| {
            let framing = connection.take_framing();
            connection.begin_request(request.body().size_hint().exact(), framing.is_some());
            if framing != Some(Framing::Plain) {
                restore_length(&mut request);
            }
            if let Some(identity) = &identity {
                request.extensions_mut().insert(Arc::clone(identity));
            }
            let response = service(peer, request);
            let connection = Arc::clone(&connection);
            async move {
                let mut response = response.await;
                // Tell the client that the connection closes: it would otherwise send its next request on it.
                if connection.is_closing() || !connection.has_body() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| TrackedBody { body, _connection: InFlightGuard(connection) }))
            }
        })
    };
    let mut protocol = http.serve_connection(stream, service);
    let mut closing = false;
    let mut waker: Option<Waker> = None;
    // Hand-written future: `async` would keep the arguments alive beside the future made from them, for up to 10,000
    // connections.
    poll_fn(move |cx| {
        if !waker.as_ref().is_some_and(|current| current.will_wake(cx.waker())) {
            connection.set_waker(cx.waker());
            waker = Some(cx.waker().clone());
        }
        let mut ended = Pin::new(&mut protocol).poll(cx);
        // Shut down after reading, so that a request that has arrived is still served.
        if ended.is_pending() && !closing && connection.should_close_now() {
            closing = true;
            Pin::new(&mut protocol).graceful_shutdown();
            ended = Pin::new(&mut protocol).poll(cx);
        }
        if ended.is_pending() && connection.begin_wait() {
            entered.request_sweep();
        }
        ended
    })
}

/// Restores a `Content-Length` that hyper's parser removed beside a `Transfer-Encoding`, so that the guard can reject
/// the request. A head that was not scanned is treated as if it had both.
fn restore_length(request: &mut Request<Incoming>) {
    let headers = request.headers_mut();
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// IO wrapper that records received and blocked bytes in the connection's state.
struct TrackedIo<I> {
    stream: I,
    connection: Arc<ConnectionState>,
    scan: FramingScan,
    /// Set once this side has closed.
    lingering: Option<Box<Lingering>>,
}

impl<I: AsyncRead + Unpin> AsyncRead for TrackedIo<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled_before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if let Some(bytes @ [_, ..]) = buffer.filled().get(filled_before..) {
            self.record_received(bytes);
        }
        Poll::Ready(result)
    }
}

impl<I> TrackedIo<I> {
    fn record_received(&mut self, bytes: &[u8]) {
        match self.connection.record_bytes() {
            ReceivedPart::Begin => self.scan = FramingScan::default(),
            ReceivedPart::BegunHead => self.scan = FramingScan::new_skipping(),
            ReceivedPart::Head => {}
            ReceivedPart::Body => return self.connection.record_body(bytes),
        }
        if let Some((framing, body)) = self.scan.feed(bytes) {
            self.connection.record_framing(framing, body);
        }
    }

    fn record_write<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Pending => self.connection.record_blocked_write(),
            Poll::Ready(_) => self.connection.record_write(),
        }
        outcome
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TrackedIo<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.record_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes this side and reads on, so that the client can read the response before a reset (RFC 9112, 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, connection, lingering, .. } = &mut *self;
        let lingering = if let Some(lingering) = lingering {
            lingering
        } else {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !connection.may_still_send() {
                return Poll::Ready(Ok(()));
            }
            lingering.insert(Box::new(Lingering::new(connection.is_closing())))
        };
        lingering.poll(stream, cx).map(Ok)
    }
}

/// Response body that marks the request as finished when dropped.
struct TrackedBody<B> {
    body: B,
    _connection: InFlightGuard,
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct InFlightGuard(Arc<ConnectionState>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.finish_response();
    }
}
