//! Concurrent changes of tokens, and servers with other key files, during a rekey.

use super::*;

#[tokio::test]
async fn concurrent_changes_and_deletions_win_over_a_rekey() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let quick = server(Arc::clone(&store), &file, &clock).await;
    let root = bootstrap(&quick).await;
    let changed = token(&quick, &root, "as it was").await;
    let deleted = token(&quick, &root, "to be deleted").await;
    let revoked = token(&quick, &root, "to be revoked").await;

    key_file(folder.path(), "seal.key", "ba");
    let faults = Arc::new(StoreFaults::with_delayed_read(&store, "token/"));
    let slow = server(faults.clone(), &file, &clock).await;
    let (came, ()) = tokio::join!(complete_rekey(&slow, &root, false), async {
        faults.is_reached().await;
        // The slow server has read the tokens and is paused before it writes.
        let twice = rekey(&slow, &root, false).await;
        assert_eq!(twice.status, 503, "{twice:?}");
        put(&quick, &root, &path_of(&changed), json!({"Description": "as it is"})).await;
        assert_eq!(quick.call("DELETE", &path_of(&deleted), Some(&root), None).await.text, "true");
        let headers = [("X-Vault-Token", &*secret_of(&revoked))];
        assert_eq!(quick.send("POST", "/v1/auth/token/revoke-self", &headers, b"").await.status, 204);
        let new = token(&quick, &root, "made meanwhile").await;
        check_token(&slow, &secret_of(&new)).await;
        faults.release();
    });
    assert_eq!(came["Rewritten"], 3, "{came}");
    assert_eq!(keys_in_use(&*store).await, [came["KeyID"].as_str().unwrap()]);
    for server in [&quick, &slow] {
        assert_eq!(check_token(server, &secret_of(&changed)).await["Description"], "as it is");
        check_token(server, &root).await;
        for missing in [&deleted, &revoked] {
            is_unknown(server, &secret_of(missing)).await;
        }
    }
}

#[tokio::test]
async fn tokens_deleted_during_a_rekey_leave_no_records() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let rekeyer = quiet_server(Arc::clone(&store), &file, &clock).await;
    let root = bootstrap(&rekeyer).await;
    put(&rekeyer, &root, "/v1/namespace", json!({"Name": "team"})).await;
    for _ in 0..30 {
        put(&rekeyer, &root, "/v1/acl/token?ns=team", json!({})).await;
    }
    assert_eq!(rekeyer.call("DELETE", "/v1/namespace/team", Some(&root), None).await.status, 200);

    let faults = Arc::new(StoreFaults::with_delayed_read(&store, "token/team/"));
    let _remover = server(faults.clone(), &file, &clock).await;
    faults.is_reached().await;
    // The remover has read the tokens under the old key.
    complete_rekey(&rekeyer, &root, true).await;
    faults.release();
    namespace_is_gone(&rekeyer, &root, "team").await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
    assert!(records(&*store).await.iter().all(|(key, _)| !key.contains("/team")));
}

#[tokio::test]
async fn a_token_that_moves_while_it_is_looked_up_is_found() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let rekeyer = server(Arc::clone(&store), &file, &clock).await;
    let root = bootstrap(&rekeyer).await;
    // The whole rekey happens after a read of the old entry, so the read misses.
    let reader = server(Arc::clone(&store), &file, &clock).await;
    complete_rekey(&rekeyer, &root, true).await;
    check_token(&reader, &root).await;

    // An unknown secret is looked up twice if the keys change in between, and is still not found.
    let faults = Arc::new(StoreFaults::with_delayed_read(&store, "seal/key"));
    faults.disarm();
    let slow = server(faults.clone(), &file, &clock).await;
    faults.arm();
    tokio::join!(is_unknown(&slow, "nobody's"), async {
        faults.is_reached().await;
        complete_rekey(&rekeyer, &root, true).await;
        faults.release();
    });
    check_token(&slow, &root).await;
}

