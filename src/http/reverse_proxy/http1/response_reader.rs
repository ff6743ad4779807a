//! Reads responses from an upstream.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use hyper::body::Frame;

use super::response_head::{self, ProtocolError};
use super::{ConnectionError, Stream};
use crate::http1::body_decoder::{BodyDecoder, BodyFrame};
use crate::http1::receive_buffer::ReceiveBuffer;

/// State of the response being received.
pub(super) struct ResponseReader {
    input: ReceiveBuffer,
    /// Decoder of the body.
    expected: BodyDecoder,
    /// The connection can be reused after the response; false while one is awaited.
    reusable: bool,
}

impl ResponseReader {
    pub(super) fn new() -> Self {
        Self { input: ReceiveBuffer::default(), expected: BodyDecoder::Nothing, reusable: true }
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.reusable && self.expected == BodyDecoder::Nothing && self.input.received.is_empty()
    }

    /// Ready once the stream has ended or anything was received.
    pub(super) fn poll_unrequested(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        self.input.shrink();
        self.input.poll_more(stream, cx).map(|_| ())
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
            if !ready!(self.input.poll_more(stream, cx)).map_err(ConnectionError::Failed)? {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
            if let Some(head) = response_head::parse(&mut self.input.received, bodiless)? {
                (self.expected, self.reusable) = (head.body, head.reusable);
                return Poll::Ready(Ok(head.response));
            }
        }
    }

    /// Returns the body if all of it was received.
    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        match self.expected {
            BodyDecoder::Nothing => Some(Bytes::new()),
            BodyDecoder::Length(length) if length <= self.input.received.len() as u64 => {
                match self.expected.take(&mut self.input.received) {
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
            match self.expected.take(&mut self.input.received) {
                Ok(Some(BodyFrame::Bytes(bytes))) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(Some(BodyFrame::Trailers(trailers))) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(None) if self.expected == BodyDecoder::Nothing => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(ProtocolError::Chunks(error).into()))),
            }
            match ready!(self.input.poll_more(stream, cx)) {
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
}
