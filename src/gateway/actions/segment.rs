//! Path segments built from names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::path_rules::check_path;

/// All characters but the unreserved ones (RFC 3986, 2.3).
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A percent-encoded, non-empty path segment that passes the rules for callers' paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment(String);

impl Segment {
    /// Encodes a name; `None` for a name that is empty or ambiguous in a path.
    pub(super) fn encode(name: &str) -> Option<Self> {
        let encoded = utf8_percent_encode(name, &RESERVED).to_string();
        (!encoded.is_empty() && check_path(&encoded).is_ok()).then_some(Self(encoded))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
