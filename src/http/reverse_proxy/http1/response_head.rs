//! Parses response heads (RFC 9112, 4 to 6) and removes hop-by-hop headers.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use httparse::{Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use crate::http1::body_decoder::{BodyDecoder, ChunkError, ChunkState};
use crate::http1::headers::{parse_name, take_map};
use crate::reverse_proxy::headers;

/// Violation of HTTP/1 in an upstream's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The head cannot be parsed.
    #[error("the upstream response is not HTTP/1 ({0})")]
    Head(httparse::Error),
    /// The head is too long.
    #[error("the head of the upstream response is too long")]
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
    #[error("{0} in the upstream response")]
    Chunks(#[from] ChunkError),
}

/// Parsed response head.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// Response for the caller.
    pub(super) response: Response<()>,
    /// Decoder of the body.
    pub(super) body: BodyDecoder,
    /// The connection can be reused after the response.
    pub(super) reusable: bool,
}

/// Parses a response head and removes it from `received`; `None` if more bytes are needed. Interim responses are
/// skipped. `bodiless` is set for requests whose response has no body, whatever its headers.
pub(super) fn parse(received: &mut Bytes, bodiless: bool) -> Result<Option<ResponseHead>, ProtocolError> {
    loop {
        let mut headers_buffer = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut response, received, &mut headers_buffer);
        let Status::Complete(length) = parsed.map_err(ProtocolError::Head)? else {
            return if received.len() > MAX_HEAD_SIZE { Err(ProtocolError::TooLong) } else { Ok(None) };
        };
        let status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or(ProtocolError::Head(httparse::Error::Status))?;
        let interim = status.is_informational();
        let head = match status {
            // `Upgrade` is never forwarded, so no upstream may switch.
            StatusCode::SWITCHING_PROTOCOLS => return Err(ProtocolError::Protocol),
            _ if interim => None,
            _ => Some(head(received, &response, status, bodiless)?),
        };
        let _ = received.split_to(length);
        if !interim {
            return Ok(head);
        }
    }
}

fn head(
    received: &Bytes,
    raw: &httparse::Response<'_, '_>,
    status: StatusCode,
    bodiless: bool,
) -> Result<ResponseHead, ProtocolError> {
    let modern = raw.version == Some(1);
    let mut headers = take_map(raw.headers.len());
    // HTTP/1.0 closes unless it says keep-alive (RFC 9112, 9.3).
    let mut closes = !modern;
    let mut connection_headers = Vec::new();
    let mut length = None;
    let mut codings = 0;
    for header in &*raw.headers {
        let name = parse_name(header.name.as_bytes()).map_err(|_| ProtocolError::Head(httparse::Error::HeaderName))?;
        // The values share the received bytes; no header is copied.
        let value = HeaderValue::from_maybe_shared(received.slice_ref(header.value))
            .map_err(|_| ProtocolError::Head(httparse::Error::HeaderValue))?;
        if name == CONNECTION {
            closes = read_connection_options(&value, modern, closes, &mut connection_headers);
        } else if name == TRANSFER_ENCODING {
            // Only chunked was accepted in the request. Another coding would be passed on as the content.
            if !modern || !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(ProtocolError::Coding);
            }
            codings += 1;
        } else if name == CONTENT_LENGTH {
            let parsed = parse_content_length(&value).ok_or(ProtocolError::Length)?;
            match length {
                None => {
                    length = Some(parsed);
                    headers.insert(name, value);
                }
                // Repeated equal lengths are one (RFC 9110, 8.6).
                Some(before) if before == parsed => {}
                Some(_) => return Err(ProtocolError::Length),
            }
        } else if !headers::is_hop_by_hop(name.as_str()) {
            headers.append(name, value);
        }
    }
    for name in connection_headers {
        headers.remove(name);
    }
    let chunked = codings == 1;
    // These have no body whatever their headers say (RFC 9112, 6.3).
    let has_no_body = bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if has_no_body { BodyDecoder::Nothing } else { body_decoder(codings, length)? };
    if chunked {
        // Chunked takes precedence (RFC 9112, 6.3), and a connection with both headers is not reused.
        closes |= headers.remove(CONTENT_LENGTH).is_some();
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(reason) = raw.reason
        && status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    Ok(ResponseHead { response, body, reusable: !closes && body != BodyDecoder::All })
}

/// Reads a `Connection` header and collects the headers that it names. Returns true if the connection closes; `closes` is
/// what the headers before it say.
fn read_connection_options(
    value: &HeaderValue,
    modern: bool,
    mut closes: bool,
    connection_headers: &mut Vec<HeaderName>,
) -> bool {
    // The most common value.
    if value.as_bytes() == b"keep-alive" {
        return closes && modern;
    }
    for token in headers::tokens(value) {
        if token.eq_ignore_ascii_case("close") {
            closes = true;
        } else if token.eq_ignore_ascii_case("keep-alive") {
            closes &= modern;
        } else {
            connection_headers.extend(headers::parse_connection_option(token));
        }
    }
    closes
}

/// Selects the decoder of a body by the number of transfer codings and the length (RFC 9112, 6.3).
const fn body_decoder(codings: usize, length: Option<u64>) -> Result<BodyDecoder, ProtocolError> {
    match (codings, length) {
        (0, None) => Ok(BodyDecoder::All),
        (0, Some(0)) => Ok(BodyDecoder::Nothing),
        (0, Some(length)) => Ok(BodyDecoder::Length(length)),
        (1, _) => Ok(BodyDecoder::Chunks(ChunkState::Size)),
        _ => Err(ProtocolError::Coding),
    }
}

/// Parses a `Content-Length`: digits, or a list of equal lengths.
fn parse_content_length(value: &HeaderValue) -> Option<u64> {
    let mut lengths = value.to_str().ok()?.split(',').map(|text| {
        let text = text.trim();
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    });
    let first: u64 = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Longest head in bytes and largest number of headers: more than Vault, Consul or Terraform servers send.
const MAX_HEAD_SIZE: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;

#[cfg(test)]
mod tests;
