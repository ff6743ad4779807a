//! Reads responses from an upstream.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Response;
use hyper::body::Frame;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio_util::io::poll_read_buf;
use zeroize::Zeroizing;

use super::body_decoder::{BodyDecoder, BodyFrame};
use super::response_head;
use super::{ConnectionError, Stream};

/// State of the response being received.
pub(super) struct ResponseReader {
    /// Received and not yet decoded.
    received: Bytes,
    /// Decoder of the body.
    expected: BodyDecoder,
    /// The connection can be reused after the response; false while one is awaited.
    reusable: bool,
    /// Size of the next read, in bytes.
    at_once: usize,
    /// Received bytes hold secrets, and are zeroed when they are freed.
    zeroes: bool,
}

impl ResponseReader {
    pub(super) const fn new(zeroes: bool) -> Self {
        Self { received: Bytes::new(), expected: BodyDecoder::Nothing, reusable: true, at_once: SHARED, zeroes }
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.reusable && self.expected == BodyDecoder::Nothing && self.received.is_empty()
    }

    /// Ready once the stream has ended or anything was received.
    pub(super) fn poll_unrequested(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        self.at_once = SHARED;
        self.poll_more(stream, cx).map(|_| ())
    }

    /// Polls the response head.
    pub(super) fn poll_head(
        &mut self,
        stream: &mut Stream,
        bodiless: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, ConnectionError>> {
        self.reusable = false;
        loop {
            if !ready!(self.poll_more(stream, cx)).map_err(ConnectionError::Failed)? {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
            if let Some(head) = response_head::parse(&mut self.received, bodiless)? {
                (self.expected, self.reusable) = (head.body, head.reusable);
                return Poll::Ready(Ok(head.response));
            }
        }
    }

    /// Returns the body if all of it was received.
    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        match self.expected {
            BodyDecoder::Nothing => Some(Bytes::new()),
            BodyDecoder::Length(length) if length <= self.received.len() as u64 => {
                match self.expected.take(&mut self.received) {
                    Ok(Some(BodyFrame::Bytes(bytes))) => Some(bytes),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Polls the next frame of the body.
    pub(super) fn poll_body(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        loop {
            match self.expected.take(&mut self.received) {
                Ok(Some(BodyFrame::Bytes(bytes))) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(Some(BodyFrame::Trailers(trailers))) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(None) if self.expected == BodyDecoder::Nothing => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            match ready!(self.poll_more(stream, cx)) {
                Ok(true) => {}
                Ok(false) if self.expected == BodyDecoder::All => {
                    self.expected = BodyDecoder::Nothing;
                    return Poll::Ready(None);
                }
                Ok(false) => return Poll::Ready(Some(Err(ConnectionError::Closed))),
                Err(error) => return Poll::Ready(Some(Err(ConnectionError::Failed(error)))),
            }
        }
    }

    /// Returns the remaining length of the body, if known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match self.expected {
            BodyDecoder::Nothing => Some(0),
            BodyDecoder::Length(remaining) => Some(remaining),
            BodyDecoder::Chunks(_) | BodyDecoder::All => None,
        }
    }

    /// Reads more bytes; `false` at the end of the stream.
    fn poll_more(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let more = if self.at_once == SHARED {
            SHARED_BUFFER.with_borrow_mut(|room| {
                let mut room = ReadBuf::new(room);
                ready!(Pin::new(stream).poll_read(cx, &mut room))?;
                let bytes = to_bytes(room.filled().to_vec(), self.zeroes);
                if self.zeroes {
                    room.filled_mut().fill(0);
                }
                Poll::Ready(io::Result::Ok(bytes))
            })
        } else {
            let mut room = BytesMut::with_capacity(self.at_once);
            ready!(poll_read_buf(Pin::new(stream), cx, &mut room))?;
            Poll::Ready(Ok(room.freeze()))
        };
        let more = ready!(more)?;
        // Large reads for a stream that fills the buffer.
        if more.len() == self.at_once && !self.zeroes {
            self.at_once = LARGE;
        } else if more.len() < SHARED {
            self.at_once = SHARED;
        }
        let some = !more.is_empty();
        let is_first = self.received.is_empty();
        self.received = if is_first { more } else { to_bytes([&*self.received, &*more].concat(), self.zeroes) };
        Poll::Ready(Ok(some))
    }
}

fn to_bytes(bytes: Vec<u8>, zeroes: bool) -> Bytes {
    if zeroes { Bytes::from_owner(Zeroizing::new(bytes)) } else { bytes.into() }
}

/// Sizes of reads into the shared buffer and into a buffer of the connection, in bytes.
const SHARED: usize = 16 * 1024;
const LARGE: usize = 128 * 1024;

thread_local! {
    static SHARED_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED].into());
}
