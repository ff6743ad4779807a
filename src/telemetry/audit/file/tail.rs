//! End of an audit file: the chain that it holds, and the position at which that chain continues.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::audit::device_result::ResumedChain;
use crate::audit::key::AuditKey;
use crate::audit::line::{ChainPosition, MAX_LINE, ParsedLine};
use crate::audit::record::PreviousEnd;

/// Reads the first line, which names the chain, and the last two, of which the last one is verified.
pub(super) fn read(file: &File, length: u64, key: &AuditKey) -> io::Result<ResumedChain> {
    let first = bytes(file, 0, length.min(MAX_LINE as u64))?;
    let start = length.saturating_sub(2 * MAX_LINE as u64);
    let end = bytes(file, start, length - start)?;
    let complete_length = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn_bytes = (end.len() - complete_length) as u64;
    if complete_length == 0 && start == 0 {
        return Ok(ResumedChain { chain: None, previous: PreviousEnd::None, torn_bytes });
    }
    let first = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let chain = position(first, &end[..complete_length], key);
    let (previous, chain) = match chain {
        None => (PreviousEnd::Unverified, None),
        Some((name, position, true)) => (PreviousEnd::Stopped, Some((name, position))),
        Some((name, position, false)) => (PreviousEnd::Killed, Some((name, position))),
    };
    Ok(ResumedChain { chain, previous, torn_bytes })
}

/// Returns the name of the chain, the position after its last record, and whether that is a stop record; `None` if it does
/// not verify with the key.
fn position(first: &[u8], end: &[u8], key: &AuditKey) -> Option<(String, ChainPosition, bool)> {
    let first = ParsedLine::parse(first).ok()?;
    let (chain, prev) = first.header()?;
    if !first.verify_after(&prev, key) {
        return None;
    }
    let mut lines = end.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let last = ParsedLine::parse(lines.next()?).ok()?;
    let is_right = match last.header() {
        Some((name, prev)) => name == chain && last.verify_after(&prev, key),
        None => last.verify_after(&ParsedLine::parse(lines.next()?).ok()?.mac, key),
    };
    let position = ChainPosition { next: last.fields.seq.checked_add(1)?, mac: last.mac };
    is_right.then(|| (chain.to_owned(), position, last.fields.kind == "stop"))
}

fn bytes(file: &File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(2 * MAX_LINE)];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}
