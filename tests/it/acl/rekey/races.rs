//! What others do to tokens, and servers with other key files, while the key is changed.

use std::time::SystemTime;

use keyward::acl::service::error::ServiceError;
use keyward::acl::service::namespaces::NamespaceDraft;
use keyward::acl::store::Embedded;
use tokio_util::sync::CancellationToken;

use super::*;

/// A store, its clock and its folder.
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
    let dials = Arc::new(Dials { held: "token/", ..Dials::new(&store) });
    let slow = server(dials.clone(), &file, &clock).await;
    let (came, ()) = tokio::join!(slow.rekey(&root, false, ALL), async {
        dials.is_reached().await;
        // The slow one has read the tokens; it is held up before it moves them.
        let twice = slow.rekey(&root, false, ALL).await;
        assert!(matches!(twice, Err(ServiceError::Unavailable(_))), "{twice:?}");
        let accessor = |made: &CreatedToken| made.live.token.value.immutable().accessor_id;
        let draft = TokenDraft { description: "as it is".to_owned(), ..TokenDraft::default() };
        quick.update_token(&root, &default_namespace(), accessor(&changed), &draft).await.unwrap();
        assert!(quick.delete_token(&root, &default_namespace(), accessor(&deleted)).await.unwrap());
        quick.destroy_token(&revoked.live.token.value).await.unwrap();
        let new = token(&quick, &root, "made meanwhile".to_owned()).await;
        caller(&slow, &new.secret).await;
        dials.open.notify_one();
    });
    let came = came.unwrap();
    assert!(came.done && came.rewritten == 3, "{came:?}");
    assert_eq!(keys_in_use(&*store).await, [came.key_id.as_str()]);
    for server in [&quick, &slow] {
        let now = caller(server, &changed.secret).await;
        assert_eq!(now.live.token.value.description, "as it is");
        caller(server, &secret).await;
        for gone in [&deleted, &revoked] {
            let found = server.authenticate(Some(&gone.secret), Freshness::Linearizable).await;
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
    mover.create_namespace(&root, "team", &NamespaceDraft::default()).await.unwrap();
    for _ in 0..30 {
        mover.create_token(&root, &team, &TokenDraft::default()).await.unwrap();
    }
    assert!(mover.delete_namespace(&root, &team).await.unwrap());

    let dials = Arc::new(Dials { held: "token/team/", ..Dials::new(&store) });
    let remover = server(dials.clone(), &file, &clock).await;
    tokio::select! {
        () = remover.remove_namespaces_until(CancellationToken::new()) => panic!("it ended by itself"),
        () = async {
            dials.is_reached().await;
            // The remover has read the tokens as they were under the old key.
            assert!(mover.rekey(&root, true, ALL).await.unwrap().done);
            dials.open.notify_one();
            while mover.namespace(&team, Freshness::Linearizable).await.unwrap().is_some() {
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
    // Once the whole change happens after a look at the old row; then the look is at what is gone.
    let dials = Arc::new(Dials { held: "seal/key", ..Dials::new(&store) });
    let looker = server(Arc::clone(&store), &file, &clock).await;
    assert!(mover.rekey(&root, true, ALL).await.unwrap().done);
    caller(&looker, &secret).await;

    // A stranger's secret is looked up twice where the keys change in between, and is not found all the same.
    dials.reached.store(true, Ordering::SeqCst);
    let slow = server(dials.clone(), &file, &clock).await;
    dials.reached.store(false, Ordering::SeqCst);
    let stranger = PlainSecret::random();
    let (found, ()) = tokio::join!(slow.authenticate(Some(&stranger), Freshness::Stale), async {
        dials.is_reached().await;
        assert!(mover.rekey(&root, true, ALL).await.unwrap().done);
        dials.open.notify_one();
    });
    assert!(matches!(found, Err(ServiceError::UnknownSecret)), "{found:?}");
    caller(&slow, &secret).await;
}

#[tokio::test]
async fn a_server_without_the_new_key_reports_it_and_rejects_or_duplicates_no_token() {
    let (store, clock, folder) = store();
    let shared = |store| Arc::new(Dials { shared: true, ..Dials::new(store) });
    let (own, others) = (key_file(folder.path(), "own.key", "a"), key_file(folder.path(), "others.key", "a"));
    let one = server(shared(&store), &own, &clock).await;
    let other = server(shared(&store), &others, &clock).await;
    let (secret, root) = first(&one).await;
    let made = token(&one, &root, "early".to_owned()).await;

    let refused = one.rekey(&root, true, ALL).await;
    assert!(matches!(&refused, Err(ServiceError::Invalid(text)) if text.contains("Other servers")), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), line('a'));

    key_file(folder.path(), "own.key", "ba");
    assert!(one.rekey(&root, false, ALL).await.unwrap().done);
    let late = token(&one, &root, "late".to_owned()).await;
    let not_now = |outcome: Result<(), ServiceError>| {
        assert!(
            matches!(&outcome, Err(ServiceError::Unavailable(text)) if text.contains("lacks a key")),
            "{outcome:?}"
        );
    };
    for secret in [&secret, &made.secret, &late.secret] {
        not_now(other.authenticate(Some(secret), Freshness::Linearizable).await.map(|_| ()));
    }
    let twice = TokenDraft { secret: Some(late.secret.clone()), ..TokenDraft::default() };
    not_now(other.create_token(&root, &default_namespace(), &twice).await.map(|_| ()));
    not_now(other.unseal_secret(&late.live.token.value).await.map(|_| ()));

    // The key is taken up as soon as it is there.
    key_file(folder.path(), "others.key", "ab");
    for secret in [&secret, &made.secret, &late.secret] {
        let found = caller(&other, secret).await;
        assert_eq!(other.unseal_secret(&found.live.token.value).await.unwrap().reveal(), secret.reveal());
    }
    let taken = other.create_token(&root, &default_namespace(), &twice).await;
    assert!(matches!(taken, Err(ServiceError::Conflict(_))), "{taken:?}");
    // The store says what is written with, not the order of the lines.
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
    assert!(mover.rekey(&root, false, ALL).await.unwrap().done);
    // Its ring was read before, and it has asked nobody since.
    let twice = TokenDraft { secret: Some(made.secret.clone()), ..TokenDraft::default() };
    let taken = deaf.create_token(&root, &default_namespace(), &twice).await;
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
        let (first, second) = tokio::join!(one.rekey(&root, false, ALL), other.rekey(&root, false, ALL));
        for outcome in [first, second] {
            match outcome {
                Ok(came) => assert!(came.done || !same, "{came:?}"),
                Err(ServiceError::Unavailable(text)) => assert!(!same, "{text}"),
                Err(error) => panic!("{error}"),
            }
        }
        if !same {
            // They want different keys: whoever comes last gets it.
            assert!(one.rekey(&root, false, ALL).await.unwrap().done);
        }
        assert_eq!(keys_in_use(&*store).await.len(), 1);
        for secret in &secrets {
            caller(&one, secret).await;
            caller(&other, secret).await;
        }
    }
}
