//! Recorded calls to a real OpenBao, with its answers: `tests/it/fixtures/openbao-2.6.2.json`.

use serde_json::Value;

/// A call and its answer.
pub(crate) struct RecordedCall {
    pub(crate) name: String,
    pub(crate) method: String,
    /// Path below `/v1/`, with its query.
    pub(crate) path: String,
    /// `root`, `none`, or `other`: one that an earlier call returned, or none that the server knows.
    pub(crate) token: String,
    pub(crate) headers: Value,
    /// JSON, a text that is not JSON, or null for none.
    pub(crate) body: Value,
    pub(crate) status: u16,
    response_headers: Value,
    pub(crate) response: String,
}

impl RecordedCall {
    fn from_json(call: &Value) -> Self {
        let text = |name: &str| call[name].as_str().unwrap().to_owned();
        Self {
            name: text("name"),
            method: text("method"),
            path: text("path"),
            token: text("token"),
            headers: call["headers"].clone(),
            body: call["body"].clone(),
            status: call["status"].as_u64().unwrap().try_into().unwrap(),
            response_headers: call["response_headers"].clone(),
            response: text("response"),
        }
    }

    /// A header of the answer; empty where it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.response_headers[name].as_str().unwrap_or_default()
    }
}

/// All calls, in the order in which they were made.
pub(crate) fn recorded_calls() -> Vec<RecordedCall> {
    let text = include_str!("../fixtures/openbao-2.6.2.json");
    let recording: Value = serde_json::from_str(text).unwrap();
    recording["calls"].as_array().unwrap().iter().map(RecordedCall::from_json).collect()
}
