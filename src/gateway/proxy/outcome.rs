//! The platform's response to a call, before it is rewritten for the caller.

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Body as _;
use keyward_http::body_buffer::collect;
use keyward_http::reverse_proxy::ResponseBody;

use super::response::{MAX_SMALL_BODY, error_response};
use super::upstream_call::{ErrorResponse, UpstreamCall};

/// A response, and the replacement call that was sent, if one was.
#[derive(Debug)]
pub(super) struct CallOutcome {
    pub(super) replacement: Option<UpstreamCall>,
    pub(super) response: Response<PlatformBody>,
}

/// Body of the platform's response.
#[derive(Debug)]
pub(super) enum PlatformBody {
    Streamed(ResponseBody),
    Buffered(Bytes),
}

impl PlatformBody {
    /// Returns the length in bytes, if known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Streamed(body) => body.size_hint().exact(),
            Self::Buffered(body) => u64::try_from(body.len()).ok(),
        }
    }
}

impl CallOutcome {
    /// Reads the body of a small response, which frees its connection.
    pub(super) async fn buffer(self) -> Result<Self, ErrorResponse> {
        let Self { replacement, response } = self;
        let (parts, body) = response.into_parts();
        let body = match body {
            PlatformBody::Streamed(body) if body.size_hint().exact().is_some_and(|length| length <= MAX_SMALL_BODY) => {
                let limit = usize::try_from(MAX_SMALL_BODY).unwrap_or(usize::MAX);
                let broken = |_| Box::new(error_response(StatusCode::BAD_GATEWAY, "the platform's response broke off"));
                PlatformBody::Buffered(collect(body, limit).await.map_err(broken)?.into_bytes())
            }
            body => body,
        };
        Ok(Self { replacement, response: Response::from_parts(parts, body) })
    }
}
