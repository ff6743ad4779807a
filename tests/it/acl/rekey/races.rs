//! Concurrent changes of tokens, and servers with other key files, during a rekey.

use std::time::SystemTime;

use keyward::acl::service::error::ServiceError;
use keyward::acl::service::namespaces::NamespaceDraft;
use keyward::acl::store::Embedded;
use tokio_util::sync::CancellationToken;

use super::*;

/// Creates a store with its clock and directory.
fn store() -> (Arc<dyn Store>, TestClock, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("store"), "dc1").unwrap();
    (Arc::new(store), TestClock::starting_at(SystemTime::now()), folder)
}

#[tokio::test]
async fn concurrent_changes_and_deletions_win_over_a_rekey() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let quick = server(Arc::clone(&store), &file, &clock).await;
    let (secret, root) = first(&quick).await;
    let changed = token(&quick, &root, "as it was".to_owned()).await;
    let deleted = token(&quick, &root, "to be deleted".to_owned()).await;
    let revoked = token(&quick, &root, "to be revoked".to_owned()).await;

    key_file(folder.path(), "seal.key", "ba");
    let faults = Arc::new(StoreFaults { held: "token/", ..StoreFaults::new(&store) });
    let slow = server(faults.clone(), &file, &clock).await;
    let (came, ()) = tokio::join!(slow.key_rotation().run(&root, false, ALL), async {
        faults.is_reached().await;
        // The slow server has read the tokens and is paused before it writes.
        let twice = slow.key_rotation().run(&root, false, ALL).await;
        assert!(matches!(twice, Err(ServiceError::Unavailable(_))), "{twice:?}");
        let accessor = |made: &CreatedToken| made.live.token.value.immutable().accessor_id;
        let draft = TokenDraft { description: "as it is".to_owned(), ..TokenDraft::default() };
        quick.tokens().update(&root, &default_namespace(), accessor(&changed), &draft).await.unwrap();
        assert!(quick.tokens().delete(&root, &default_namespace(), accessor(&deleted)).await.unwrap());
        quick.token_records().destroy(&revoked.live.token.value).await.unwrap();
        let new = token(&quick, &root, "made meanwhile".to_owned()).await;
        caller(&slow, &new.secret).await;
        faults.open.notify_one();
    });
    let came = came.unwrap();
    assert!(came.done && came.rewritten == 3, "{came:?}");
    assert_eq!(keys_in_use(&*store).await, [came.key_id.as_str()]);
    for server in [&quick, &slow] {
        let now = caller(server, &changed.secret).await;
        assert_eq!(now.live.token.value.description, "as it is");
        caller(server, &secret).await;
        for gone in [&deleted, &revoked] {
            let found = server.authenticator().authenticate(Some(&gone.secret), Freshness::Linearizable).await;
            assert!(matches!(found, Err(ServiceError::UnknownSecret)), "{found:?}");
        }
    }
}

#[tokio::test]
async fn tokens_deleted_during_a_rekey_leave_no_records() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let mover = server(Arc::clone(&store), &file, &clock).await;
    let (_, root) = first(&mover).await;
    let team: NamespaceName = "team".parse().unwrap();
    mover.namespaces().create(&root, "team", &NamespaceDraft::default()).await.unwrap();
    for _ in 0..30 {
        mover.tokens().create(&root, &team, &TokenDraft::default()).await.unwrap();
    }
    assert!(mover.namespaces().delete(&root, &team).await.unwrap());

    let faults = Arc::new(StoreFaults { held: "token/team/", ..StoreFaults::new(&store) });
    let remover = server(faults.clone(), &file, &clock).await;
    tokio::select! {
        () = remover.namespaces().run_removals(CancellationToken::new()) => panic!("it ended by itself"),
        () = async {
            faults.is_reached().await;
            // The remover has read the tokens under the old key.
            assert!(mover.key_rotation().run(&root, true, ALL).await.unwrap().done);
            faults.open.notify_one();
            while mover.namespaces().get(&team, Freshness::Linearizable).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_eq!(keys_in_use(&*store).await.len(), 1);
    assert!(records(&*store).await.iter().all(|(key, _)| !key.contains("/team")));
}

#[tokio::test]
async fn a_token_that_moves_while_it_is_looked_up_is_found() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "a");
    let mover = server(Arc::clone(&store), &file, &clock).await;
    let (secret, root) = first(&mover).await;
    // The whole rekey happens after a read of the old entry, so the read misses.
    let faults = Arc::new(StoreFaults { held: "seal/key", ..StoreFaults::new(&store) });
    let looker = server(Arc::clone(&store), &file, &clock).await;
    assert!(mover.key_rotation().run(&root, true, ALL).await.unwrap().done);
    caller(&looker, &secret).await;

    // An unknown secret is looked up twice if the keys change in between, and is still not found.
    faults.reached.store(true, Ordering::SeqCst);
    let slow = server(faults.clone(), &file, &clock).await;
    faults.reached.store(false, Ordering::SeqCst);
    let stranger = PlainSecret::random();
    let (found, ()) = tokio::join!(slow.authenticator().authenticate(Some(&stranger), Freshness::Stale), async {
        faults.is_reached().await;
        assert!(mover.key_rotation().run(&root, true, ALL).await.unwrap().done);
        faults.open.notify_one();
    });
    assert!(matches!(found, Err(ServiceError::UnknownSecret)), "{found:?}");
    caller(&slow, &secret).await;
}

