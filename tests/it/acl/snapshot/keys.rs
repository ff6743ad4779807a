//! Snapshots from before a rekey.

use serde_json::json;

use super::{can_decrypt, make_some_of_each, read, visible_state, with_key_in};

#[tokio::test]
async fn a_snapshot_with_an_older_key_is_restored_if_the_key_file_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seal.key");
    let acl = with_key_in(folder.path()).await;
    let old_line = std::fs::read_to_string(&file).unwrap();
    let secrets = make_some_of_each(&acl).await;
    let (old, before) = (acl.snapshot().await, visible_state(&acl, &acl.root).await);
    let rekey = async || {
        let moved = acl.make("/v1/operator/rekey", json!({"Generate": true})).await;
        assert_eq!(moved["Done"], json!(true), "{moved}");
    };
    rekey().await;
    let new = acl.snapshot().await;
    assert_ne!(read(&new).0.key_ids, read(&old).0.key_ids);

    // Both keys are in the file: secrets of the old key decrypt, and are rekeyed again.
    assert_eq!(acl.restore(&acl.root, &old).await.status, 200);
    let all_open = async || {
        assert_eq!(visible_state(&acl, &acl.root).await, before);
        for secret in &secrets {
            assert!(can_decrypt(&acl, secret).await);
        }
    };
    all_open().await;
    assert!(read(&acl.snapshot().await).1 == read(&old).1);
    acl.make("/v1/acl/token", json!({})).await;
    rekey().await;
    assert_eq!(acl.restore(&acl.root, &new).await.status, 200);
    all_open().await;

    // Without the old key the old snapshot is rejected, until the key is in the file again.
    let all = std::fs::read_to_string(&file).unwrap();
    let without = all.replace(&old_line, "");
    assert_eq!(without.lines().count() + 1, all.lines().count());
    std::fs::write(&file, &without).unwrap();
    let acl = acl.restarted().await;
    let refused = acl.restore(&acl.root, &old).await;
    assert!(refused.status == 400 && refused.text.contains("which is not in this server's key file"), "{refused:?}");
    assert!(read(&acl.snapshot().await).1 == read(&new).1, "nothing was changed");
    std::fs::write(&file, without + &old_line).unwrap();
    assert_eq!(acl.restore(&acl.root, &old).await.status, 200);
    assert_eq!(visible_state(&acl, &acl.root).await, before);
    let acl = acl.restarted().await;
    assert_eq!(visible_state(&acl, &acl.root).await, before);
}
