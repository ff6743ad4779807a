//! Decodes bodies incrementally (RFC 9112, 6.3 and 7.1). Pure.

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

/// Decoder of a body; its state is the part still to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyDecoder {
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
pub(crate) enum ChunkState {
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
pub(crate) enum BodyFrame {
    Bytes(Bytes),
    Trailers(HeaderMap),
}

/// Violation of the chunked transfer coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The coding is invalid.
    #[error("invalid chunked encoding")]
    Invalid,
    /// A chunk's size line or the trailers are too long.
    #[error("too long a chunk line or trailers")]
    TooLong,
}

impl BodyDecoder {
    /// Takes the next frame out of the received bytes; `None` if more bytes are needed or the body is complete.
    pub(crate) fn take(&mut self, received: &mut Bytes) -> Result<Option<BodyFrame>, ChunkError> {
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

    fn take_chunked(&mut self, received: &mut Bytes) -> Result<Option<BodyFrame>, ChunkError> {
        loop {
            let Self::Chunks(chunk) = self else { return Ok(None) };
            match chunk {
                // httparse accepts a line without a digit as the last chunk.
                ChunkState::Size if received.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => {
                    return Err(ChunkError::Invalid);
                }
                ChunkState::Size => match httparse::parse_chunk_size(received) {
                    Ok(Status::Complete((line, size))) => {
                        if has_bare_line_feed(received, line) {
                            return Err(ChunkError::Invalid);
                        }
                        received.advance(line);
                        *chunk = if size == 0 { ChunkState::Trailers } else { ChunkState::In(size) };
                    }
                    Ok(Status::Partial) => return need_more(received),
                    Err(_) => return Err(ChunkError::Invalid),
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
                    _ => return Err(ChunkError::Invalid),
                },
                ChunkState::Trailers => {
                    let mut headers = [httparse::EMPTY_HEADER; 32];
                    let Status::Complete((length, fields)) =
                        httparse::parse_headers(received, &mut headers).map_err(|_| ChunkError::Invalid)?
                    else {
                        return need_more(received);
                    };
                    if has_bare_line_feed(received, length) {
                        return Err(ChunkError::Invalid);
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

fn need_more(received: &Bytes) -> Result<Option<BodyFrame>, ChunkError> {
    if received.len() > MAX_LINE_LENGTH { Err(ChunkError::TooLong) } else { Ok(None) }
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
