//! Fields of a form or a query.

use std::time::Duration;

use keyward_http::body_buffer::collect;
use keyward_http::server::IncomingBody;

/// Largest form, in bytes.
pub(super) const MAX_FORM: usize = 16 * 1024;

/// Time within which a form must arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// Decoded fields.
#[derive(Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Decodes a form or a query (`application/x-www-form-urlencoded`).
    pub(super) fn parse(encoded: &[u8]) -> Self {
        let pairs = url::form_urlencoded::parse(encoded);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Reads the body of a form; `None` if it is too large, breaks off or stalls.
    pub(super) async fn read(body: IncomingBody) -> Option<Self> {
        let buffer = tokio::time::timeout(FORM_TIMEOUT, collect(body, MAX_FORM)).await.ok()?.ok()?;
        Some(Self::parse(&buffer.into_vec()))
    }

    /// Returns a field without surrounding white space; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
    }
}
