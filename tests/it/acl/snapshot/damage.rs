//! Damaged, truncated and foreign snapshots are rejected without a change.

use keyward_acl::model::snapshot::SnapshotHeader;

use super::{Acl, make_some_of_each, read, written};

#[tokio::test]
async fn a_damaged_snapshot_is_refused_with_a_line_and_changes_nothing() {
    let acl = Acl::start().await;
    let small = acl.snapshot().await;
    make_some_of_each(&acl).await;
    let before = read(&acl.snapshot().await);
    let check = async |snapshot: &[u8], expected: &str| {
        let refused = acl.restore(&acl.root, snapshot).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        let line = refused.text.starts_with("Invalid snapshot: ") && !refused.text.contains('\n');
        assert!(line && refused.text.contains(expected), "{refused:?}, not {expected:?}");
    };
    check(b"", "truncated").await;
    check(b"{}", "not a keyward ACL snapshot").await;
    check(&small[..small.len() - 1], "truncated").await;
    check(&small[..200], "truncated").await;
    check(&[&small[..], b"x"].concat(), "data follows the end").await;
    let newer = String::from_utf8_lossy(&small).replacen("snapshot 1\n", "snapshot 2\n", 1);
    check(newer.as_bytes(), "format \"2\"").await;
    check(&written(&read(&small).0, &[]), "no default namespace").await;
    let rewritten = |change: fn(&mut SnapshotHeader), more: &[(&str, &[u8])]| {
        let (mut header, records) = read(&small);
        change(&mut header);
        let more = more.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec()));
        written(&header, &records.into_iter().chain(more).collect::<Vec<_>>())
    };
    check(&rewritten(|header| header.datacenter = "dc2".to_owned(), &[]), "it belongs to datacenter \"dc2\"").await;
    check(&rewritten(|header| header.key_ids.push("other".to_owned()), &[]), "key \"other\"").await;
    check(&rewritten(|_| (), &[("a/before", b"")]), "is damaged").await;
    check(&rewritten(|_| (), &[("zone/large", &vec![0; 1024 * 1024])]), "unexpected record zone/large").await;

    // One bit in each byte of both ends, and in some bytes in between.
    let (start, end) = (300, small.len() - 100);
    for place in (0..start).chain((start..end).step_by(41)).chain(end..small.len()) {
        let mut changed = small.clone();
        changed[place] ^= 1 << (place % 8);
        check(&changed, "").await;
    }
    let after = read(&acl.snapshot().await);
    assert_eq!(after.0.revision, before.0.revision, "nothing was written");
    assert!(after.1 == before.1);
    let left = std::fs::read_dir(acl.options.store.folder().unwrap()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["acl.redb", "seal.key"], "no file is left behind");
}

#[tokio::test]
async fn a_restored_snapshot_without_the_anonymous_token_gets_a_new_one() {
    const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";
    let acl = Acl::start().await;
    let (header, records) = read(&acl.snapshot().await);
    let token = format!("token/default/{ANONYMOUS}");
    let (lost, rest): (Vec<_>, Vec<_>) = records.into_iter().partition(|(key, _)| *key == token);
    assert_eq!(lost.len(), 1);
    let restored = acl.restore(&acl.root, &written(&header, &rest)).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    let own = acl.call("GET", "/v1/acl/token/self", Some("anonymous"), None).await;
    assert_eq!((own.status, &own.json()["AccessorID"]), (200, &serde_json::json!(ANONYMOUS)), "{own:?}");
}
