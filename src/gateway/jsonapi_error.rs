//! Errors in the platform's format: a JSON:API document with `errors`.

use bytes::Bytes;
use http::StatusCode;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::{Value, json};

/// Media type of every document of the platform.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.api+json";

/// One error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonApiError {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Message for people: what is wrong and what to do.
    pub detail: String,
    /// Code of the error, if it has one.
    pub code: Option<ErrorCode>,
    /// Part of the request that the error is about, if only a part is.
    pub source: Option<ErrorSource>,
}

/// Location of an error in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ErrorSource {
    /// JSON pointer into the body.
    Pointer(String),
    /// Name of a query parameter.
    Parameter(String),
}

impl JsonApiError {
    /// Creates an error about the request as a whole.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), code: None, source: None }
    }

    /// Renders the error document. The response's status is that of the first error.
    pub(crate) fn document(errors: &[Self]) -> Bytes {
        let errors: Vec<Value> = errors.iter().map(Self::to_json).collect();
        json!({ "errors": errors }).to_string().into()
    }

    fn to_json(&self) -> Value {
        let title = self.status.canonical_reason().unwrap_or("refused").to_ascii_lowercase();
        let mut error =
            json!({"status": self.status.as_str(), "title": title, "detail": ErrorCode::tag(self.code, &self.detail)});
        if let Some(code) = self.code {
            error["code"] = code.as_str().into();
        }
        match &self.source {
            Some(ErrorSource::Pointer(pointer)) => error["source"] = json!({ "pointer": pointer }),
            Some(ErrorSource::Parameter(parameter)) => error["source"] = json!({ "parameter": parameter }),
            None => {}
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_render_as_a_jsonapi_document() {
        let plain = JsonApiError::new(StatusCode::UNAUTHORIZED, "no token");
        let pointed = JsonApiError {
            code: Some(ErrorCode::FeatureMissing),
            source: Some(ErrorSource::Pointer("/data/attributes/name".to_owned())),
            ..JsonApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "too long")
        };
        let document: Value = serde_json::from_slice(&JsonApiError::document(&[plain, pointed])).unwrap();
        let expected = json!({"errors": [
            {"status": "401", "title": "unauthorized", "detail": "no token"},
            {"status": "422", "title": "unprocessable entity", "detail": "too long [KW-1708]", "code": "KW-1708",
                "source": {"pointer": "/data/attributes/name"}},
        ]});
        assert_eq!(document, expected);
    }
}
