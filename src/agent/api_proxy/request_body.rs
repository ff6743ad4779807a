//! Bodies of requests that are looked at before they are passed on.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use super::answer::{Answered, refuse};
use super::call::Asked;

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
    let end = Instant::now() + ARRIVES_WITHIN;
    // Pieces are copied together: a slice would keep the whole buffer that it was read into.
    let mut bytes = BytesMut::new();
    loop {
        let Ok(frame) = timeout_at(end, body.frame()).await else {
            return Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")));
        };
        match frame {
            None => return Ok(Asked::Held(bytes.freeze())),
            Some(Err(_)) => {
                return Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole")));
            }
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().map_or(&[], Bytes::as_ref)),
        }
        if bytes.len() > limit {
            return Ok(Asked::Begun(bytes.freeze(), body));
        }
    }
}

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
