use std::time::SystemTime;

use keyward_machine::clock::TestClock;

use super::*;

#[tokio::test]
async fn changes_by_other_processes_notify_watchers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let other = folder.path().join("other");
    let watch = OutputWatch::default();
    let stop = CancellationToken::new();
    std::fs::write(&path, "1").unwrap();
    let mut file = watch.file(&path);
    file.renew().await;
    file.renew().await;
    let mut running = tokio::task::JoinSet::new();
    running.spawn(watch.clone().run(stop.clone()));
    let expect_change = async |file: &WatchedOutput| {
        let within = Duration::from_secs(20);
        tokio::time::timeout(within, file.changed()).await.expect("it is changed");
        assert!(file.is_changed().await);
    };
    std::fs::write(&path, "12").unwrap();
    expect_change(&file).await;
    file.renew().await;
    std::fs::write(&other, "1").unwrap();
    // A change of the content is several events, of which some may come late.
    while tokio::time::timeout(Duration::from_millis(300), file.changed()).await.is_ok() {}
    assert!(!file.is_changed().await, "another file was written");
    std::fs::rename(&other, &path).unwrap();
    expect_change(&file).await;
    std::fs::remove_file(&path).unwrap();
    expect_change(&file).await;
    std::fs::remove_dir(folder.path()).unwrap();
    expect_change(&file).await;
    std::fs::create_dir(folder.path()).unwrap();
    std::fs::write(&path, "2").unwrap();
    file.renew().await;
    assert!(!file.is_changed().await);
    std::fs::remove_file(&path).unwrap();
    expect_change(&file).await;
    drop(file);
    assert!(watch.0.folders.lock().is_empty(), "a watcher without outputs");
    stop.cancel();
    running.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_always_changed_is_restored_with_backoff() {
    let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
    let mut backoff = RestoreBackoff::default();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let now = clock.now();
        let at = backoff.check_at(&clock);
        waits.push(now.until(at).as_secs());
        clock.sleep_until(at).await;
        backoff.record_restored(&clock);
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    clock.sleep(RESET_AFTER).await;
    assert_eq!(clock.now().until(backoff.check_at(&clock)), Duration::ZERO);
}
