use std::time::{Duration, SystemTime};

use keyward_machine::secret_string::SecretString;
use proptest::prelude::*;

use super::*;
use crate::audit::line::LineWriter;
use crate::audit::record::{ChainHeader, ChainRecord, PreviousEnd};
use crate::audit::tests::record;

fn key() -> AuditKey {
    AuditKey::new(&SecretString::from("0123456789abcdef0123456789abcdef"))
}

/// A chain of a start record and `count` more, as lines without their ends.
fn chain(count: u64) -> (Vec<Vec<u8>>, ChainPosition) {
    let mut writer = LineWriter::new(key());
    let mut position = ChainPosition::default();
    let mut bytes = Vec::new();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let header = ChainHeader { chain: "c0ffee".into(), prev: position.mac.hex() };
    let start = ChainRecord::Start { header, version: "1", pid: 7, previous: PreviousEnd::None, torn_bytes: 0 };
    writer.append_chain(&mut bytes, at, &start, &mut position);
    for number in 0..count {
        writer.append(&mut bytes, at, &record(number), &mut position);
    }
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    (lines, position)
}

fn verify(lines: &[Vec<u8>], checkpoints: Vec<Checkpoint>) -> VerifyReport {
    let key = key();
    let mut verifier = Verifier::new(&key, checkpoints);
    for (number, line) in (1..).zip(lines) {
        verifier.verify_line(&LinePosition { file: "audit".into(), line: number }, line);
    }
    verifier.finish()
}

fn places(report: &VerifyReport) -> Vec<u64> {
    report.findings.iter().map(|finding| finding.position.line).collect()
}

#[test]
fn an_unchanged_chain_of_ten_thousand_records_is_intact_and_every_change_is_found_at_its_place() {
    let (lines, _) = chain(10_000);
    let report = verify(&lines, Vec::new());
    assert!(report.is_intact() && report.verified == 10_001 && report.notes.is_empty(), "{report:?}");
    for at in [1_usize, 2, 3, 77, 5000, 9_998, 9_999] {
        let position = at as u64 + 1;
        let mut edited = lines.clone();
        let digit = edited[at].iter().rposition(|byte| *byte == b'2').unwrap();
        edited[at][digit] = b'4';
        assert!(places(&verify(&edited, Vec::new())).contains(&position), "edit {at}");
        let mut deleted = lines.clone();
        deleted.remove(at);
        assert_eq!(places(&verify(&deleted, Vec::new())), [position], "delete {at}");
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        assert_eq!(places(&verify(&swapped, Vec::new()))[0], position, "swap {at}");
        let mut doubled = lines.clone();
        doubled.insert(at, lines[at - 1].clone());
        assert_eq!(places(&verify(&doubled, Vec::new())), [position], "insert {at}");
    }
}

#[test]
fn a_cut_tail_is_found_against_a_checkpoint_alone() {
    let (lines, position) = chain(100);
    let checkpoint = Checkpoint::new("c0ffee", &position, String::from("now")).unwrap();
    assert_eq!(checkpoint.seq, 100);
    let text = serde_json::to_string(&checkpoint).unwrap();
    assert_eq!(Checkpoint::parse_all(&text).unwrap(), std::slice::from_ref(&checkpoint));
    let report = verify(&lines, vec![checkpoint.clone()]);
    assert!(report.is_intact() && report.checkpoints == 1, "{report:?}");
    assert!(verify(&lines[..90], Vec::new()).is_intact(), "nothing in the file shows it");
    let cut = verify(&lines[..90], vec![checkpoint.clone()]);
    let described: Vec<_> = cut.missing_checkpoints.iter().map(VerifyReport::describe_missing).collect();
    assert_eq!(described, ["records 90 to 100 are missing at the end: a checkpoint of now has seen record 100"]);
    let other = Checkpoint { chain: "other".into(), ..checkpoint.clone() };
    assert!(!verify(&lines, vec![other]).is_intact());
    let forged = Checkpoint { mac: "0".repeat(64), ..checkpoint };
    assert!(!verify(&lines, vec![forged]).is_intact());
    for wrong in ["", "{}", "null", "{\"chain\":\"a\",\"seq\":1,\"mac\":\"00\",\"time\":\"\"}"] {
        assert!(Checkpoint::parse_all(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn another_key_verifies_no_record_and_a_lost_first_line_is_found() {
    let (lines, _) = chain(3);
    let other = AuditKey::new(&SecretString::from("another key of thirty-two letters"));
    let mut verifier = Verifier::new(&other, Vec::new());
    for line in &lines {
        verifier.verify_line(&LinePosition { file: "audit".into(), line: 1 }, line);
    }
    assert_eq!(verifier.finish().verified, 0);
    let report = verify(&lines[1..], Vec::new());
    assert_eq!(report.findings[0].kind, AuditFindingKind::MissingHeader { seq: 1 });
}

#[test]
fn a_line_before_a_header_is_a_note_only_if_it_ends_within_the_next_record() {
    let mut writer = LineWriter::new(key());
    let mut position = ChainPosition::default();
    let mut bytes = Vec::new();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let mut start = |bytes: &mut Vec<u8>, position: &mut ChainPosition| {
        let header = ChainHeader { chain: "c0ffee".into(), prev: position.mac.hex() };
        let start = ChainRecord::Start { header, version: "1", pid: 7, previous: PreviousEnd::None, torn_bytes: 0 };
        writer.append_chain(bytes, at, &start, position);
        writer.append(bytes, at, &record(1), position);
    };
    start(&mut bytes, &mut position);
    start(&mut bytes, &mut position);
    let lines: Vec<_> =
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    // The second header is the third line; the record before it is number 1.
    let check = |inserted: &[u8], expected: &[u64]| {
        let mut changed = lines.clone();
        changed.insert(2, inserted.to_vec());
        let report = verify(&changed, Vec::new());
        let text = String::from_utf8_lossy(inserted);
        assert_eq!(places(&report), expected, "{text}");
        assert_eq!(report.notes.len(), usize::from(expected.is_empty()), "{text}: {:?}", report.notes);
    };
    check(b"{\"v\":1,\"seq\":2,\"time\":\"20", &[]);
    check(b"{\"v\":1,\"se", &[]);
    check(b"{\"v\":1,\"seq\":3,\"time\":\"20", &[3]);
    check(b"{\"v\":1,\"seq\":2,\"type\":\"response\",\"decision\":\"granted\"}", &[3]);
    check(b"{\"type\":\"response\"", &[3]);
    check(b"x", &[3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changed_byte_is_found_within_a_line_of_its_place(at in 0_usize..60, byte: usize, bit in 0_u8..8) {
        let (mut lines, _) = chain(59);
        let byte = byte % lines[at].len();
        lines[at][byte] ^= 1 << bit;
        let report = verify(&lines, Vec::new());
        let first = places(&report).first().copied();
        prop_assert!(first.is_some_and(|line| line == at as u64 + 1 || line == at as u64 + 2), "{report:?}");
    }

    #[test]
    fn any_removed_moved_or_copied_range_is_found(from in 0_usize..60, length in 1_usize..20, to in 0_usize..60) {
        let (lines, _) = chain(79);
        let mut removed = lines.clone();
        let range: Vec<_> = removed.drain(from..from + length).collect();
        prop_assert!(!verify(&removed, Vec::new()).is_intact());
        let mut moved = removed.clone();
        moved.splice(to..to, range.clone());
        prop_assert!(moved == lines || !verify(&moved, Vec::new()).is_intact());
        let mut copied = lines.clone();
        copied.splice(to..to, range);
        prop_assert!(!verify(&copied, Vec::new()).is_intact());
    }
}
