//! Fields of the wire format (RFC 4251, 5).

/// The rest of a blob.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    /// Takes a field with its length before it.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.uint32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Takes a field that is UTF-8.
    pub(super) fn utf8(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.text()?).ok()
    }

    pub(super) fn uint32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn uint64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a field with its length before it.
pub(super) fn put_text(blob: &mut Vec<u8>, field: &[u8]) {
    // No field here is longer than a key.
    blob.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    blob.extend(field);
}

/// Appends a positive number as `mpint`: without zeros in front, but one before a first bit that is set.
pub(super) fn put_number(blob: &mut Vec<u8>, number: &[u8]) {
    let digits = without_zeros(number);
    let sign: &[u8] = if digits.first().is_some_and(|first| first & 0x80 != 0) { &[0] } else { &[] };
    put_text(blob, &[sign, digits].concat());
}

pub(super) fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}
