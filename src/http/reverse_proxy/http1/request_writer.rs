//! Writes requests to an upstream.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use hyper::body::{Body as _, Frame};
use tokio::io::AsyncWrite as _;

use super::{ConnectionError, Stream};
use crate::guard::is_end_to_end;
use crate::reverse_proxy::headers::is_hop_by_hop;
use crate::reverse_proxy::request_body::ProgressBody;
use crate::reverse_proxy::request_head::BodyFraming;

/// The unwritten part of a request.
#[derive(Default)]
pub(super) struct RequestWriter {
    queue: VecDeque<Bytes>,
    /// Boxed, since few requests have a body.
    body: Option<Box<(ProgressBody, BodyFraming)>>,
    /// The stream may buffer written bytes, as TLS does.
    unflushed: bool,
}

impl RequestWriter {
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.body.is_none() && !self.unflushed
    }

    /// Queues the unwritten part of a head and the body that follows it.
    pub(super) fn begin(&mut self, head: &[u8], body: Option<(ProgressBody, BodyFraming)>) {
        self.unflushed = true;
        if !head.is_empty() {
            self.queue.push_back(Bytes::copy_from_slice(head));
        }
        self.body = body.map(Box::new);
    }

    /// Writes as much as possible; ready once everything is written.
    pub(super) fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            let waits = self.gather(cx)?;
            ready!(self.poll_queue(stream, cx)).map_err(ConnectionError::Failed)?;
            if self.unflushed && (waits || self.body.is_none()) {
                // Written bytes must not wait for the rest of the body.
                ready!(Pin::new(&mut *stream).poll_flush(cx)).map_err(ConnectionError::Failed)?;
                self.unflushed = false;
            }
            if waits {
                return Poll::Pending;
            }
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Queues available frames of the body, so that they are written together with what precedes them, up to a limit of
    /// bytes and of frames: a small frame may pin a large buffer. Returns true if more is awaited.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        while let Some(body) = &mut self.body
            && self.queue.len() < MAX_IOVECS
            && self.queue.iter().map(Bytes::len).sum::<usize>() < MAX_GATHERED_BYTES
        {
            match Pin::new(&mut body.0).poll_frame(cx) {
                Poll::Ready(frame) => self.take(frame.transpose()?)?,
                Poll::Pending => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Queues the next frame of the body, or its end.
    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), ConnectionError> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let (body, framing) = &mut **body;
        let trailers = match frame.map(Frame::into_data) {
            None => None,
            Some(Ok(bytes)) => {
                match framing {
                    BodyFraming::Length(remaining) => {
                        *remaining = remaining.checked_sub(bytes.len() as u64).ok_or(ConnectionError::Length)?;
                        self.queue.push_back(bytes);
                    }
                    // An empty chunk would end the body.
                    BodyFraming::Chunks if bytes.is_empty() => {}
                    BodyFraming::Chunks => {
                        let size = format!("{:x}\r\n", bytes.len());
                        self.queue.extend([size.into(), bytes, Bytes::from_static(b"\r\n")]);
                    }
                }
                if !body.is_end_stream() {
                    return Ok(());
                }
                None
            }
            Some(Err(other)) => other.into_trailers().ok(),
        };
        match framing {
            BodyFraming::Length(0) => {}
            BodyFraming::Length(_) => return Err(ConnectionError::Length),
            BodyFraming::Chunks => self.queue.push_back(last_chunk(&trailers.unwrap_or_default())),
        }
        self.body = None;
        Ok(())
    }

    fn poll_queue(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
}

/// Encodes the last chunk with the permitted trailers (RFC 9110, 6.5.1).
fn last_chunk(trailers: &HeaderMap) -> Bytes {
    let mut out = b"0\r\n".to_vec();
    for (name, value) in trailers.iter().filter(|(name, _)| may_follow_body(name.as_str())) {
        // Writing to memory cannot fail.
        let _ = write!(out, "{name}: ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.into()
}

/// Returns false for headers of framing, routing and authentication, which a receiver needs before the body; they are not sent
/// as trailers (RFC 9110, 6.5.1). A server or a proxy that takes trailers for headers would read another namespace or token
/// than the rules did. `name` is in lower case.
fn may_follow_body(name: &str) -> bool {
    let is_digest = matches!(name, "content-digest" | "content-md5");
    let is_needed_before =
        is_hop_by_hop(name) || is_end_to_end(name.as_bytes()) || matches!(name, "cookie" | "trailer");
    is_digest || !is_needed_before
}

/// Bytes of a body that are gathered for one write; the last frame may exceed it.
const MAX_GATHERED_BYTES: usize = 64 * 1024;

/// Number of buffers in one `writev`.
const MAX_IOVECS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_needed_before_a_body_are_not_sent_as_trailers() {
        let pairs = [
            ("x-sum", "42"),
            ("authorization", "Bearer t"),
            ("x-vault-token", "t"),
            ("x-vault-namespace", "other"),
            ("x-consul-token", "t"),
            ("x-service-namespace", "other"),
            ("x-keyward-key", "k"),
            ("proxy-authorization", "b"),
            ("content-length", "9"),
            ("cookie", "c"),
            ("content-digest", "d"),
        ];
        let trailers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let sent = String::from_utf8(last_chunk(&trailers).to_vec()).unwrap();
        let mut lines: Vec<_> = sent.lines().filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "content-digest: d", "x-sum: 42"]);
        assert_eq!(last_chunk(&HeaderMap::new()), "0\r\n\r\n");
    }
}
