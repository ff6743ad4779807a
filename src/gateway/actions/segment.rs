//! Segments that are put into a path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the letters that no path gives a meaning (RFC 3986, 2.3).
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name as a segment of a path: encoded, not empty, and none that walks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment(String);

impl Segment {
    /// Nothing, if a name can be no segment.
    pub(super) fn encode(name: &str) -> Option<Self> {
        let walks = matches!(name, "" | "." | "..");
        (!walks).then(|| Self(utf8_percent_encode(name, &RESERVED).to_string()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
