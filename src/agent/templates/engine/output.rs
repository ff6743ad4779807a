//! Text of bounded size.

use super::value::{Failure, Text};

/// Largest text, in bytes: a text that is appended to itself in a loop would take all memory.
const MAX_BYTES: usize = 16 << 20;

/// Refuses a text of more than [`MAX_BYTES`], before it is made.
pub(in crate::templates) fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes > MAX_BYTES {
        return Err(Failure::new(format!("a text here exceeds {} MiB", MAX_BYTES >> 20)));
    }
    Ok(())
}

/// A text of at most [`MAX_BYTES`]. More are not kept, and an error at the end.
pub(in crate::templates) struct Buffer {
    text: String,
    is_full: bool,
}

impl Buffer {
    pub(in crate::templates) fn new() -> Self {
        Self { text: String::new(), is_full: false }
    }

    /// Returns true if further text is of no use.
    pub(in crate::templates) const fn is_full(&self) -> bool {
        self.is_full
    }

    pub(in crate::templates) fn len(&self) -> usize {
        self.text.len()
    }

    pub(in crate::templates) fn push_char(&mut self, c: char) {
        self.push(c.encode_utf8(&mut [0; 4]));
    }

    pub(in crate::templates) fn push(&mut self, more: &str) {
        let needed = self.text.len() + more.len();
        if self.is_full || needed > MAX_BYTES {
            self.is_full = true;
            return;
        }
        self.text.push_str(more);
    }

    /// Pushes a text several times.
    pub(in crate::templates) fn repeat(&mut self, text: &str, times: usize) {
        if text.len().saturating_mul(times) > MAX_BYTES {
            self.is_full = true;
        }
        for _ in 0..times {
            if self.is_full {
                return;
            }
            self.push(text);
        }
    }

    pub(in crate::templates) fn finish(self) -> Result<String, Failure> {
        check_size(if self.is_full { usize::MAX } else { self.text.len() })?;
        Ok(self.text)
    }

    /// Returns the text as a value's.
    pub(in crate::templates) fn into_text(self) -> Result<Text, Failure> {
        self.finish().map(Text::from)
    }
}
