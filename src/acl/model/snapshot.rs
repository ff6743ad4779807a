//! Snapshot format: one file with all records of a store at one revision.
//!
//! | part | bytes |
//! |---|---|
//! | magic line | the line `keyward acl snapshot 1` |
//! | header | a line of JSON: [`SnapshotHeader`] |
//! | records, by ascending key | length of the key and of the value (4 bytes each, big-endian), key, value |
//! | trailer | 8 zero bytes, the number of records (8 bytes, big-endian), SHA-256 of all preceding bytes (32 bytes) |
//!
//! Length prefixes keep values byte-identical and let a reader buffer one record at a time. The first two lines are
//! text for humans (`head -n 2`). The checksum detects damage and truncation; it is not a signature.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::timestamp::Timestamp;

/// Metadata of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct SnapshotHeader {
    /// Name of the datacenter.
    pub datacenter: String,
    /// Ids of the keys that its secrets may be encrypted with.
    #[serde(rename = "KeyIDs")]
    pub key_ids: Vec<String>,
    /// Revision of the store.
    pub revision: u64,
    /// Creation time.
    pub(crate) created_at: Timestamp,
}

/// Element of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotPiece {
    /// Metadata, first.
    Header(SnapshotHeader),
    /// Key and value of a record.
    Record(String, Vec<u8>),
    /// End, with the number of records; the checksum is valid.
    End(u64),
}

/// Returns true if a file with this beginning is a snapshot, of any format.
#[must_use]
pub fn is_snapshot(start: &[u8]) -> bool {
    start.starts_with(MAGIC.as_bytes())
}

const MAGIC: &str = "keyward acl snapshot ";
const FORMAT: &str = "1";

/// Limits of a line and of a record, in bytes. No store accepts larger records.
const MAX_LINE: usize = 64 * 1024;
const MAX_RECORD: usize = 2 * 1024 * 1024;

/// Size of the two length fields, in bytes.
const LENGTHS_SIZE: usize = 8;
/// Size of the end after its length fields, in bytes.
const TRAILER_SIZE: usize = 8 + digest::SHA256_OUTPUT_LEN;

/// Incremental writer; each call appends to the caller's buffer.
pub struct SnapshotWriter {
    sum: digest::Context,
    records: u64,
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Writer({} records)", self.records)
    }
}

impl SnapshotWriter {
    /// Writes the header.
    pub fn begin(header: &SnapshotHeader, into: &mut Vec<u8>) -> Result<Self, serde_json::Error> {
        let start = into.len();
        into.extend_from_slice(format!("{MAGIC}{FORMAT}\n").as_bytes());
        serde_json::to_writer(&mut *into, header)?;
        into.push(b'\n');
        let mut writer = Self { sum: digest::Context::new(&digest::SHA256), records: 0 };
        writer.sum.update(&into[start..]);
        Ok(writer)
    }

    /// Writes a record; keys must be ascending.
    pub fn record(&mut self, key: &str, value: &[u8], into: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let start = into.len();
        let number = self.records + 1;
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| SnapshotError::Record { number });
        into.extend_from_slice(&length(key.as_bytes())?.to_be_bytes());
        into.extend_from_slice(&length(value)?.to_be_bytes());
        into.extend_from_slice(key.as_bytes());
        into.extend_from_slice(value);
        self.sum.update(&into[start..]);
        self.records = number;
        Ok(())
    }

    /// Writes the end; returns the number of records.
    pub fn end(mut self, into: &mut Vec<u8>) -> u64 {
        let start = into.len();
        into.extend_from_slice(&[0; LENGTHS_SIZE]);
        into.extend_from_slice(&self.records.to_be_bytes());
        self.sum.update(&into[start..]);
        into.extend_from_slice(self.sum.finish().as_ref());
        self.records
    }
}

/// Incremental reader that validates a snapshot. Buffers at most one incomplete piece.
pub struct SnapshotReader {
    fed: Vec<u8>,
    /// Number of bytes of `fed` that were consumed.
    consumed: usize,
    expected: Expected,
    sum: digest::Context,
    records: u64,
    last_key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Magic,
    Header,
    Record,
    End,
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Reader({} records, {:?} expected)", self.records, self.expected)
    }
}

impl Default for SnapshotReader {
    fn default() -> Self {
        Self {
            fed: Vec::new(),
            consumed: 0,
            expected: Expected::Magic,
            sum: digest::Context::new(&digest::SHA256),
            records: 0,
            last_key: String::new(),
        }
    }
}

