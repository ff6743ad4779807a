//! A rekey that is interrupted at any point and continued.

use std::time::Duration;

use super::*;

const TOKENS: usize = 60;

#[tokio::test]
async fn an_interrupted_rekey_loses_nothing_and_is_continued() {
    // The new key record, three batches of tokens, the final key record.
    for stops in 0..=5 {
        let (store, clock, folder) = store();
        let file = key_file(folder.path(), "seal.key", "a");
        let faults = Arc::new(StoreFaults::new(&store));
        let before = server(faults.clone(), &file, &clock).await;
        let root = bootstrap(&before).await;
        let makes = (0..TOKENS).map(async |number| secret_of(&token(&before, &root, &format!("token {number}")).await));
        let mut secrets = futures_util::future::join_all(makes).await;
        secrets.push(root.clone());
        let old = keys_in_use(&*store).await;
        assert_eq!(old.len(), 1);

        key_file(folder.path(), "seal.key", "ba");
        faults.batches.store(stops, Ordering::SeqCst);
        let outcome = rekey(&before, &root, false).await;
        let expected = match stops {
            0 => 500,
            5 => 200,
            _ => 503,
        };
        assert_eq!(outcome.status, expected, "{outcome:?}");
        before.stop().await;
        let half = keys_in_use(&*store).await;
        assert_eq!(half.len(), if (1..5).contains(&stops) { 2 } else { 1 }, "{half:?}");

        // In any order of lines, the keys that the store names must be present, and suffice.
        for (digits, opens) in [("ab", true), ("ba", true), ("cba", true), ("a", stops == 0), ("b", stops == 5)] {
            let file = key_file(folder.path(), "other.key", digits);
            if !opens {
                let refused = open_error(Arc::clone(&store), &file).await;
                let (_, expected) = refused.rsplit_once("but the store requires ").unwrap();
                assert!(half.iter().any(|id| id == expected), "{digits}: {refused}");
                continue;
            }
            let server = server(Arc::clone(&store), &file, &clock).await;
            for secret in &secrets {
                check_token(&server, secret).await;
            }
            assert_eq!(keys_in_use(&*store).await, half, "to open a store changes nothing");
        }

        let after = server(Arc::clone(&store), &file, &clock).await;
        let again = complete_rekey(&after, &root, false).await;
        let key_id = again["KeyID"].as_str().unwrap();
        assert_eq!(keys_in_use(&*store).await, [key_id]);
        assert!(!old.iter().any(|id| id == key_id));
        assert_eq!(complete_rekey(&after, &root, false).await["Rewritten"], 0);
        key_file(folder.path(), "seal.key", "b");
        let alone = server(Arc::clone(&store), &file, &clock).await;
        for secret in &secrets {
            check_token(&alone, secret).await;
        }
    }
}

#[tokio::test]
async fn expired_tokens_and_those_of_deleted_namespaces_are_rekeyed_and_then_deleted() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let service = quiet_server(Arc::clone(&store), &file, &clock).await;
    let root = bootstrap(&service).await;
    put(&service, &root, "/v1/namespace", json!({"Name": "team"})).await;
    for _ in 0..40 {
        put(&service, &root, "/v1/acl/token?ns=team", json!({})).await;
        put(&service, &root, "/v1/acl/token", json!({"ExpirationTTL": "1m"})).await;
    }
    assert_eq!(service.call("DELETE", "/v1/namespace/team", Some(&root), None).await.status, 200);
    clock.suspend(Duration::from_secs(61));

    let came = complete_rekey(&service, &root, true).await;
    assert_eq!(came["Rewritten"], 82, "{came}");
    // Without the old line, everything can still be deleted.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.lines().next().unwrap()).unwrap();
    let service = server(Arc::clone(&store), &file, &clock).await;
    namespace_is_gone(&service, &root, "team").await;
    // The bootstrap and the anonymous token, each with two index entries.
    for _ in 0..500 {
        if records(&*store).await.iter().filter(|(key, _)| key.starts_with("token")).count() == 6 {
            assert_eq!(keys_in_use(&*store).await.len(), 1);
            return;
        }
        clock.suspend(Duration::from_secs(61));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?}", records(&*store).await);
}

#[tokio::test]
async fn unreadable_tokens_keep_the_old_key_and_are_reported() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let service = server(Arc::clone(&store), &file, &clock).await;
    let root = bootstrap(&service).await;
    let token = put(&service, &root, "/v1/acl/token", json!({"ExpirationTTL": "1h"})).await;
    let broken = Key::from(format!("token/default/{}", token["AccessorID"].as_str().unwrap()));
    let damage = Write::Put(broken.clone(), b"nonsense".to_vec());
    store.commit(Batch { checks: vec![], writes: vec![damage] }).await.unwrap();
    for rewritten in [2, 0] {
        let came = rekey(&service, &root, rewritten == 2).await.json();
        assert_eq!((&came["Done"], &came["Rewritten"]), (&json!(false), &json!(rewritten)), "{came}");
        assert_eq!(came["Unreadable"], json!([broken.as_str()]));
    }
    let deleted = service.call("DELETE", &path_of(&token), Some(&root), None).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (200, "true"), "{deleted:?}");
    complete_rekey(&service, &root, false).await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
    assert!(records(&*store).await.iter().all(|(key, _)| !key.starts_with("token-end/")));
    // The deleted secret does not belong to a new token with the same accessor.
    put(&service, &root, "/v1/acl/token", json!({"AccessorID": token["AccessorID"]})).await;
    is_unknown(&service, &secret_of(&token)).await;
}

#[tokio::test]
async fn a_rekey_on_a_full_disk_asks_for_a_repetition_which_generates_no_other_key() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let faults = Arc::new(StoreFaults::with_full_disk(&store));
    let service = server(faults.clone(), &file, &clock).await;
    let root = bootstrap(&service).await;
    let lines = || std::fs::read_to_string(&file).unwrap().lines().count();
    // No batch, and then the key record only.
    for batches in [0, 0, 1] {
        faults.batches.store(batches, Ordering::SeqCst);
        let failed = rekey(&service, &root, true).await;
        let expected = (503, "the rekey failed before its end: repeat it without Generate");
        assert_eq!((failed.status, failed.text.as_str(), lines()), (expected.0, expected.1, 2));
    }
    faults.batches.store(usize::MAX, Ordering::SeqCst);
    complete_rekey(&service, &root, true).await;
    assert_eq!((lines(), keys_in_use(&*store).await.len()), (2, 1));
    complete_rekey(&service, &root, true).await;
    assert_eq!((lines(), keys_in_use(&*store).await.len()), (3, 1), "after a success a key is generated");
}