#[tokio::test]
async fn a_server_without_the_new_key_reports_it_and_rejects_or_duplicates_no_token() {
    let (store, clock, folder) = store();
    let shared = |store| Arc::new(StoreFaults::shared(store));
    let (own, others) = (key_file(folder.path(), "own.key", "a"), key_file(folder.path(), "others.key", "a"));
    let one = server(shared(&store), &own, &clock).await;
    let other = server(shared(&store), &others, &clock).await;
    let root = bootstrap(&one).await;
    let made = secret_of(&token(&one, &root, "early").await);

    let refused = rekey(&one, &root, true).await;
    assert!(refused.status == 400 && refused.text.contains("Other servers"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), line('a'));

    key_file(folder.path(), "own.key", "ba");
    complete_rekey(&one, &root, false).await;
    let late = secret_of(&token(&one, &root, "late").await);
    for secret in [&root, &made, &late] {
        let refused = other.call("GET", "/v1/acl/token/self", Some(secret), None).await;
        assert!(refused.status == 503 && refused.text.contains("lacks a key"), "{refused:?}");
    }

    // The key is used as soon as it is in the file.
    key_file(folder.path(), "others.key", "ab");
    for secret in [&root, &made, &late] {
        check_token(&other, secret).await;
    }
    let taken = other.call("PUT", "/v1/acl/token", Some(&root), Some(json!({"SecretID": late}))).await;
    assert_eq!(taken.status, 409, "{taken:?}");
    // The key record decides the current key, not the order of lines.
    check_token(&one, &secret_of(&token(&other, &root, "new").await)).await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
}

#[tokio::test]
async fn a_server_unaware_of_a_rekey_creates_no_token_with_the_old_key() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "ab");
    let (rekeyer, unresponsive) =
        (server(Arc::clone(&store), &file, &clock).await, server(Arc::clone(&store), &file, &clock).await);
    let root = bootstrap(&rekeyer).await;
    let made = secret_of(&token(&rekeyer, &root, "early").await);
    key_file(folder.path(), "seal.key", "ba");
    complete_rekey(&rekeyer, &root, false).await;
    // Its keys were read before, and it has not accessed the store since.
    let taken = unresponsive.call("PUT", "/v1/acl/token", Some(&root), Some(json!({"SecretID": made}))).await;
    assert_eq!(taken.status, 409, "{taken:?}");
    token(&unresponsive, &root, "late").await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
}

#[tokio::test]
async fn two_servers_can_rekey_concurrently() {
    for same in [true, false] {
        let (store, clock, folder) = store();
        let (own, others) = (key_file(folder.path(), "own.key", "a"), key_file(folder.path(), "others.key", "a"));
        let one = server(Arc::clone(&store), &own, &clock).await;
        let other = server(Arc::clone(&store), &others, &clock).await;
        let root = bootstrap(&one).await;
        let makes = (0..120).map(async |number| secret_of(&token(&one, &root, &format!("token {number}")).await));
        let mut secrets = futures_util::future::join_all(makes).await;
        secrets.push(root.clone());
        key_file(folder.path(), "own.key", "bca");
        key_file(folder.path(), "others.key", if same { "bca" } else { "cba" });
        let (first, second) = tokio::join!(rekey(&one, &root, false), rekey(&other, &root, false));
        for outcome in [first, second] {
            match outcome.status {
                200 => assert!(outcome.json()["Done"] == true || !same, "{outcome:?}"),
                503 => assert!(!same, "{outcome:?}"),
                _ => panic!("{outcome:?}"),
            }
        }
        if !same {
            // They want different keys: the last one wins.
            complete_rekey(&one, &root, false).await;
        }
        assert_eq!(keys_in_use(&*store).await.len(), 1);
        for secret in &secrets {
            check_token(&one, secret).await;
            check_token(&other, secret).await;
        }
    }
}
