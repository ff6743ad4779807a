//! Fields of a form or a query.

use zeroize::Zeroizing;

/// Decoded fields. Zeroed when dropped: a form may hold a key or a token.
#[derive(Default)]
pub(super) struct Fields(Vec<(String, Zeroizing<String>)>);

impl Fields {
    /// Decodes a form or a query (`application/x-www-form-urlencoded`).
    pub(super) fn parse(encoded: &[u8]) -> Self {
        let pairs = url::form_urlencoded::parse(encoded);
        Self(pairs.map(|(name, value)| (name.into_owned(), Zeroizing::new(value.into_owned()))).collect())
    }

    /// Returns a field without surrounding white space; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(it, _)| it == name).map_or("", |(_, value)| value.trim())
    }
}
