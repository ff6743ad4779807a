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
    /// Buffer of the next read, for a stream that fills the shared one.
    large_buffer: Option<BytesMut>,
}

impl ResponseReader {
    pub(super) fn new() -> Self {
        Self { received: Bytes::new(), expected: BodyDecoder::Nothing, reusable: true, large_buffer: None }
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.reusable && self.expected == BodyDecoder::Nothing && self.received.is_empty()
    }

    /// Ready once the stream has ended or anything was received.
    pub(super) fn poll_unrequested(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        self.large_buffer = None;
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
        let more = if let Some(buffer) = &mut self.large_buffer {
            // Several records of TLS share an allocation: each would cost a zeroing of its whole size.
            if buffer.capacity() < SHARED_READ_SIZE {
                buffer.reserve(LARGE_READ_SIZE);
            }
            ready!(poll_read_buf(Pin::new(stream), cx, buffer))?;
            buffer.split().freeze()
        } else {
            ready!(SHARED_BUFFER.with_borrow_mut(|shared_buffer| {
                let mut buffer = ReadBuf::new(shared_buffer);
                ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                let bytes = Bytes::copy_from_slice(buffer.filled());
                // The bytes may be secret, and the buffer stays.
                buffer.filled_mut().fill(0);
                Poll::Ready(io::Result::Ok(bytes))
            }))?
        };
        if more.len() < SHARED_READ_SIZE {
            self.large_buffer = None;
        } else {
            self.large_buffer.get_or_insert_default();
        }
        let some = !more.is_empty();
        let is_first = self.received.is_empty();
        self.received = if is_first { more } else { [&*self.received, &*more].concat().into() };
        Poll::Ready(Ok(some))
    }
}

/// Sizes of reads into the shared buffer and into a buffer of the connection, in bytes.
const SHARED_READ_SIZE: usize = 16 * 1024;
const LARGE_READ_SIZE: usize = 128 * 1024;

thread_local! {
    static SHARED_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_READ_SIZE].into());
}
