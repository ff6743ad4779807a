//! Verifies the lines of an audit against its key, and says where they were changed. Pure: lines come in, findings go out.

mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use report::{AuditFinding, LinePosition, VerifyReport};
pub(crate) use report::{AuditFindingKind, VerifyNote};

use super::checkpoint::Checkpoint;
use super::key::{AuditKey, Mac};
use super::line::{ChainPosition, ParsedLine, is_cut};

/// Verifies lines in the order in which they were written, from the oldest file to the newest.
#[derive(Debug)]
pub struct Verifier<'a> {
    key: &'a AuditKey,
    checkpoints: Vec<CheckpointState>,
    /// Name of the chain, once a line has named it.
    chain: Option<Arc<str>>,
    /// Names of all chains so far.
    known_chains: BTreeSet<Arc<str>>,
    /// Position after the last line, as that line has it.
    last: Option<ChainPosition>,
    /// Position after the last line whose MAC was right.
    verified: Option<ChainPosition>,
    /// Type of the last record.
    last_kind: String,
    /// A line that ends within a record, and may turn out to be the end of a broken connection.
    cut: Option<AuditFinding>,
    report: VerifyReport,
}

#[derive(Debug)]
struct CheckpointState {
    checkpoint: Checkpoint,
    mac: Option<Mac>,
    state: CheckpointProgress,
}

/// State of a checkpoint's record among the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointProgress {
    NotYet,
    /// The lines begin after it.
    Before,
    Same,
    Differs,
}

impl<'a> Verifier<'a> {
    /// Begins a verification, also against `checkpoints`.
    pub fn new(key: &'a AuditKey, checkpoints: Vec<Checkpoint>) -> Self {
        let state = |checkpoint: Checkpoint| CheckpointState {
            mac: Mac::parse(checkpoint.mac.as_bytes()),
            checkpoint,
            state: CheckpointProgress::NotYet,
        };
        Self {
            key,
            checkpoints: checkpoints.into_iter().map(state).collect(),
            chain: None,
            known_chains: BTreeSet::new(),
            last: None,
            verified: None,
            last_kind: String::new(),
            cut: None,
            report: VerifyReport::default(),
        }
    }

    /// Verifies the next line, without its line end. Empty lines are skipped.
    pub fn verify_line(&mut self, position: &LinePosition, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        self.report.lines += 1;
        match ParsedLine::parse(line) {
            Ok(parsed) => self.verify_record(position, &parsed),
            Err(error) => {
                self.flush_cut();
                let finding = AuditFinding { position: position.clone(), kind: AuditFindingKind::Unreadable(error) };
                // Anyone may have inserted another.
                if is_cut(line, self.last.map(|last| last.next)) {
                    self.cut = Some(finding);
                } else {
                    self.report.findings.push(finding);
                }
            }
        }
    }

    /// Ends the verification.
    pub fn finish(mut self) -> VerifyReport {
        self.flush_cut();
        let last = self.last.map(|last| last.next.saturating_sub(1));
        for CheckpointState { checkpoint, state, .. } in std::mem::take(&mut self.checkpoints) {
            match state {
                CheckpointProgress::Same => self.report.checkpoints += 1,
                CheckpointProgress::Before => {
                    self.report.notes.push(VerifyNote::OlderCheckpoint { seq: checkpoint.seq });
                }
                CheckpointProgress::Differs => self.report.missing_checkpoints.push((checkpoint, None)),
                CheckpointProgress::NotYet => {
                    let is_last_chain = self.chain.as_deref() == Some(&checkpoint.chain);
                    self.report.missing_checkpoints.push((checkpoint, last.filter(|_| is_last_chain)));
                }
            }
        }
        self.report.last = self.chain.clone().zip(last);
        self.report.stopped = self.last_kind == "stop";
        self.report
    }

