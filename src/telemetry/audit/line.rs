//! Lines of an audit: how records are written and signed, one by one and in batches, and how foreign bytes are read back.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::key::{AuditKey, Mac};
use super::queue::QueuedRecord;
use super::record::{AuditRecord, ChainRecord};
use crate::time_format::format_rfc3339;

/// Position in a chain: the number of the next record, and the MAC of the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ChainPosition {
    pub(super) next: u64,
    pub(super) mac: Mac,
}

/// Writes signed lines.
#[derive(Debug)]
pub(super) struct LineWriter {
    key: AuditKey,
    /// The second of the last record, formatted.
    second: (u64, String),
    /// The last accessor, hashed: most records of a device have the same.
    hashed: Option<(String, String)>,
}

impl LineWriter {
    pub(super) fn new(key: AuditKey) -> Self {
        Self { key, second: (u64::MAX, String::new()), hashed: None }
    }

    /// Returns the key.
    pub(super) const fn key(&self) -> &AuditKey {
        &self.key
    }

    /// Appends the line of a request's record.
    pub(super) fn append(
        &mut self,
        lines: &mut Vec<u8>,
        at: SystemTime,
        record: &AuditRecord,
        position: &mut ChainPosition,
    ) {
        let start = self.begin(lines, at, position);
        lines.extend_from_slice(b",\"type\":\"");
        lines.extend_from_slice(record.kind.name().as_bytes());
        lines.push(b'"');
        append_members(lines, |lines| lines.extend_from_slice(record.request.json()));
        append_members(lines, |lines| append_json(lines, &record.state));
        if let Some(accessor) = &record.state.note.accessor {
            lines.extend_from_slice(b",\"accessor\":\"");
            lines.extend_from_slice(self.hash(accessor).as_bytes());
            lines.push(b'"');
        }
        self.end(lines, start, position);
    }

    /// Appends the line of a record about the chain.
    pub(super) fn append_chain(
        &mut self,
        lines: &mut Vec<u8>,
        at: SystemTime,
        record: &ChainRecord,
        position: &mut ChainPosition,
    ) {
        let start = self.begin(lines, at, position);
        append_members(lines, |lines| append_json(lines, record));
        self.end(lines, start, position);
    }

    /// Appends the members that each line begins with; returns where it starts.
    fn begin(&mut self, lines: &mut Vec<u8>, at: SystemTime, position: &ChainPosition) -> usize {
        let start = lines.len();
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.second.0 != since.as_secs() {
            let mut text = format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()));
            text.pop();
            self.second = (since.as_secs(), text);
        }
        let number = position.next;
        let second = &self.second.1;
        let micros = since.subsec_micros();
        // Cannot fail: the lines are in memory.
        let _ = write!(lines, "{{\"v\":1,\"seq\":{number},\"time\":\"{second}.{micros:06}Z\"");
        start
    }

    fn end(&self, lines: &mut Vec<u8>, start: usize, position: &mut ChainPosition) {
        let mac = self.key.sign(&position.mac, &lines[start..]);
        lines.extend_from_slice(MAC_KEY);
        lines.extend_from_slice(&mac.digits());
        lines.extend_from_slice(b"\"}\n");
        *position = ChainPosition { next: position.next + 1, mac };
    }

    fn hash(&mut self, accessor: &str) -> &str {
        if self.hashed.as_ref().is_none_or(|(last, _)| last != accessor) {
            self.hashed = Some((accessor.to_owned(), self.key.hash(accessor)));
        }
        self.hashed.as_ref().map_or("", |(_, hash)| hash)
    }
}

/// Appends the members of a JSON object after those that a line has: a comma stands in place of the object's opening brace, and
/// nothing in place of the closing one.
fn append_members(lines: &mut Vec<u8>, append_object: impl FnOnce(&mut Vec<u8>)) {
    let start = lines.len();
    append_object(lines);
    if let Some(brace) = lines.get_mut(start) {
        *brace = b',';
        lines.pop();
    }
}

fn append_json(lines: &mut Vec<u8>, object: &impl Serialize) {
    // Cannot fail: writing to a vector does not, and the records have no maps.
    let _ = serde_json::to_writer(lines, object);
}

