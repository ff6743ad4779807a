//! Bodies of requests, as their handlers read them: a body is received only as far as its reader asks for it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::http1::body_decoder::{BodyDecoder, BodyFrame, ChunkError};

/// Body of a request that a listener receives.
pub struct IncomingBody(Source);

impl fmt::Debug for IncomingBody {
    /// Omits the bytes, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IncomingBody").field(&self.size_hint()).finish()
    }
}

enum Source {
    /// The rest of a body that came whole with its head.
    Whole(Bytes),
    /// A body that is still being received.
    Streamed(Arc<Mutex<Exchange>>),
}

/// Reason why a body did not arrive completely.
#[derive(Debug, thiserror::Error)]
pub enum IncomingBodyError {
    /// The client closed the connection, or the listener did.
    #[error("the connection ended within the request body")]
    Closed,
    /// Reading failed.
    #[error("the connection failed within the request body")]
    Failed(#[source] io::Error),
    /// The chunked coding is invalid.
    #[error("{0} of the request body")]
    Chunks(#[from] ChunkError),
}

/// State that the connection and the reader of a body share.
struct Exchange {
    /// Length of the part that the reader has not got; `None` if unknown.
    remaining: Option<u64>,
    /// The next frame.
    frame: Option<Frame<Bytes>>,
    end: Option<Result<(), IncomingBodyError>>,
    /// The reader waits for a frame.
    is_wanted: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

impl IncomingBody {
    /// Creates a body that is in memory.
    pub const fn whole(bytes: Bytes) -> Self {
        Self(Source::Whole(bytes))
    }

    /// Creates the body that follows a head, of which `received` is the beginning. Returns its other end if it is not complete.
    pub(super) fn receive(mut decoder: BodyDecoder, received: &mut Bytes) -> (Self, Option<BodyFeed>) {
        match decoder {
            BodyDecoder::Nothing => return (Self::whole(Bytes::new()), None),
            BodyDecoder::Length(length) if length <= received.len() as u64 => {
                if let Ok(Some(BodyFrame::Bytes(bytes))) = decoder.take(received) {
                    return (Self::whole(bytes), None);
                }
            }
            _ => {}
        }
        let remaining = match decoder {
            BodyDecoder::Length(length) => Some(length),
            _ => None,
        };
        let exchange = Exchange { remaining, frame: None, end: None, is_wanted: false, reader: None, connection: None };
        let exchange = Arc::new(Mutex::new(exchange));
        (Self(Source::Streamed(Arc::clone(&exchange))), Some(BodyFeed { decoder, exchange }))
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = IncomingBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingBodyError>>> {
        let exchange = match &mut self.0 {
            Source::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Source::Whole(bytes) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Streamed(exchange) => exchange,
        };
        let mut exchange = exchange.lock();
        if let Some(frame) = exchange.frame.take() {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            exchange.remaining = exchange.remaining.map(|remaining| remaining.saturating_sub(length));
            return Poll::Ready(Some(Ok(frame)));
        }
        match exchange.end.take() {
            Some(Ok(())) => {
                exchange.end = Some(Ok(()));
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                exchange.end = Some(Ok(()));
                return Poll::Ready(Some(Err(error)));
            }
            None => {}
        }
        exchange.is_wanted = true;
        store_waker(&mut exchange.reader, cx.waker());
        // The task of the connection looks after it has polled the reader; another one is told.
        if let Some(connection) = exchange.connection.take_if(|connection| !connection.will_wake(cx.waker())) {
            connection.wake();
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Streamed(exchange) => {
                let exchange = exchange.lock();
                exchange.frame.is_none() && matches!(exchange.end, Some(Ok(())))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Streamed(exchange) => {
                exchange.lock().remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

/// The connection's end of a body that is still being received. Dropped before the body's end, it fails the reader.
pub(super) struct BodyFeed {
    decoder: BodyDecoder,
    exchange: Arc<Mutex<Exchange>>,
}

impl BodyFeed {
    /// Returns true if the reader waits for more. If not, `cx` is woken once it does.
    pub(super) fn poll_wanted(&self, cx: &Context<'_>) -> bool {
        let mut exchange = self.exchange.lock();
        if !exchange.is_wanted {
            store_waker(&mut exchange.connection, cx.waker());
        }
        exchange.is_wanted
    }

    /// Returns true once the last byte of the body was decoded.
    pub(super) fn is_complete(&self) -> bool {
        self.decoder == BodyDecoder::Nothing
    }

    /// Returns true if these bytes hold the rest of the body.
    pub(super) fn is_completed_by(&self, received: &Bytes) -> bool {
        let (mut decoder, mut received) = (self.decoder, received.clone());
        while let Ok(Some(_)) = decoder.take(&mut received) {}
        decoder == BodyDecoder::Nothing
    }

    /// Decodes the next frame and hands it to the reader. Returns true if there was one, or the body has ended or failed.
    pub(super) fn push(&mut self, received: &mut Bytes, cx: &Context<'_>) -> bool {
        match self.decoder.take(received) {
            Ok(Some(frame)) => {
                let frame = match frame {
                    BodyFrame::Bytes(bytes) => Frame::data(bytes),
                    BodyFrame::Trailers(trailers) => Frame::trailers(trailers),
                };
                let is_last = self.is_complete();
                self.update(cx, |exchange| {
                    exchange.frame = Some(frame);
                    exchange.end = is_last.then_some(Ok(()));
                });
                true
            }
            Ok(None) if self.is_complete() => {
                self.update(cx, |exchange| exchange.end = Some(Ok(())));
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.fail(error.into(), cx);
                true
            }
        }
    }

    /// Ends the body with an error.
    pub(super) fn fail(&mut self, error: IncomingBodyError, cx: &Context<'_>) {
        self.update(cx, |exchange| {
            exchange.end.get_or_insert(Err(error));
        });
    }

    /// Drops the rest of the body, which these bytes hold.
    pub(super) fn discard(&mut self, received: &mut Bytes) {
        while let Ok(Some(_)) = self.decoder.take(received) {}
    }

    /// Returns true if the body has failed.
    pub(super) fn has_failed(&self) -> bool {
        !self.is_complete() && self.exchange.lock().end.is_some()
    }

    fn update(&self, cx: &Context<'_>, change: impl FnOnce(&mut Exchange)) {
        let mut exchange = self.exchange.lock();
        change(&mut exchange);
        exchange.is_wanted = false;
        // The task of the connection polls the reader next.
        if let Some(reader) = exchange.reader.take().filter(|reader| !reader.will_wake(cx.waker())) {
            reader.wake();
        }
    }
}

impl Drop for BodyFeed {
    fn drop(&mut self) {
        let mut exchange = self.exchange.lock();
        exchange.end.get_or_insert(Err(IncomingBodyError::Closed));
        if let Some(reader) = exchange.reader.take() {
            reader.wake();
        }
    }
}

fn store_waker(stored: &mut Option<Waker>, waker: &Waker) {
    if !stored.as_ref().is_some_and(|stored| stored.will_wake(waker)) {
        *stored = Some(waker.clone());
    }
}
