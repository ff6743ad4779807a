//! The form of a snapshot: one file with all records of a store as they were at one moment.
//!
//! | part | bytes |
//! |---|---|
//! | what it is | the line `keyward access snapshot 1` |
//! | its header | a line of JSON: [`Header`] |
//! | each record, in the order of the keys | length of the key and of the value (4 bytes each, the highest first), key, value |
//! | its end | 8 zero bytes, the number of records (8 bytes), SHA-256 of all that is before (32 bytes) |
//!
//! With a length before them, values stand in it as they are in the store, and a reader needs room for one record, whatever
//! the file is. Its first two lines are text, so that a person can see what it is (`head -n 2`). The sum tells what was
//! damaged or cut off; who can write the file can write the sum too, so it is no signature.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::timestamp::Timestamp;

/// What is known of all records together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Header {
    /// Name of the datacenter.
    pub datacenter: String,
    /// Ids of the keys that secrets in it may be sealed with.
    #[serde(rename = "KeyIDs")]
    pub key_ids: Vec<String>,
    /// The store's revision at that moment.
    pub revision: u64,
    /// When it was taken.
    pub taken: Timestamp,
}

/// A part of a snapshot as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What comes first.
    Header(Header),
    /// A record.
    Record(String, Vec<u8>),
    /// The end: so many records were before it, and the sum is right.
    End(u64),
}

const WHAT: &str = "keyward access snapshot ";
const FORMAT: &str = "1";

/// The longest line, and the largest record, in bytes. No store takes a record as large.
const LONGEST_LINE: usize = 64 * 1024;
const LARGEST_RECORD: usize = 2 * 1024 * 1024;

/// Length of the key and of the value.
const LENGTHS: usize = 8;
/// What comes after the lengths of the end.
const END: usize = 8 + digest::SHA256_OUTPUT_LEN;

/// Writes a snapshot piece by piece, each into what the caller gives.
pub struct Writer {
    sum: digest::Context,
    records: u64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Writer({} records)", self.records)
    }
}

impl Writer {
    /// Begins with the header.
    ///
    /// # Errors
    /// The header cannot be written as JSON.
    pub fn begin(header: &Header, into: &mut Vec<u8>) -> Result<Self, serde_json::Error> {
        let start = into.len();
        into.extend_from_slice(format!("{WHAT}{FORMAT}\n").as_bytes());
        serde_json::to_writer(&mut *into, header)?;
        into.push(b'\n');
        let mut writer = Self { sum: digest::Context::new(&digest::SHA256), records: 0 };
        writer.sum.update(&into[start..]);
        Ok(writer)
    }

    /// Adds a record, whose key comes after those before it.
    ///
    /// # Errors
    /// It is larger than a record can be.
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

    /// Ends it, and says how many records it has.
    pub fn end(mut self, into: &mut Vec<u8>) -> u64 {
        let start = into.len();
        into.extend_from_slice(&[0; LENGTHS]);
        into.extend_from_slice(&self.records.to_be_bytes());
        self.sum.update(&into[start..]);
        into.extend_from_slice(self.sum.finish().as_ref());
        self.records
    }
}

/// Reads a snapshot as its bytes come, and judges it. It keeps what was fed and makes no whole piece yet.
pub struct Reader {
    fed: Vec<u8>,
    /// How much of `fed` was taken.
    taken: usize,
    wanted: Wanted,
    sum: digest::Context,
    records: u64,
    last_key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    What,
    Header,
    Record,
    Nothing,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Reader({} records, {:?} wanted)", self.records, self.wanted)
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            fed: Vec::new(),
            taken: 0,
            wanted: Wanted::What,
            sum: digest::Context::new(&digest::SHA256),
            records: 0,
            last_key: String::new(),
        }
    }
}

