//! Bodies of requests that are looked at before they are passed on.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};

use super::answer::{Answered, refuse};
use super::send::Asked;
use crate::http::body_buffer::{BodyBuffer, FillError};

/// Reads a body, whatever its framing, if it ends within `limit` bytes. A longer one is passed on as it comes.
///
/// # Errors
/// It did not arrive whole, or not in time: the response that says so.
pub(super) async fn read(mut body: Incoming, limit: usize) -> Result<Asked, Box<Response<Answered>>> {
    if body.is_end_stream() {
        return Ok(Asked::Held(Bytes::new()));
    }
    if body.size_hint().lower() > limit as u64 {
        return Ok(Asked::Coming(body));
    }
    let mut buffer = BodyBuffer::new(limit);
    match tokio::time::timeout(ARRIVES_WITHIN, buffer.fill(&mut body)).await {
        Ok(Ok(())) => Ok(Asked::Held(buffer.into_bytes())),
        Ok(Err(FillError::Full(_, piece))) => Ok(Asked::Begun(vec![piece, buffer.into_bytes()], body)),
        Ok(Err(FillError::Broken(_))) => {
            Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole")))
        }
        Err(_) => Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))),
    }
}

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
