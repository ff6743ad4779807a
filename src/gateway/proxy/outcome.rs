//! The platform's answer to a call, before it is made fit for a caller.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Body as _;
use url::Url;

use super::Inner;
use super::response::{self, SMALL, Shape, refuse};
use super::upstream_call::{Call, Refused};
use crate::http::body_buffer::collect;
use crate::http::reverse_proxy::ResponseBody;

/// The answer to a call, and the call that was sent in its place, if one was.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) other: Option<Call>,
    pub(super) answer: Response<Platform>,
}

/// The body of an answer: on its way, or whole.
#[derive(Debug)]
pub(super) enum Platform {
    Streamed(ResponseBody),
    Whole(Bytes),
}

/// A body whose length may be known.
pub(super) trait Length {
    /// The length in bytes, where it is known.
    fn length(&self) -> Option<u64>;
}

impl Length for ResponseBody {
    fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }
}

impl Length for Platform {
    fn length(&self) -> Option<u64> {
        match self {
            Self::Streamed(body) => body.length(),
            Self::Whole(body) => u64::try_from(body.len()).ok(),
        }
    }
}

impl Outcome {
    /// Reads the body of a small answer, so that its connection is free.
    ///
    /// # Errors
    /// The body broke off: what the caller is told.
    pub(super) async fn buffer(self) -> Result<Self, Refused> {
        let Self { other, answer } = self;
        let (parts, body) = answer.into_parts();
        let body = match body {
            Platform::Streamed(body) if body.length().is_some_and(|length| length <= SMALL) => {
                let limit = usize::try_from(SMALL).unwrap_or(usize::MAX);
                let broken = |_| Box::new(refuse(StatusCode::BAD_GATEWAY, "the platform's answer broke off"));
                Platform::Whole(collect(body, limit).await.map_err(broken)?.into_bytes())
            }
            body => body,
        };
        Ok(Self { other, answer: Response::from_parts(parts, body) })
    }
}

impl Inner {
    /// The URL at the platform of a call, without its query.
    pub(super) fn asked(&self, call: &Call) -> Url {
        let mut asked = self.options.upstream.clone();
        asked.set_path(call.target.path());
        asked
    }

    /// Refuses a document that came in an encoding, though identity was asked for: its links cannot be moved, and a client
    /// that follows them would leave the gateway with the local token.
    pub(super) fn refuse_encoded<B: Length>(&self, answer: &Response<B>) -> Option<Refused> {
        let shape = response::shape(answer.status(), answer.headers(), answer.body().length());
        let encoding = response::encoding(answer.headers()).filter(|_| shape == Shape::Encoded)?;
        let encoding = encoding.to_str().ok().filter(|name| name.len() <= 32).unwrap_or("of an unknown name");
        if !self.encoded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "gateway.answer.encoded",
                upstream = self.origin,
                encoding,
                "the platform's answers come encoded; they are refused, as their links cannot be moved"
            );
        }
        let detail = format!(
            "the platform at {} answers {} with Content-Encoding {encoding}, though identity was asked for: its links cannot be \
             moved to the gateway. Switch the encoding off on the way to the platform",
            self.origin,
            answer.status().as_u16(),
        );
        Some(Box::new(refuse(StatusCode::BAD_GATEWAY, detail)))
    }
}
