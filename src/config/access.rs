//! `[access]`: the access-control service.

use super::reader::Reader;

/// Reads the section. It has no key yet.
pub(super) fn read(reader: Reader<'_>) {
    reader.finish();
}
