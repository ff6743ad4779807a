//! A caller's request body: streamed, buffered or copied for a second attempt.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body as _;
use keyward_http::body_buffer::{BodyBuffer, BufferBudget, FillError};
use keyward_http::reverse_proxy::{ReplayBuffer, RequestBody, TeeBody};
use keyward_http::server::IncomingBody;

use super::response::{ProxyBody, error_response};

/// The body of a caller's request.
#[derive(Debug)]
pub(super) enum CallerBody {
    /// Nothing of it has been read.
    Streaming(IncomingBody),
    /// All of it is in memory.
    Buffered(Bytes),
    /// The part that was read, and the rest, which is longer than the limit.
    Partial(Vec<Bytes>, IncomingBody),
}

impl CallerBody {
    /// Reads a body of any framing into memory if it ends within `limit` bytes.
    pub(super) async fn read(mut body: IncomingBody, limit: usize) -> Result<Self, Box<Response<ProxyBody>>> {
        if body.is_end_stream() {
            return Ok(Self::Buffered(Bytes::new()));
        }
        if body.size_hint().lower() > limit as u64 {
            return Ok(Self::Streaming(body));
        }
        let mut buffer = BodyBuffer::new(limit);
        match tokio::time::timeout(BODY_TIMEOUT, buffer.fill(&mut body)).await {
            Ok(Ok(())) => Ok(Self::Buffered(buffer.into_bytes())),
            Ok(Err(FillError::Full(_, piece))) => Ok(Self::Partial(vec![piece, buffer.into_bytes()], body)),
            Ok(Err(FillError::Broken(_))) => {
                Err(Box::new(error_response(StatusCode::BAD_REQUEST, "the request body is incomplete")))
            }
            Err(_) => {
                Err(Box::new(error_response(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")))
            }
        }
    }

    /// Returns the body for a request that is sent once.
    pub(super) fn into_upstream(self) -> RequestBody {
        match self {
            Self::Streaming(body) => RequestBody::Streamed(body),
            Self::Buffered(bytes) => RequestBody::Buffered(Full::new(bytes)),
            Self::Partial(bytes, rest) => RequestBody::Prefixed(bytes, rest),
        }
    }

    /// Returns the body to send and a copy for a second attempt, if `budget` allows one.
    pub(super) fn with_replay(self, budget: &BufferBudget) -> (RequestBody, ReplayBody) {
        let body = match self {
            Self::Buffered(bytes) => {
                return (RequestBody::Buffered(Full::new(bytes.clone())), ReplayBody::Buffered(bytes));
            }
            Self::Partial(bytes, rest) => return (RequestBody::Prefixed(bytes, rest), ReplayBody::Unavailable),
            Self::Streaming(body) => body,
        };
        if body.is_end_stream() {
            return (RequestBody::empty(), ReplayBody::Buffered(Bytes::new()));
        }
        if body.size_hint().lower() > MAX_REPLAY_BODY as u64 {
            return (RequestBody::Streamed(body), ReplayBody::Unavailable);
        }
        let (body, copy) = TeeBody::new(body, MAX_REPLAY_BODY, budget);
        (RequestBody::Teed(body), ReplayBody::Teed(copy))
    }
}

/// Copy of a request body for a second attempt.
pub(super) enum ReplayBody {
    /// All of it, perhaps empty.
    Buffered(Bytes),
    /// There is no copy: the body is too long, or the request is never repeated.
    Unavailable,
    /// The copy while the body is sent; complete once the body has ended.
    Teed(ReplayBuffer),
}

impl ReplayBody {
    /// Returns true if the whole body can be sent once more.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Buffered(_) => true,
            Self::Unavailable => false,
            Self::Teed(copy) => copy.is_whole(),
        }
    }

    /// Returns the body for the second attempt; `None` where the copy is incomplete.
    pub(super) fn into_upstream(self) -> Option<RequestBody> {
        match self {
            Self::Buffered(bytes) => Some(RequestBody::Buffered(Full::new(bytes))),
            Self::Unavailable => None,
            Self::Teed(copy) => copy.into_whole().map(|bytes| RequestBody::Buffered(Full::new(bytes))),
        }
    }
}

const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest body that is copied for a second attempt, in bytes.
const MAX_REPLAY_BODY: usize = 1024 * 1024;
