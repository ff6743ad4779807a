//! Records beside an output: with which settings the certificate in it was requested. Blocks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use keyward_machine::atomic_file::{self, Attributes, ReplaceError};

/// Adds the record of a certificate, and keeps that of the one before.
pub(super) fn add(output: &Path, digest: &str, fingerprint: &str) -> Result<(), ReplaceError> {
    let new = Record::new(digest, fingerprint);
    let mut records = read(output);
    if records.contains(&new) {
        return Ok(());
    }
    records.insert(0, new);
    records.truncate(RECORDS);
    let text: String = records.iter().map(Record::to_line).collect();
    let attributes = Attributes { mode: 0o600, owner: None, group: None };
    atomic_file::replace(&path(output), text.as_bytes(), &attributes).map(drop)
}

/// Returns true if a certificate was requested with settings of this digest.
pub(super) fn contain(output: &Path, digest: &str, fingerprint: &str) -> bool {
    read(output).contains(&Record::new(digest, fingerprint))
}

/// `.NAME.request` beside the output. Not longer than the name of its temporary file.
pub(super) fn path(output: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".request");
    output.with_file_name(name)
}

fn read(output: &Path) -> Vec<Record> {
    let text = atomic_file::read(&path(output), MAX_FILE);
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().filter_map(Record::parse).take(RECORDS).collect()
}

/// The certificate on the disk, and the one that takes its place.
const RECORDS: usize = 2;

/// Bounds a file that is read.
const MAX_FILE: usize = 1 << 20;

/// A line: the digest of the settings with which a certificate was requested, and that of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    request: String,
    certificate: String,
}

impl Record {
    fn new(request: &str, certificate: &str) -> Self {
        Self { request: request.to_owned(), certificate: certificate.to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [VERSION, request, certificate] = parts.as_slice() else { return None };
        Some(Self::new(request, certificate))
    }

    fn to_line(&self) -> String {
        format!("{VERSION} {} {}\n", self.request, self.certificate)
    }
}

/// Version of the record's form.
const VERSION: &str = "1";
