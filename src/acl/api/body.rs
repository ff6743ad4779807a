//! Bodies of requests: bounded in size and time, and read as what they must be, whatever their content type says.

use std::time::Duration;

use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::http::body_buffer::{FillError, collect};

/// The largest body of a login, in bytes. A cloud identity's token with 200 groups has some 10 KiB.
pub(super) const MAX_LOGIN: usize = 64 * 1024;

/// The largest body of another request, in bytes.
pub(super) const MAX_BODY: usize = 512 * 1024;

/// Time for a body to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// Reads a body of at most `limit` bytes.
pub(super) async fn bytes(body: Incoming, limit: usize) -> Result<Zeroizing<Vec<u8>>, BodyError> {
    let read = tokio::time::timeout(ARRIVES_WITHIN, collect(body, limit)).await;
    match read.map_err(|_| BodyError::TooSlow)? {
        Ok(buffer) => Ok(Zeroizing::new(buffer.into_vec())),
        Err(FillError::Full(..)) => Err(BodyError::TooLarge { limit }),
        Err(FillError::Broken(_)) => Err(BodyError::Broken),
    }
}

/// Reads the body of a login as one JSON object. Fields that the type does not know are refused, and so are fields given
/// twice.
pub(super) async fn login<T: DeserializeOwned>(body: Incoming) -> Result<T, BodyError> {
    let bytes = bytes(body, MAX_LOGIN).await?;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(BodyError::NoObject);
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        // The library quotes values that have the wrong type, and a value may be a secret; names it may quote.
        let text = error.to_string();
        if !error.is_data() {
            BodyError::Syntax { line, column }
        } else if text.starts_with("unknown field") || text.starts_with("duplicate field") {
            BodyError::Field { text: text.chars().take(256).collect() }
        } else {
            BodyError::Type { line, column }
        }
    })
}

/// Why a body cannot be taken. Holds none of its values.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body did not arrive within {} s", ARRIVES_WITHIN.as_secs())]
    TooSlow,
    #[error("the body stalled for {} s", within.as_secs())]
    Stalled { within: Duration },
    #[error("the body broke off")]
    Broken,
    #[error("the body is no JSON object")]
    NoObject,
    #[error("the body is no JSON from line {line}, column {column} on")]
    Syntax { line: usize, column: usize },
    #[error("{text}")]
    Field { text: String },
    #[error("the value before line {line}, column {column} is not of the type that it should be")]
    Type { line: usize, column: usize },
}
