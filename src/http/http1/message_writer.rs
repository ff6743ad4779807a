//! Writes messages: a head, and a body as its frames come.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName};
use hyper::body::{Body, Frame};
use tokio::io::AsyncWrite;

/// Framing of a body that is sent (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// `Content-Length`, in bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunks,
    /// The end of the connection ends the body.
    UntilClose,
}

/// A body that is being sent.
pub(crate) struct OutgoingBody<B> {
    pub(crate) body: B,
    pub(crate) framing: BodyFraming,
    /// Names of the trailers that are sent; `None` sends all.
    pub(crate) trailers: Option<Vec<HeaderName>>,
}

/// Failure of a message; nothing more can be sent on its connection.
pub(crate) enum WriteError<E> {
    /// The stream failed.
    Io(io::Error),
    /// The body failed.
    Body(E),
    /// The body has another length than its head announces.
    Length,
}

/// The unwritten part of a message.
pub(crate) struct MessageWriter<B> {
    queue: VecDeque<Bytes>,
    /// Boxed, since few messages have a body that is not in memory.
    body: Option<Box<OutgoingBody<B>>>,
    /// The stream may buffer written bytes, as TLS does.
    unflushed: bool,
}

impl<B> Default for MessageWriter<B> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), body: None, unflushed: false }
    }
}

impl<B> MessageWriter<B> {
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.body.is_none() && !self.unflushed
    }

    /// Queues bytes that are not yet written, of a head or of the beginning of a body.
    pub(crate) fn queue(&mut self, bytes: Bytes) {
        self.unflushed = true;
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Sends this body behind what is queued.
    pub(crate) fn set_body(&mut self, body: OutgoingBody<B>) {
        self.body = Some(Box::new(body));
    }

    /// Writes what is queued.
    pub(crate) fn poll_queue<I: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(first) = self.queue.front() {
            if first.is_empty() {
                self.queue.pop_front();
                continue;
            }
            let mut slices = [IoSlice::new(&[]); MAX_IOVECS];
            for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
                *slice = IoSlice::new(bytes);
            }
            let mut written = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            while let Some(first) = self.queue.front_mut()
                && written > 0
            {
                let count = written.min(first.len());
                first.advance(count);
                written -= count;
                if first.is_empty() {
                    self.queue.pop_front();
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is queued, and flushes it.
    pub(crate) fn poll_flush<I: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_queue(stream, cx))?;
        if self.unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<B: Body<Data = Bytes> + Unpin> MessageWriter<B> {
    /// Writes as much as possible; ready once everything is written.
    pub(crate) fn poll<I: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), WriteError<B::Error>>> {
        loop {
            let waits = self.gather(cx)?;
            if waits || self.body.is_none() {
                // Written bytes must not wait for the rest of the body.
                ready!(self.poll_flush(stream, cx)).map_err(WriteError::Io)?;
                return if waits { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            ready!(self.poll_queue(stream, cx)).map_err(WriteError::Io)?;
        }
    }

    /// Queues available frames of the body, so that they are written together with what precedes them, up to a limit of
    /// bytes and of frames: a small frame may pin a large buffer. Returns true if more is awaited.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<bool, WriteError<B::Error>> {
        while let Some(outgoing) = &mut self.body
            && self.queue.len() < MAX_IOVECS
            && self.queue.iter().map(Bytes::len).sum::<usize>() < MAX_GATHERED_BYTES
        {
            match Pin::new(&mut outgoing.body).poll_frame(cx) {
                Poll::Ready(frame) => self.take(frame.transpose().map_err(WriteError::Body)?)?,
                Poll::Pending => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Queues the next frame of the body, or its end.
    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), WriteError<B::Error>> {
        let Some(outgoing) = &mut self.body else { return Ok(()) };
        let OutgoingBody { body, framing, trailers: allowed } = &mut **outgoing;
        let trailers = match frame.map(Frame::into_data) {
            None => None,
            Some(Ok(bytes)) => {
                match framing {
                    BodyFraming::Length(remaining) => {
                        *remaining = remaining.checked_sub(bytes.len() as u64).ok_or(WriteError::Length)?;
                        self.queue.push_back(bytes);
                    }
                    // An empty chunk would end the body.
                    BodyFraming::Chunks if bytes.is_empty() => {}
                    BodyFraming::Chunks => {
                        let size = format!("{:x}\r\n", bytes.len());
                        self.queue.extend([size.into(), bytes, Bytes::from_static(b"\r\n")]);
                    }
                    BodyFraming::UntilClose => self.queue.push_back(bytes),
                }
                if !body.is_end_stream() {
                    return Ok(());
                }
                None
            }
            Some(Err(other)) => other.into_trailers().ok(),
        };
        match framing {
            BodyFraming::Length(0) | BodyFraming::UntilClose => {}
            BodyFraming::Length(_) => return Err(WriteError::Length),
            BodyFraming::Chunks => {
                self.queue.push_back(encode_last_chunk(&trailers.unwrap_or_default(), allowed.as_deref()));
            }
        }
        self.body = None;
        Ok(())
    }
}

/// Encodes the last chunk with the allowed trailers.
fn encode_last_chunk(trailers: &HeaderMap, allowed: Option<&[HeaderName]>) -> Bytes {
    if trailers.is_empty() {
        return Bytes::from_static(b"0\r\n\r\n");
    }
    let mut out = b"0\r\n".to_vec();
    for (name, value) in trailers {
        if allowed.is_some_and(|allowed| !allowed.contains(name)) {
            continue;
        }
        // Writing to memory cannot fail.
        let _ = write!(out, "{name}: ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.into()
}

/// Bytes of a body that are gathered for one write; the last frame may exceed it.
const MAX_GATHERED_BYTES: usize = 64 * 1024;

/// Number of buffers in one `writev`.
const MAX_IOVECS: usize = 16;