    fn verify_record(&mut self, position: &LinePosition, line: &ParsedLine<'_>) {
        let seq = line.fields.seq;
        let end = ChainPosition { next: seq.saturating_add(1), mac: line.mac };
        if let Some((chain, previous)) = line.header()
            && line.verify_after(&previous, self.key)
        {
            self.verify_header(position, line, chain, previous);
            self.accept(line, end);
            return;
        }
        let follows = |position: &ChainPosition| position.next == seq && line.verify_after(&position.mac, self.key);
        if self.last.as_ref().is_some_and(follows) || self.verified.as_ref().is_some_and(follows) {
            self.flush_cut();
            self.accept(line, end);
            return;
        }
        self.flush_cut();
        let kind = match self.last {
            None => AuditFindingKind::MissingHeader { seq },
            Some(last) if seq > last.next => AuditFindingKind::Missing { from: last.next, to: seq - 1 },
            Some(last) if seq < last.next => AuditFindingKind::OutOfOrder { seq },
            Some(_) => AuditFindingKind::Altered { seq },
        };
        self.report.findings.push(AuditFinding { position: position.clone(), kind });
        self.last = Some(end);
        self.last_kind.clone_from(&line.fields.kind);
    }

    /// Verifies the place of a record at the beginning of a file or a connection, whose own MAC is right.
    fn verify_header(&mut self, position: &LinePosition, line: &ParsedLine<'_>, chain: &str, previous: Mac) {
        let seq = line.fields.seq;
        let is_same_chain = self.chain.as_deref() == Some(chain);
        let begins = ChainPosition { next: seq, mac: previous };
        let continues = is_same_chain && (self.last == Some(begins) || self.verified == Some(begins));
        if continues {
            if let Some(AuditFinding { position, .. }) = self.cut.take() {
                self.report.notes.push(VerifyNote::IncompleteLine { position });
            }
        } else if let (true, Some(last)) = (is_same_chain, self.last) {
            self.flush_cut();
            let kind = match seq {
                seq if seq > last.next => AuditFindingKind::Missing { from: last.next, to: seq - 1 },
                seq if seq < last.next => AuditFindingKind::OutOfOrder { seq },
                seq => AuditFindingKind::Altered { seq },
            };
            self.report.findings.push(AuditFinding { position: position.clone(), kind });
        } else {
            self.flush_cut();
            self.begin_chain(position, chain, seq);
        }
        if !is_same_chain {
            let name = Arc::<str>::from(chain);
            self.known_chains.insert(Arc::clone(&name));
            self.chain = Some(name);
        }
        match line.fields.previous.as_deref() {
            Some("killed") => self.report.notes.push(VerifyNote::Killed { position: position.clone() }),
            Some("unverified") => self.report.notes.push(VerifyNote::Unverified { position: position.clone() }),
            _ => {}
        }
        let of_chain = self.checkpoints.iter_mut().filter(|entry| entry.checkpoint.chain == chain);
        of_chain
            .filter(|entry| {
                entry.state == CheckpointProgress::NotYet && entry.checkpoint.seq < seq && !continues && !is_same_chain
            })
            .for_each(|entry| entry.state = CheckpointProgress::Before);
    }

    fn begin_chain(&mut self, position: &LinePosition, name: &str, seq: u64) {
        if self.known_chains.contains(name) {
            let kind = AuditFindingKind::OutOfOrder { seq };
            self.report.findings.push(AuditFinding { position: position.clone(), kind });
            return;
        }
        if let (Some(chain), Some(last)) = (&self.chain, self.last) {
            let ended = VerifyNote::NewChain {
                position: position.clone(),
                chain: Arc::clone(chain),
                last: last.next.saturating_sub(1),
                stopped: self.last_kind == "stop",
            };
            self.report.notes.push(ended);
        }
        if seq > 0 {
            self.report.notes.push(VerifyNote::StartsAfterFirst { position: position.clone(), records: seq });
        }
    }

    /// Takes a record whose MAC is right.
    fn accept(&mut self, line: &ParsedLine<'_>, end: ChainPosition) {
        self.report.verified += 1;
        if line.fields.kind == "lost" {
            self.report.lost += line.fields.records.unwrap_or(1);
        }
        (self.last, self.verified) = (Some(end), Some(end));
        self.last_kind.clone_from(&line.fields.kind);
        let chain = self.chain.as_deref();
        let of_chain = self.checkpoints.iter_mut().filter(|entry| Some(&*entry.checkpoint.chain) == chain);
        for entry in of_chain.filter(|entry| entry.checkpoint.seq == line.fields.seq) {
            let matches = entry.mac == Some(line.mac);
            entry.state = if matches { CheckpointProgress::Same } else { CheckpointProgress::Differs };
        }
    }

    fn flush_cut(&mut self) {
        self.report.findings.extend(self.cut.take());
    }
}