impl Reader {
    /// Takes the bytes that come next.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.fed.drain(..std::mem::take(&mut self.taken));
        self.fed.extend_from_slice(bytes);
    }

    /// The next piece; `None` until more was fed.
    ///
    /// # Errors
    /// This is no snapshot, or a damaged one.
    pub fn piece(&mut self) -> Result<Option<Piece>, SnapshotError> {
        if self.wanted == Wanted::What {
            let Some(line) = self.line(SnapshotError::Foreign)? else { return Ok(None) };
            let format = line.strip_prefix(WHAT).ok_or(SnapshotError::Foreign)?;
            if format != FORMAT {
                return Err(SnapshotError::Format { found: format.chars().take(16).collect() });
            }
            self.wanted = Wanted::Header;
        }
        match self.wanted {
            Wanted::Nothing if self.left().is_empty() => Ok(None),
            Wanted::Nothing => Err(SnapshotError::Longer),
            Wanted::Record => self.record(),
            Wanted::What | Wanted::Header => {
                let Some(line) = self.line(SnapshotError::Header)? else { return Ok(None) };
                let header = serde_json::from_str(&line).map_err(|_| SnapshotError::Header)?;
                self.wanted = Wanted::Record;
                Ok(Some(Piece::Header(header)))
            }
        }
    }

    /// How many records were taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Says how many records there were, once all bytes were fed and each piece was taken.
    ///
    /// # Errors
    /// The end was not among them.
    pub fn finish(&self) -> Result<u64, SnapshotError> {
        match self.wanted {
            Wanted::Nothing => Ok(self.records),
            Wanted::What if !begins_alike(self.left(), WHAT.as_bytes()) => Err(SnapshotError::Foreign),
            _ => Err(SnapshotError::CutOff),
        }
    }

    fn record(&mut self) -> Result<Option<Piece>, SnapshotError> {
        let Some((lengths, rest)) = self.left().split_first_chunk::<LENGTHS>() else { return Ok(None) };
        let number = self.records + 1;
        let damaged = || SnapshotError::Record { number };
        let [key, value] = [&lengths[..4], &lengths[4..]].map(length);
        if key == 0 {
            if rest.len() < END {
                return Ok(None);
            }
            let (count, sum) = rest[..END].split_at(8);
            let (count, sum) = (count.to_vec(), sum.to_vec());
            if value != 0 {
                return Err(damaged());
            }
            self.take(LENGTHS + 8);
            if count != self.records.to_be_bytes() {
                return Err(SnapshotError::Count { found: self.records });
            }
            let counted = std::mem::replace(&mut self.sum, digest::Context::new(&digest::SHA256));
            if sum != counted.finish().as_ref() {
                return Err(SnapshotError::Sum);
            }
            self.take(digest::SHA256_OUTPUT_LEN);
            self.wanted = Wanted::Nothing;
            return Ok(Some(Piece::End(self.records)));
        }
        if key + value > LARGEST_RECORD {
            return Err(damaged());
        }
        let Some((key, value)) = rest.get(..key + value).map(|both| both.split_at(key)) else { return Ok(None) };
        let (key, value) = (std::str::from_utf8(key).map_err(|_| damaged())?.to_owned(), value.to_vec());
        // So that none is there twice.
        if !key.contains('/') || key <= self.last_key {
            return Err(damaged());
        }
        self.take(LENGTHS + key.len() + value.len());
        self.records = number;
        self.last_key.clone_from(&key);
        Ok(Some(Piece::Record(key, value)))
    }

    /// The next line without its end. A line that is too long, or no text, is refused so.
    fn line(&mut self, refusal: SnapshotError) -> Result<Option<String>, SnapshotError> {
        let Some(end) = self.left().iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
            return if self.left().len() < LONGEST_LINE { Ok(None) } else { Err(refusal) };
        };
        let Ok(line) = std::str::from_utf8(&self.left()[..end]).map(str::to_owned) else { return Err(refusal) };
        self.take(end + 1);
        Ok(Some(line))
    }

    fn left(&self) -> &[u8] {
        &self.fed[self.taken..]
    }

    fn take(&mut self, bytes: usize) {
        self.sum.update(&self.fed[self.taken..self.taken + bytes]);
        self.taken += bytes;
    }
}

fn begins_alike(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Why something is no snapshot that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It is something else.
    #[error("this is no snapshot of an access-control service")]
    Foreign,
    /// Another program wrote it.
    #[error("it is of format {found:?}, and this program knows {FORMAT}")]
    Format {
        /// Its format.
        found: String,
    },
    /// Its header cannot be read.
    #[error("its header is damaged")]
    Header,
    /// A record cannot be read, or is out of its place.
    #[error("record {number} is damaged")]
    Record {
        /// Which, from 1 on.
        number: u64,
    },
    /// It has another number of records than it says.
    #[error("it has {found} records and says another number")]
    Count {
        /// How many it has.
        found: u64,
    },
    /// It was changed after it was written.
    #[error("its checksum is wrong: it was damaged or changed")]
    Sum,
    /// Its end is missing.
    #[error("it is cut off: its end is missing")]
    CutOff,
    /// Something comes after its end.
    #[error("something comes after its end")]
    Longer,
}

#[cfg(test)]
mod tests;