#[tokio::test]
async fn a_server_without_the_new_key_reports_it_and_rejects_or_duplicates_no_token() {
    let (store, clock, folder) = store();
    let shared = |store| Arc::new(StoreFaults { shared: true, ..StoreFaults::new(store) });
    let (own, others) = (key_file(folder.path(), "own.key", "a"), key_file(folder.path(), "others.key", "a"));
    let one = server(shared(&store), &own, &clock).await;
    let other = server(shared(&store), &others, &clock).await;
    let (secret, root) = first(&one).await;
    let made = token(&one, &root, "early".to_owned()).await;

    let refused = one.key_rotation().run(&root, true, ALL).await;
    assert!(matches!(&refused, Err(ServiceError::Invalid(text)) if text.contains("Other servers")), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), line('a'));

    key_file(folder.path(), "own.key", "ba");
    assert!(one.key_rotation().run(&root, false, ALL).await.unwrap().done);
    let late = token(&one, &root, "late".to_owned()).await;
    let not_now = |outcome: Result<(), ServiceError>| {
        assert!(
            matches!(&outcome, Err(ServiceError::Unavailable(text)) if text.contains("lacks a key")),
            "{outcome:?}"
        );
    };
    for secret in [&secret, &made.secret, &late.secret] {
        not_now(other.authenticator().authenticate(Some(secret), Freshness::Linearizable).await.map(|_| ()));
    }
    let twice = TokenDraft { secret: Some(late.secret.clone()), ..TokenDraft::default() };
    not_now(other.tokens().create(&root, &default_namespace(), &twice).await.map(|_| ()));
    not_now(other.tokens().unseal_secret(&late.live.token.value).await.map(|_| ()));

    // The key is used as soon as it is in the file.
    key_file(folder.path(), "others.key", "ab");
    for secret in [&secret, &made.secret, &late.secret] {
        let found = caller(&other, secret).await;
        assert_eq!(other.tokens().unseal_secret(&found.live.token.value).await.unwrap().reveal(), secret.reveal());
    }
    let taken = other.tokens().create(&root, &default_namespace(), &twice).await;
    assert!(matches!(taken, Err(ServiceError::Conflict(_))), "{taken:?}");
    // The key record decides the current key, not the order of lines.
    caller(&one, &token(&other, &root, "new".to_owned()).await.secret).await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
}

#[tokio::test]
async fn a_server_unaware_of_a_rekey_creates_no_token_with_the_old_key() {
    let (store, clock, folder) = store();
    let file = key_file(folder.path(), "seal.key", "ab");
    let (mover, deaf) =
        (server(Arc::clone(&store), &file, &clock).await, server(Arc::clone(&store), &file, &clock).await);
    let (_, root) = first(&mover).await;
    let made = token(&mover, &root, "early".to_owned()).await;
    key_file(folder.path(), "seal.key", "ba");
    assert!(mover.key_rotation().run(&root, false, ALL).await.unwrap().done);
    // Its keys were read before, and it has not accessed the store since.
    let twice = TokenDraft { secret: Some(made.secret.clone()), ..TokenDraft::default() };
    let taken = deaf.tokens().create(&root, &default_namespace(), &twice).await;
    assert!(matches!(taken, Err(ServiceError::Conflict(_))), "{taken:?}");
    token(&deaf, &root, "late".to_owned()).await;
    assert_eq!(keys_in_use(&*store).await.len(), 1);
}

#[tokio::test]
async fn two_servers_can_rekey_concurrently() {
    for same in [true, false] {
        let (store, clock, folder) = store();
        let (own, others) = (key_file(folder.path(), "own.key", "a"), key_file(folder.path(), "others.key", "a"));
        let one = server(Arc::clone(&store), &own, &clock).await;
        let other = server(Arc::clone(&store), &others, &clock).await;
        let (secret, root) = first(&one).await;
        let mut secrets = vec![secret];
        for number in 0..120 {
            secrets.push(token(&one, &root, format!("token {number}")).await.secret);
        }
        key_file(folder.path(), "own.key", "bca");
        key_file(folder.path(), "others.key", if same { "bca" } else { "cba" });
        let (first, second) =
            tokio::join!(one.key_rotation().run(&root, false, ALL), other.key_rotation().run(&root, false, ALL));
        for outcome in [first, second] {
            match outcome {
                Ok(came) => assert!(came.done || !same, "{came:?}"),
                Err(ServiceError::Unavailable(text)) => assert!(!same, "{text}"),
                Err(error) => panic!("{error}"),
            }
        }
        if !same {
            // They want different keys: the last one wins.
            assert!(one.key_rotation().run(&root, false, ALL).await.unwrap().done);
        }
        assert_eq!(keys_in_use(&*store).await.len(), 1);
        for secret in &secrets {
            caller(&one, secret).await;
            caller(&other, secret).await;
        }
    }
}
