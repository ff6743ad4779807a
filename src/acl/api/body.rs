//! Request bodies, bounded in size and time. The content type is ignored, as in Consul.

use std::time::Duration;

use serde::de::DeserializeOwned;

use keyward_http::body_buffer::{FillError, collect};
use keyward_http::server::IncomingBody;

/// Largest body of a login in bytes. An Azure token with 200 groups has some 10 KiB.
pub(super) const MAX_LOGIN: usize = 64 * 1024;

/// Largest body of other requests in bytes.
pub(super) const MAX_BODY: usize = 512 * 1024;

/// Time within which a body must arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a body of at most `limit` bytes.
pub(super) async fn read_bounded(body: IncomingBody, limit: usize) -> Result<Vec<u8>, BodyError> {
    let read = tokio::time::timeout(TIMEOUT, collect(body, limit)).await;
    match read.map_err(|_| BodyError::TooSlow)? {
        Ok(buffer) => Ok(buffer.into_vec()),
        Err(FillError::Full(..)) => Err(BodyError::TooLarge { limit }),
        Err(FillError::Broken(_)) => Err(BodyError::Interrupted),
    }
}

/// Reads the body of a Vault login as a JSON object. Unknown and duplicate fields are refused.
pub(super) async fn read_vault_login<T: DeserializeOwned>(body: IncomingBody) -> Result<T, BodyError> {
    let bytes = read_bounded(body, MAX_LOGIN).await?;
    // For serde, an array of the fields' values would do as well.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(BodyError::NotAnObject);
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let line = error.line();
        let column = error.column();
        // serde_json quotes values of the wrong type, which may be secrets. Names of fields are safe to repeat.
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

/// Error of a body; holds none of its values.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body did not arrive within {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error("the body stalled for {} s", within.as_secs())]
    Stalled { within: Duration },
    #[error("the connection ended within the body")]
    Interrupted,
    #[error("the body is not a JSON object")]
    NotAnObject,
    #[error("invalid JSON at line {line}, column {column}")]
    Syntax { line: usize, column: usize },
    #[error("{text}")]
    Field { text: String },
    #[error("wrong type of the value before line {line}, column {column}")]
    Type { line: usize, column: usize },
}
