//! Bodies of requests that are looked at before they are passed on.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};

use super::answer::{ProxyBody, refuse};
use super::send::CallerBody;
use crate::http::body_buffer::{BodyBuffer, FillError};

/// Reads a body, whatever its framing, if it ends within `limit` bytes. A longer one is passed on as it comes.
///
/// # Errors
/// It did not arrive whole, or not in time: the response that says so.
pub(super) async fn read(mut body: Incoming, limit: usize) -> Result<CallerBody, Box<Response<ProxyBody>>> {
    if body.is_end_stream() {
        return Ok(CallerBody::Buffered(Bytes::new()));
    }
    if body.size_hint().lower() > limit as u64 {
        return Ok(CallerBody::Streaming(body));
    }
    let mut buffer = BodyBuffer::new(limit);
    match tokio::time::timeout(BODY_TIMEOUT, buffer.fill(&mut body)).await {
        Ok(Ok(())) => Ok(CallerBody::Buffered(buffer.into_bytes())),
        Ok(Err(FillError::Full(_, piece))) => Ok(CallerBody::Partial(vec![piece, buffer.into_bytes()], body)),
        Ok(Err(FillError::Broken(_))) => {
            Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole")))
        }
        Err(_) => Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))),
    }
}

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
