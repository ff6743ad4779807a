//! Reads audit files for people: the files of one audit in order, their lines, and a record as text.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::line::{self, MAX_LINE, ParsedLine};

/// Files of one audit.
#[derive(Debug, PartialEq, Eq)]
pub struct AuditFiles {
    /// The files, oldest first.
    pub files: Vec<PathBuf>,
    /// Files that older ones follow, and that are not there.
    pub missing: Vec<PathBuf>,
}

/// Lists the file of an audit and the older ones beside it.
pub fn list_files(path: &Path) -> AuditFiles {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let oldest = (1..=MAX_FILES).rev().find(|number| numbered(*number).exists()).unwrap_or(0);
    let (mut files, missing): (Vec<_>, Vec<_>) = (1..=oldest).rev().map(numbered).partition(|path| path.exists());
    files.push(path.to_owned());
    AuditFiles { files, missing }
}

/// Calls `take` with each line of a reader, as [`LineSplitter`] cuts them.
pub fn read_lines(reader: &mut impl BufRead, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut lines = LineSplitter::default();
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            lines.finish(take);
            return Ok(());
        }
        lines.push(bytes, &mut take);
        let length = bytes.len();
        reader.consume(length);
    }
}

/// Cuts bytes that come in pieces into lines. A line that is longer than any record is cut short.
#[derive(Debug, Default)]
pub struct LineSplitter(Vec<u8>);

impl LineSplitter {
    /// Calls `take` with each line that has ended by now, without its end.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.0.extend_from_slice(&text[..text.len().min((MAX_LINE + 1).saturating_sub(self.0.len()))]);
            if has_ended {
                take(&self.0);
                self.0.clear();
            }
        }
    }

    /// Calls `take` with the last line, if no line end follows it.
    fn finish(self, take: impl FnOnce(&[u8])) {
        if !self.0.is_empty() {
            take(&self.0);
        }
    }
}

/// Returns true for a line that ends within a record, as a broken connection or a full disk leaves it.
pub fn is_cut_line(line: &[u8]) -> bool {
    line::is_cut(line, None)
}

/// The fields of a record that people see.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DisplayedRecord {
    seq: u64,
    time: String,
    #[serde(rename = "type")]
    kind: String,
    /// Name of the part.
    pub(crate) part: String,
    listener: String,
    /// Use of the request.
    pub route: String,
    method: String,
    path: String,
    caller: DisplayedCaller,
    /// Name of the session.
    pub session: String,
    /// Hash of the accessor.
    pub accessor: String,
    operation: String,
    /// `granted` or `refused`.
    pub decision: String,
    rule: String,
    status: Option<u16>,
    latency_us: Option<u64>,
    previous: String,
    records: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DisplayedCaller {
    name: String,
    uid: Option<u32>,
    pid: Option<u32>,
    address: String,
    unit: String,
    executable: String,
}

impl DisplayedRecord {
    /// Parses a line; `None` if it has not the form of a record. Its MAC is not verified.
    pub fn parse(line: &[u8]) -> Option<Self> {
        ParsedLine::parse(line).ok()?;
        serde_json::from_slice(line).ok()
    }

    /// Formats the record in one line.
    pub fn format(&self) -> String {
        let mut text = format!("{} {:>6} ", self.time, self.seq);
        // Writing to a string cannot fail.
        let _ = match self.kind.as_str() {
            "request" | "response" => write!(text, "{}", self.format_request()),
            "start" => write!(text, "start (previous: {})", self.previous),
            "lost" => write!(text, "lost {} records", self.records.unwrap_or_default()),
            other => write!(text, "{other}"),
        };
        text
    }

    fn format_request(&self) -> String {
        let status = self.status.map_or_else(|| "...".to_owned(), |status| status.to_string());
        let mut text =
            format!("{} {status} {}/{} {} {}", self.decision, self.part, self.listener, self.method, self.path);
        let caller = &self.caller;
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let latency = self.latency_us.map(|micros| format!("{micros}us")).unwrap_or_default();
        for (name, value) in [
            ("rule", self.rule.as_str()),
            ("operation", &self.operation),
            ("session", &self.session),
            ("caller", &caller.name),
            ("uid", &number(caller.uid)),
            ("pid", &number(caller.pid)),
            ("address", &caller.address),
            ("unit", &caller.unit),
            ("executable", &caller.executable),
            ("latency", &latency),
        ] {
            if !value.is_empty() {
                let _ = write!(text, " {name}={value}");
            }
        }
        text
    }
}

/// Most files that one audit may keep.
const MAX_FILES: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_oldest_first_and_lines_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        for name in ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.9"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = list_files(&path);
        let names = |paths: &[PathBuf]| {
            let names = paths.iter().map(|path| path.extension().unwrap().to_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&found.files), "9 2 1 jsonl");
        assert_eq!(names(&found.missing), "8 7 6 5 4 3");
        let mut lengths = Vec::new();
        let bytes = [b"ab\n\n".as_slice(), &vec![b'x'; 3 * MAX_LINE], b"\nend"].concat();
        read_lines(&mut io::BufReader::with_capacity(7, &*bytes), |line| lengths.push(line.len())).unwrap();
        assert_eq!(lengths, [2, 0, MAX_LINE + 1, 3]);
    }

    #[test]
    fn a_record_is_shown_in_one_line() {
        let line = r#"{"v":1,"seq":3,"time":"T","type":"response","part":"agent","listener":"api","route":"token","method":"GET","path":"/a","caller":{"uid":7,"name":"web"},"session":"s","decision":"refused","rule":"peer","status":403,"latency_us":9,"mac":""#;
        let line = format!("{line}{}\"}}", "0".repeat(64));
        let shown = DisplayedRecord::parse(line.as_bytes()).unwrap().format();
        let (start, _) = line.split_at(40);
        assert!(is_cut_line(start.as_bytes()) && !is_cut_line(line.as_bytes()) && !is_cut_line(b"{\"seq\":3}"));
        assert!(DisplayedRecord::parse(b"{\"v\":1,\"seq\":3,\"type\":\"stop\"}").is_none(), "it has no MAC");
        assert_eq!(shown, "T      3 refused 403 agent/api GET /a rule=peer session=s caller=web uid=7 latency=9us");
        assert!(DisplayedRecord::parse(b"x").is_none());
    }
}