impl SnapshotReader {
    /// Appends input.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.fed.drain(..std::mem::take(&mut self.consumed));
        self.fed.extend_from_slice(bytes);
    }

    /// Returns the next piece; `None` until more input is fed.
    pub fn piece(&mut self) -> Result<Option<SnapshotPiece>, SnapshotError> {
        if self.expected == Expected::Magic {
            let Some(line) = self.line(SnapshotError::NotASnapshot)? else { return Ok(None) };
            let format = line.strip_prefix(MAGIC).ok_or(SnapshotError::NotASnapshot)?;
            if format != FORMAT {
                return Err(SnapshotError::Format { found: format.chars().take(16).collect() });
            }
            self.expected = Expected::Header;
        }
        match self.expected {
            Expected::End if self.remaining().is_empty() => Ok(None),
            Expected::End => Err(SnapshotError::TrailingData),
            Expected::Record => self.record(),
            Expected::Magic | Expected::Header => {
                let Some(line) = self.line(SnapshotError::Header)? else { return Ok(None) };
                let header = serde_json::from_str(&line).map_err(|_| SnapshotError::Header)?;
                self.expected = Expected::Record;
                Ok(Some(SnapshotPiece::Header(header)))
            }
        }
    }

    /// Returns the number of records read so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Checks that the input was complete, after all pieces were read; returns the number of records.
    pub fn finish(&self) -> Result<u64, SnapshotError> {
        match self.expected {
            Expected::End => Ok(self.records),
            Expected::Magic if !is_common_prefix(self.remaining(), MAGIC.as_bytes()) => {
                Err(SnapshotError::NotASnapshot)
            }
            _ => Err(SnapshotError::Truncated),
        }
    }

    fn record(&mut self) -> Result<Option<SnapshotPiece>, SnapshotError> {
        let Some((lengths, rest)) = self.remaining().split_first_chunk::<LENGTHS_SIZE>() else { return Ok(None) };
        let number = self.records + 1;
        let damaged = || SnapshotError::Record { number };
        let [key, value] = [&lengths[..4], &lengths[4..]].map(length);
        // No record has an empty key: it starts the trailer.
        if key == 0 {
            if rest.len() < TRAILER_SIZE {
                return Ok(None);
            }
            let (count, sum) = rest[..TRAILER_SIZE].split_at(8);
            let count = count.to_vec();
            let sum = sum.to_vec();
            if value != 0 {
                return Err(damaged());
            }
            self.take(LENGTHS_SIZE + 8);
            if count != self.records.to_be_bytes() {
                return Err(SnapshotError::Count { found: self.records });
            }
            let counted = std::mem::replace(&mut self.sum, digest::Context::new(&digest::SHA256));
            if sum != counted.finish().as_ref() {
                return Err(SnapshotError::Checksum);
            }
            self.take(digest::SHA256_OUTPUT_LEN);
            self.expected = Expected::End;
            return Ok(Some(SnapshotPiece::End(self.records)));
        }
        // Before the record is buffered: the uploader chooses the lengths.
        if key + value > MAX_RECORD {
            return Err(damaged());
        }
        let Some((key, value)) = rest.get(..key + value).map(|both| both.split_at(key)) else { return Ok(None) };
        let key = std::str::from_utf8(key).map_err(|_| damaged())?.to_owned();
        let value = value.to_vec();
        // Ascending keys rule out duplicates.
        if !key.contains('/') || key <= self.last_key {
            return Err(damaged());
        }
        self.take(LENGTHS_SIZE + key.len() + value.len());
        self.records = number;
        self.last_key.clone_from(&key);
        Ok(Some(SnapshotPiece::Record(key, value)))
    }

    /// Returns the next line without its end; `refusal` is the error for a line that is too long or not UTF-8.
    fn line(&mut self, refusal: SnapshotError) -> Result<Option<String>, SnapshotError> {
        let Some(end) = self.remaining().iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            return if self.remaining().len() < MAX_LINE { Ok(None) } else { Err(refusal) };
        };
        let Ok(line) = std::str::from_utf8(&self.remaining()[..end]).map(str::to_owned) else { return Err(refusal) };
        self.take(end + 1);
        Ok(Some(line))
    }

    fn remaining(&self) -> &[u8] {
        &self.fed[self.consumed..]
    }

    fn take(&mut self, bytes: usize) {
        self.sum.update(&self.fed[self.consumed..self.consumed + bytes]);
        self.consumed += bytes;
    }
}

fn is_common_prefix(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Error of reading a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The input is not a snapshot.
    #[error("not a keyward ACL snapshot")]
    NotASnapshot,
    /// Unknown format version.
    #[error("snapshot format {found:?} is not supported, expected {FORMAT}")]
    Format {
        /// Format version of the input.
        found: String,
    },
    /// The header is malformed.
    #[error("the header is damaged")]
    Header,
    /// A record is malformed or out of order.
    #[error("record {number} is damaged")]
    Record {
        /// Number of the record, from 1.
        number: u64,
    },
    /// The number of records differs from the end.
    #[error("the snapshot has {found} records, which differs from its trailer")]
    Count {
        /// Number of records read.
        found: u64,
    },
    /// The checksum does not match.
    #[error("checksum mismatch: the snapshot is damaged or was changed")]
    Checksum,
    /// The input is truncated.
    #[error("the snapshot is truncated")]
    Truncated,
    /// Data follows the end.
    #[error("data follows the end of the snapshot")]
    TrailingData,
}

#[cfg(test)]
mod tests;
