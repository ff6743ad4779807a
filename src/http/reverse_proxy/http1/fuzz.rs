//! Entry point of the fuzz target `response`.

use bytes::Bytes;
use http::{HeaderMap, Response};

use super::ProtocolError;
use super::response_head;
use crate::http1::body_decoder::{BodyDecoder, BodyFrame};

/// A response decoded up to the end of the connection.
#[derive(Debug)]
pub struct DecodedResponse {
    /// Head and body of the response.
    pub response: Response<Vec<u8>>,
    /// Trailers of a chunked body.
    pub trailers: HeaderMap,
    /// Bytes after the response.
    pub rest: Vec<u8>,
    /// The connection can be reused.
    pub reusable: bool,
}

/// Decodes a response that arrives in pieces of `size` bytes before the connection ends; `None` if it is incomplete.
pub fn decode_response(bytes: &[u8], size: usize, bodiless: bool) -> Result<Option<DecodedResponse>, ProtocolError> {
    let mut pieces = bytes.chunks(size.max(1));
    let mut received = Bytes::new();
    let head = loop {
        let Some(piece) = pieces.next() else { return Ok(None) };
        received = [received.as_ref(), piece].concat().into();
        if let Some(head) = response_head::parse(&mut received, bodiless)? {
            break head;
        }
    };
    let mut decoder = head.body;
    let mut body = Vec::new();
    let mut trailers = HeaderMap::new();
    loop {
        while let Some(frame) = decoder.take(&mut received)? {
            match frame {
                BodyFrame::Bytes(bytes) => body.extend_from_slice(&bytes),
                BodyFrame::Trailers(headers) => trailers = headers,
            }
        }
        let Some(piece) = pieces.next() else { break };
        received = [received.as_ref(), piece].concat().into();
    }
    if !matches!(decoder, BodyDecoder::Nothing | BodyDecoder::All) {
        return Ok(None);
    }
    let response = head.response.map(|()| body);
    let rest = received.to_vec();
    Ok(Some(DecodedResponse { response, trailers, rest, reusable: head.reusable }))
}
