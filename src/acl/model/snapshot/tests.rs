use proptest::prelude::*;

use super::*;

fn header() -> SnapshotHeader {
    let created_at = "2026-01-31T09:00:00Z".parse().unwrap();
    SnapshotHeader { datacenter: "dc1".to_owned(), key_ids: vec!["k1".to_owned()], revision: 7, created_at }
}

fn written(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = SnapshotWriter::begin(&header(), &mut bytes).unwrap();
    for (key, value) in records {
        writer.record(key, value, &mut bytes).unwrap();
    }
    assert_eq!(writer.end(&mut bytes), records.len() as u64);
    bytes
}

/// All pieces, with the bytes fed in parts of that length.
fn read(bytes: &[u8], part: usize) -> Result<Vec<SnapshotPiece>, SnapshotError> {
    let mut reader = SnapshotReader::default();
    let mut pieces = Vec::new();
    for part in bytes.chunks(part) {
        reader.feed(part);
        while let Some(piece) = reader.piece()? {
            pieces.push(piece);
        }
    }
    assert_eq!(reader.finish()?, pieces.len() as u64 - 2);
    Ok(pieces)
}

const RECORDS: [(&str, &[u8]); 3] = [("a/1", b"{}"), ("a/2", b""), ("token/default/x", &[0, 0xff, b'\n'])];

#[test]
fn a_snapshot_is_read_in_chunks_of_any_size() {
    let bytes = written(&RECORDS);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().take(2).collect();
    let expected = r#"{"Datacenter":"dc1","KeyIDs":["k1"],"Revision":7,"CreatedAt":"2026-01-31T09:00:00Z"}"#;
    assert_eq!(lines, ["keyward acl snapshot 1", expected]);
    let mut pieces = vec![SnapshotPiece::Header(header())];
    pieces.extend(RECORDS.map(|(key, value)| SnapshotPiece::Record(key.to_owned(), value.to_vec())));
    pieces.push(SnapshotPiece::End(3));
    for part in [1, 2, 7, 64, bytes.len()] {
        assert_eq!(read(&bytes, part).unwrap(), pieces, "{part}");
    }
    assert_eq!(read(&written(&[]), 5).unwrap(), [SnapshotPiece::Header(header()), SnapshotPiece::End(0)]);
}

#[test]
fn changed_missing_and_added_bytes_are_detected() {
    let bytes = written(&RECORDS);
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << bit;
            assert!(read(&changed, 16).is_err(), "bit {bit} of byte {place}");
        }
        let refused = read(&bytes[..place], 16).unwrap_err();
        assert!(matches!(refused, SnapshotError::Truncated), "{place}: {refused}");
    }
    assert_eq!(read(&[&bytes[..], b"\n"].concat(), 16), Err(SnapshotError::TrailingData));
}

#[test]
fn each_defect_has_its_own_error() {
    let check = |bytes: &[u8], expected: SnapshotError| assert_eq!(read(bytes, 1000), Err(expected));
    check(b"PK\x03\x04", SnapshotError::NotASnapshot);
    check(b"keyward acl\n", SnapshotError::NotASnapshot);
    check(&vec![b'x'; MAX_LINE], SnapshotError::NotASnapshot);
    check(b"keyward acl snapshot 2\n", SnapshotError::Format { found: "2".to_owned() });
    check(b"keyward acl snapshot 1\n{}\n", SnapshotError::Header);
    let record = |records: &[(&str, &[u8])], number| check(&written(records), SnapshotError::Record { number });
    record(&[("a/2", b""), ("a/1", b"")], 2);
    record(&[("a/1", b""), ("a/1", b"")], 2);
    record(&[("a", b"")], 1);
    record(&[("a/1", &vec![0; MAX_RECORD])], 1);
    let mut bytes = written(&[]);
    let count = bytes.len() - digest::SHA256_OUTPUT_LEN - 1;
    bytes[count] = 1;
    check(&bytes, SnapshotError::Count { found: 0 });
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), part in 1_usize..20) {
        prop_assert!(read(&bytes, part).is_err());
        let after = [b"keyward acl snapshot 1\n", &serde_json::to_vec(&header()).unwrap()[..], b"\n", &bytes].concat();
        prop_assert!(read(&after, part).is_err());
    }
}
