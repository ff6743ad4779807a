//! Reader of DER (X.690), as far as certificates and keys need it.

/// Tag of a boolean.
pub const BOOLEAN: u8 = 0x01;
/// Tag of an integer.
pub const INTEGER: u8 = 0x02;
/// Tag of an octet string.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of an object identifier.
pub const OBJECT_ID: u8 = 0x06;
/// Tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// The rest of a DER value's content.
#[derive(Clone, Copy)]
pub struct Der<'a>(pub &'a [u8]);

impl std::fmt::Debug for Der<'_> {
    /// Omits the content, which may be a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Der").field(&self.0.len()).finish()
    }
}

impl<'a> Der<'a> {
    /// Takes the next element if it has this tag: its content.
    pub fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&first, rest) = self.0.split_first()?;
        if first != tag {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The long form (X.690, 8.1.3.5). DER does not have the indefinite one, 0x80.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }
}
