//! A rekey that is interrupted at any point and continued.

use std::time::{Duration, SystemTime};

use keyward::acl::service::namespaces::NamespaceDraft;
use keyward::acl::service::seal::SealKeyError;
use keyward::acl::store::Embedded;
use tokio_util::sync::CancellationToken;

use super::*;

const TOKENS: usize = 60;

#[tokio::test]
async fn an_interrupted_rekey_loses_nothing_and_is_continued() {
    // The new key record, three batches of tokens, the final key record.
    for stops in 0..=5 {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
        let clock = TestClock::starting_at(SystemTime::now());
        let file = key_file(folder.path(), "seal.key", "a");
        let faults = Arc::new(StoreFaults::new(&store));
        let before = server(faults.clone(), &file, &clock).await;
        let (secret, root) = first(&before).await;
        let mut secrets = vec![secret.clone()];
        for number in 0..TOKENS {
            secrets.push(token(&before, &root, format!("token {number}")).await.secret);
        }
        let old = keys_in_use(&*store).await;
        assert_eq!(old.len(), 1);

        key_file(folder.path(), "seal.key", "ba");
        faults.batches.store(stops, Ordering::SeqCst);
        let outcome = before.key_rotation().run(&root, false, ALL).await;
        assert_eq!(outcome.is_ok(), stops == 5, "{outcome:?}");
        drop(before);
        let half = keys_in_use(&*store).await;
        assert_eq!(half.len(), if (1..5).contains(&stops) { 2 } else { 1 }, "{half:?}");

        // In any order of lines, the keys that the store names must be present, and suffice.
        for (digits, opens) in [("ab", true), ("ba", true), ("cba", true), ("a", stops == 0), ("b", stops == 5)] {
            let file = key_file(folder.path(), "other.key", digits);
            match Sealer::open(&file, &*store).await {
                Ok(_) => assert!(opens, "{digits}"),
                Err(SealKeyError::Mismatch { wanted, .. }) => {
                    assert!(!opens && half.contains(&wanted), "{digits}: {wanted}");
                }
                Err(error) => panic!("{error}"),
            }
            if opens {
                let server = server(Arc::clone(&store), &file, &clock).await;
                for secret in &secrets {
                    caller(&server, secret).await;
                }
                assert_eq!(keys_in_use(&*store).await, half, "to open a store changes nothing");
            }
        }

        let after = server(Arc::clone(&store), &file, &clock).await;
        let root = caller(&after, &secret).await;
        let again = after.key_rotation().run(&root, false, ALL).await.unwrap();
        assert!(again.done && again.changed == (stops < 5), "{again:?}");
        assert_eq!(keys_in_use(&*store).await, [again.key_id.as_str()]);
        assert!(!old.contains(&again.key_id));
        let nothing = after.key_rotation().run(&root, false, ALL).await.unwrap();
        assert!(nothing.done && !nothing.changed && nothing.rewritten == 0, "{nothing:?}");
        key_file(folder.path(), "seal.key", "b");
        let alone = server(Arc::clone(&store), &file, &clock).await;
        for secret in &secrets {
            let made = caller(&alone, secret).await;
            assert_eq!(alone.tokens().unseal_secret(&made.live.token.value).await.unwrap().reveal(), secret.reveal());
        }
    }
}

#[tokio::test]
async fn many_tokens_take_several_rekey_calls_and_each_is_rewritten_once() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let clock = TestClock::starting_at(SystemTime::now());
    let file = key_file(folder.path(), "seal.key", "a");
    let service = server(Arc::clone(&store), &file, &clock).await;
    let (_, root) = first(&service).await;
    let makes = (0..600).map(|number| token(&service, &root, format!("token {number}")));
    futures_util::future::join_all(makes).await;
    let (mut calls, mut rewritten, mut generate) = (0, 0, true);
    loop {
        let came = service.key_rotation().run(&root, generate, 1).await.unwrap();
        (calls, rewritten, generate) = (calls + 1, rewritten + came.rewritten, false);
        if came.done {
            break;
        }
        token(&service, &root, "made meanwhile".to_owned()).await;
    }
    // Includes the bootstrap and the anonymous token.
    assert_eq!((calls, rewritten), (3, 602));
    assert_eq!(keys_in_use(&*store).await.len(), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn expired_tokens_and_those_of_deleted_namespaces_are_rekeyed_and_then_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let clock = TestClock::starting_at(SystemTime::now());
    let file = key_file(folder.path(), "seal.key", "a");
    let service = server(Arc::clone(&store), &file, &clock).await;
    let (_, root) = first(&service).await;
    let team: NamespaceName = "team".parse().unwrap();
    service.namespaces().create(&root, "team", &NamespaceDraft::default()).await.unwrap();
    for _ in 0..40 {
        service.tokens().create(&root, &team, &TokenDraft::default()).await.unwrap();
    }
    let minute = keyward::acl::model::go_duration::GoDuration(60_000_000_000);
    for _ in 0..40 {
        let draft = TokenDraft { expiration_ttl: minute, ..TokenDraft::default() };
        service.tokens().create(&root, &default_namespace(), &draft).await.unwrap();
    }
    assert!(service.namespaces().delete(&root, &team).await.unwrap());
    clock.suspend(Duration::from_secs(61));

    let came = service.key_rotation().run(&root, true, ALL).await.unwrap();
    assert!(came.done && came.rewritten == 82, "{came:?}");
    // Without the old line, everything can still be deleted.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.lines().next().unwrap()).unwrap();
    let service = server(Arc::clone(&store), &file, &clock).await;
    assert_eq!(service.token_sweeper().sweep().await.unwrap(), 40);
    let stop = CancellationToken::new();
    tokio::select! {
        () = service.namespaces().run_removals(stop.clone()) => panic!("it ended by itself"),
        () = async {
            while service.namespaces().get(&team, Freshness::Linearizable).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_eq!(keys_in_use(&*store).await.len(), 1);
    let left = records(&*store).await;
    assert_eq!(left.iter().filter(|(key, _)| key.starts_with("token")).count(), 6, "{left:?}");
}

#[tokio::test]
async fn unreadable_tokens_keep_the_old_key_and_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let clock = TestClock::starting_at(SystemTime::now());
    let file = key_file(folder.path(), "seal.key", "a");
    let service = server(Arc::clone(&store), &file, &clock).await;
    let (_, root) = first(&service).await;
    let broken = Key::from("token/default/11111111-1111-1111-1111-111111111111".to_owned());
    let put = keyward::acl::store::Write::Put(broken.clone(), b"nonsense".to_vec());
    store.commit(Batch { checks: vec![], writes: vec![put] }).await.unwrap();
    for rewritten in [2, 0] {
        let came = service.key_rotation().run(&root, rewritten == 2, ALL).await.unwrap();
        assert!(!came.done && came.rewritten == rewritten, "{came:?}");
        assert_eq!(came.unreadable, [broken.as_str()]);
    }
    let delete = keyward::acl::store::Write::Delete(broken);
    store.commit(Batch { checks: vec![], writes: vec![delete] }).await.unwrap();
    assert!(service.key_rotation().run(&root, false, ALL).await.unwrap().done);
    assert_eq!(keys_in_use(&*store).await.len(), 1);
}