/// Returns true for a line that ends within a record, which must be number `next` if that is known: a connection broke, or a
/// disk was full. No whole JSON is such a line.
pub(super) fn is_cut(line: &[u8], next: Option<u64>) -> bool {
    let start = next.map_or_else(|| "{\"v\":1,\"seq\":".to_owned(), |next| format!("{{\"v\":1,\"seq\":{next},"));
    let begins = line.starts_with(start.as_bytes()) || start.as_bytes().starts_with(line);
    begins
        && line.len() <= MAX_LINE
        && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

/// A line that was read.
#[derive(Debug)]
pub(super) struct ParsedLine<'a> {
    /// Bytes that the MAC is over.
    body: &'a [u8],
    pub(super) mac: Mac,
    pub(super) fields: LineFields,
}

/// Fields of a line that verification needs.
#[derive(Debug, Deserialize)]
pub(super) struct LineFields {
    v: u64,
    pub(super) seq: u64,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) chain: Option<String>,
    prev: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) records: Option<u64>,
}

/// Reason why a line was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    /// It does not end with a MAC.
    #[error("the line does not end with a MAC")]
    NoMac,
    /// It is no JSON object with the fields of a record.
    #[error("the line is not a record")]
    NotARecord,
    /// It is of a later version.
    #[error("the line has a version that this keyward does not know")]
    Version,
    /// It is longer than any record.
    #[error("the line is longer than any record")]
    TooLong,
}

impl<'a> ParsedLine<'a> {
    /// Parses a line without its line end.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        if line.len() > MAX_LINE {
            return Err(LineError::TooLong);
        }
        let tail = line.len().checked_sub(TAIL).ok_or(LineError::NoMac)?;
        let (body, end) = line.split_at(tail);
        let digits = end.strip_prefix(MAC_KEY).and_then(|end| end.strip_suffix(b"\"}")).ok_or(LineError::NoMac)?;
        let mac = Mac::parse(digits).ok_or(LineError::NoMac)?;
        let fields: LineFields = serde_json::from_slice(line).map_err(|_| LineError::NotARecord)?;
        if fields.v != 1 {
            return Err(LineError::Version);
        }
        Ok(Self { body, mac, fields })
    }

    /// Returns true if the record was signed after a record with this MAC.
    pub(super) fn verify_after(&self, previous: &Mac, key: &AuditKey) -> bool {
        key.sign(previous, self.body) == self.mac
    }

    /// Returns the MAC of the record before this one, as a record at the beginning of a file has it.
    pub(super) fn header(&self) -> Option<(&str, Mac)> {
        let prev = Mac::parse(self.fields.prev.as_ref()?.as_bytes())?;
        Some((self.fields.chain.as_deref()?, prev))
    }
}

const MAC_KEY: &[u8] = b",\"mac\":\"";

/// Length of the end of a line: key, digits, quote and brace.
const TAIL: usize = MAC_KEY.len() + 64 + 2;

/// Longest line: a path of 1024 bytes may be escaped to six times as many.
pub(super) const MAX_LINE: usize = 32 * 1024;

/// Lines of a batch: first those about the chain, then those of requests, then a stop record.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// End of each line.
    pub(super) ends: Vec<usize>,
    start: ChainPosition,
    /// Position after each line.
    positions: Vec<ChainPosition>,
    /// Lines before those of requests.
    pub(super) leads: usize,
}

impl Batch {
    /// Formats and signs the lines from a position on.
    pub(super) fn new(
        lines: &mut LineWriter,
        start: ChainPosition,
        leading: &[ChainRecord],
        records: &[QueuedRecord],
        stops: bool,
    ) -> Self {
        let count = leading.len() + records.len() + usize::from(stops);
        let mut batch = Self {
            bytes: Vec::with_capacity(ESTIMATED_LINE * count),
            ends: Vec::with_capacity(count),
            start,
            positions: Vec::with_capacity(count),
            leads: leading.len(),
        };
        let now = SystemTime::now();
        let mut position = start;
        for record in leading {
            lines.append_chain(&mut batch.bytes, now, record, &mut position);
            batch.end_line(position);
        }
        for queued in records {
            lines.append(&mut batch.bytes, queued.at, &queued.record, &mut position);
            batch.end_line(position);
        }
        if stops {
            lines.append_chain(&mut batch.bytes, now, &ChainRecord::Stop {}, &mut position);
            batch.end_line(position);
        }
        batch
    }

    fn end_line(&mut self, position: ChainPosition) {
        self.ends.push(self.bytes.len());
        self.positions.push(position);
    }

    /// Returns the position after this many lines.
    pub(super) fn position_after(&self, lines: usize) -> ChainPosition {
        lines.checked_sub(1).and_then(|last| self.positions.get(last)).copied().unwrap_or(self.start)
    }
}

/// Length of a usual line, in bytes.
pub(super) const ESTIMATED_LINE: usize = 512;
