//! Secret strings in protected memory.

use std::fmt;

use crate::os::ProtectedBytes;

/// Secret text: without `Display`, with a `Debug` that hides it, in memory that is never swapped out or dumped where the kernel
/// allows that, and zeroed on drop.
pub struct SecretString(ProtectedBytes);

impl SecretString {
    /// Returns the text, to be sent, written or compared on purpose.
    pub fn expose_secret(&self) -> &str {
        // Made only from a `str`.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the bytes of the text. Costs nothing, where the text is validated each time.
    pub fn expose_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for SecretString {
    fn from(text: &str) -> Self {
        let mut bytes = ProtectedBytes::zeroed(text.len());
        bytes.copy_from_slice(text.as_bytes());
        Self(bytes)
    }
}

impl From<String> for SecretString {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Clone for SecretString {
    fn clone(&self) -> Self {
        Self::from(self.expose_secret())
    }
}

impl Default for SecretString {
    fn default() -> Self {
        Self::from("")
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretString([REDACTED])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_copied_whole_and_its_debug_text_hides_it() {
        for text in ["", "hvs.canary", &"é".repeat(40_000)] {
            let secret = SecretString::from(text.to_owned());
            assert_eq!(secret.clone().expose_secret(), text);
            assert_eq!(format!("{secret:?}"), "SecretString([REDACTED])");
        }
    }
}
