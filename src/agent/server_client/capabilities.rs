//! Rights of a token by itself.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::{CallError, ServerClient, parse_response};
use crate::token::ClientToken;

impl ServerClient {
    /// Returns the capabilities of a token on paths (`POST sys/capabilities-self`), such as `read` and `list`, by path.
    pub async fn capabilities_self(
        &self,
        token: &ClientToken,
        paths: &[&str],
        namespace: Option<&str>,
    ) -> Result<BTreeMap<String, Vec<String>>, CallError> {
        let request = self.with_token(Method::POST, "v1/sys/capabilities-self", token, namespace);
        let response = self.send(request.json(&json!({ "paths": paths }))).await?;
        let document = parse_response::parse_json(&response, token.secret())?;
        // Vault has the paths in `data`, and beside it too.
        let by_path = if document["data"].is_object() { &document["data"] } else { &document };
        let names = |value: &Value| {
            let names = value.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
            Some(names.collect::<Vec<_>>())
        };
        let capabilities: BTreeMap<_, _> =
            paths.iter().filter_map(|path| Some(((*path).to_owned(), names(&by_path[*path])?))).collect();
        if capabilities.is_empty() && !paths.is_empty() {
            return Err(CallError::InvalidResponse { what: "it has no capabilities of any path".to_owned() });
        }
        Ok(capabilities)
    }
}
