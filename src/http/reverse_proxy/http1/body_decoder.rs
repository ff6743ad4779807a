//! Decodes response bodies incrementally (RFC 9112, 6.3 and 7.1).

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

/// Decoder of a response body; its state is the part still to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    /// The body is complete.
    Nothing,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunks(ChunkState),
    /// Everything until the connection is closed.
    All,
}

/// State of the chunked decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// Before the size line of a chunk.
    Size,
    /// In a chunk, with this many bytes left.
    In(u64),
    /// Before the CRLF after a chunk.
    End,
    /// After the last chunk.
    Trailers,
}

/// Decoded frame of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyFrame {
    Bytes(Bytes),
    Trailers(HeaderMap),
}

/// Violation of HTTP/1 in an upstream's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The head cannot be parsed.
    #[error("the upstream response is not HTTP/1 ({0})")]
    Head(httparse::Error),
    /// The head, a chunk's size line or the trailers are too long.
    #[error("the head, a chunk line or the trailers of the upstream response are too long")]
    TooLong,
    /// `Content-Length` is invalid or contradictory.
    #[error("invalid or contradictory Content-Length in the upstream response")]
    Length,
    /// The transfer coding was not requested, or does not exist in this version of HTTP.
    #[error("unsupported Transfer-Encoding in the upstream response")]
    Coding,
    /// The upstream switched protocols without a request.
    #[error("the upstream switched protocols without a request")]
    Protocol,
    /// The chunked coding is invalid.
    #[error("invalid chunked encoding in the upstream response")]
    Chunks,
}

impl BodyDecoder {
    /// Takes the next frame out of the received bytes; `None` if more bytes are needed or the body is complete.
    pub(super) fn take(&mut self, received: &mut Bytes) -> Result<Option<BodyFrame>, ProtocolError> {
        match self {
            Self::Nothing => Ok(None),
            Self::All if received.is_empty() => Ok(None),
            Self::All => Ok(Some(BodyFrame::Bytes(std::mem::take(received)))),
            Self::Length(remaining) => {
                let piece = part(remaining, received);
                if *remaining == 0 {
                    *self = Self::Nothing;
                }
                Ok(piece.map(BodyFrame::Bytes))
            }
            Self::Chunks(_) => self.take_chunked(received),
        }
    }

    fn take_chunked(&mut self, received: &mut Bytes) -> Result<Option<BodyFrame>, ProtocolError> {
        loop {
            let Self::Chunks(chunk) = self else { return Ok(None) };
            match chunk {
                // httparse accepts a line without a digit as the last chunk.
                ChunkState::Size if received.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => {
                    return Err(ProtocolError::Chunks);
                }
                ChunkState::Size => match httparse::parse_chunk_size(received) {
                    Ok(Status::Complete((line, size))) => {
                        if has_bare_line_feed(received, line) {
                            return Err(ProtocolError::Chunks);
                        }
                        received.advance(line);
                        *chunk = if size == 0 { ChunkState::Trailers } else { ChunkState::In(size) };
                    }
                    Ok(Status::Partial) => return need_more(received),
                    Err(_) => return Err(ProtocolError::Chunks),
                },
                ChunkState::In(remaining) => {
                    let piece = part(remaining, received);
                    if *remaining == 0 {
                        *chunk = ChunkState::End;
                        // The end mostly arrives with the last chunk; detecting it here saves a read.
                        if let Some(rest) = received.strip_prefix(b"\r\n0\r\n\r\n") {
                            received.advance(received.len() - rest.len());
                            *self = Self::Nothing;
                        }
                    }
                    return Ok(piece.map(BodyFrame::Bytes));
                }
                ChunkState::End => match received.as_ref() {
                    [b'\r', b'\n', ..] => {
                        received.advance(2);
                        *chunk = ChunkState::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(ProtocolError::Chunks),
                },
                ChunkState::Trailers => {
                    let mut headers = [httparse::EMPTY_HEADER; 32];
                    let Status::Complete((length, fields)) =
                        httparse::parse_headers(received, &mut headers).map_err(|_| ProtocolError::Chunks)?
                    else {
                        return need_more(received);
                    };
                    if has_bare_line_feed(received, length) {
                        return Err(ProtocolError::Chunks);
                    }
                    let trailers = trailers(fields);
                    received.advance(length);
                    *self = Self::Nothing;
                    return Ok((!trailers.is_empty()).then_some(BodyFrame::Trailers(trailers)));
                }
            }
        }
    }
}

/// Takes as much of the remaining length as was received.
fn part(remaining: &mut u64, received: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(*remaining).map_or(received.len(), |remaining| remaining.min(received.len()));
    *remaining -= length as u64;
    (length > 0).then(|| received.split_to(length))
}

/// Returns true if a line of the first `length` bytes ends without CR. httparse skips a line feed in a chunk's extension, and
/// takes one for the end of a trailer; other parsers do not, and would find another end of the body.
fn has_bare_line_feed(received: &[u8], length: usize) -> bool {
    let lines = received.get(..length).unwrap_or_default();
    memchr::memchr_iter(b'\n', lines).any(|at| at == 0 || lines.get(at - 1) != Some(&b'\r'))
}

fn need_more(received: &Bytes) -> Result<Option<BodyFrame>, ProtocolError> {
    if received.len() > MAX_LINE_LENGTH { Err(ProtocolError::TooLong) } else { Ok(None) }
}

fn trailers(fields: &[httparse::Header<'_>]) -> HeaderMap {
    let pair = |header: &httparse::Header<'_>| {
        Some((HeaderName::from_bytes(header.name.as_bytes()).ok()?, HeaderValue::from_bytes(header.value).ok()?))
    };
    fields.iter().filter_map(pair).collect()
}

/// Longest size line of a chunk, and longest trailers together, in bytes.
const MAX_LINE_LENGTH: usize = 16 * 1024;

#[cfg(test)]
mod tests;
