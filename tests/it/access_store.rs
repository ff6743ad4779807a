//! The access-control service's store: its contract, and what it promises when its process dies.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keyward::access::store::{Batch, Check, CommitError, Embedded, Key, OpenError, Page, Revision, Write};
use keyward::folder::FolderError;

fn key(name: &str) -> Key {
    Key::of(&["token", name])
}

fn put(name: &str, value: &str) -> Batch {
    Batch { checks: Vec::new(), writes: vec![Write::Put(key(name), value.into())] }
}

async fn value(store: &Embedded, name: &str) -> Option<String> {
    store.get(&key(name)).await.unwrap().map(|record| String::from_utf8(record.value).unwrap())
}

async fn names(store: &Embedded, prefix: &str, after: Option<Key>, limit: usize) -> (Vec<String>, bool) {
    let listing = store.list(prefix, Page { after, limit }).await.unwrap();
    (listing.entries.iter().map(|(key, _)| key.last().to_owned()).collect(), listing.more)
}

#[tokio::test]
async fn a_store_obeys_its_contract() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path(), "dc1").unwrap();

    // Records have the revisions that made and changed them.
    let first = store.commit(put("a", "1")).await.unwrap();
    let second = store.commit(put("a", "2")).await.unwrap();
    assert!(second > first);
    let record = store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((record.created, record.modified, &*record.value), (first, second, &b"2"[..]));
    assert_eq!(store.get(&key("b")).await.unwrap(), None);

    // A batch is written whole, or not at all.
    let conflict = |checks: Vec<Check>| Batch { checks, writes: vec![Write::Put(key("b"), b"x".into())] };
    for checks in [
        vec![Check::Absent(key("a"))],
        vec![Check::Unchanged(key("a"), first)],
        vec![Check::Absent(key("b")), Check::Unchanged(key("c"), second)],
    ] {
        let outcome = store.commit(conflict(checks)).await;
        assert!(matches!(outcome, Err(CommitError::Conflict(_))), "{outcome:?}");
        assert_eq!(value(&store, "b").await, None);
    }
    let third =
        store.commit(conflict(vec![Check::Absent(key("b")), Check::Unchanged(key("a"), second)])).await.unwrap();
    assert_eq!(value(&store, "b").await.as_deref(), Some("x"));

    // A batch of checks alone moves nothing.
    let only_checks = Batch { checks: vec![Check::Unchanged(key("b"), third)], writes: Vec::new() };
    assert_eq!(store.commit(only_checks).await.unwrap(), third);

    // Lists are in the order of the keys, in pages, and stay within their prefix.
    let batch = |names: &[&str]| Batch {
        checks: Vec::new(),
        writes: names.iter().map(|name| Write::Put(Key::from((*name).to_owned()), Vec::new())).collect(),
    };
    store.commit(batch(&["list/3", "list/1", "list/2", "listen/1", "lis/1"])).await.unwrap();
    assert_eq!(names(&store, "list/", None, 10).await, (vec!["1".into(), "2".into(), "3".into()], false));
    assert_eq!(names(&store, "list/", None, 2).await, (vec!["1".into(), "2".into()], true));
    assert_eq!(names(&store, "list/", Some(Key::of(&["list", "2"])), 2).await, (vec!["3".into()], false));
    assert_eq!(names(&store, "none/", None, 2).await, (vec![], false));

    // What was deleted is made anew.
    let deletion = Batch { checks: Vec::new(), writes: vec![Write::Delete(key("a")), Write::Delete(key("never"))] };
    let fourth = store.commit(deletion).await.unwrap();
    assert_eq!(value(&store, "a").await, None);
    assert_eq!(store.list("token/", Page { after: None, limit: 9 }).await.unwrap().revision, fourth);
    let again = store.commit(put("a", "3")).await.unwrap();
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().created, again);

    // What is too large is refused as a whole.
    for batch in [
        Batch { checks: Vec::new(), writes: vec![Write::Delete(key("a")); 129] },
        Batch { checks: vec![Check::Absent(key("z")); 129], writes: Vec::new() },
        Batch { checks: Vec::new(), writes: vec![Write::Put(key("a"), vec![0; 1024 * 1024])] },
    ] {
        assert!(matches!(store.commit(batch).await, Err(CommitError::TooLarge)));
    }
    assert_eq!(value(&store, "a").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_waiter_wakes_by_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(folder.path(), "dc1").unwrap());
    let now = store.commit(put("a", "1")).await.unwrap();
    assert_eq!(store.changed("token/", Revision(0)).await.unwrap(), now);

    let waits = |prefix: &'static str| {
        let store = Arc::clone(&store);
        async move { tokio::time::timeout(Duration::from_millis(300), store.changed(prefix, now)).await }
    };
    let other = Batch { checks: Vec::new(), writes: vec![Write::Put(Key::of(&["role", "a"]), Vec::new())] };
    let (kind, one, another, _) = tokio::join!(waits("token/"), waits("token/b"), waits("token/c"), async {
        store.commit(other).await.unwrap();
        store.commit(put("b", "1")).await.unwrap()
    });
    assert!(kind.is_ok() && one.is_ok(), "{kind:?} {one:?}");
    assert!(another.is_err(), "{another:?}");
    let (removal, _) = tokio::join!(store.changed("token/b", kind.unwrap().unwrap()), async {
        store.commit(Batch { checks: Vec::new(), writes: vec![Write::Delete(key("b"))] }).await.unwrap()
    });
    assert!(removal.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_with_the_same_check_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(folder.path(), "dc1").unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let batch = Batch { checks: vec![Check::Absent(key("one"))], ..put("one", &number.to_string()) };
            store.commit(batch).await.is_ok()
        });
    }
    let won = writers.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}

#[tokio::test]
async fn a_second_opener_another_datacenter_and_an_open_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Embedded::open(&path, "dc1").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(store.path())), (0o700, 0o600));
    let error = Embedded::open(&path, "dc1").unwrap_err();
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    store.commit(put("a", "1")).await.unwrap();
    drop(store);

    let error = Embedded::open(&path, "dc2").unwrap_err();
    assert!(error.to_string().ends_with("belongs to datacenter \"dc1\", and this server is of \"dc2\""), "{error}");
    for open in [0o702, 0o770] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
        assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::Folder(FolderError::Exposed { .. }))));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(value(&Embedded::open(&path, "dc1").unwrap(), "a").await.as_deref(), Some("1"));

    let file = path.join("access.redb");
    std::fs::write(&file, "something else").unwrap();
    assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::Damaged { .. })));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &file).unwrap();
    assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::File { .. })));
}

const WRITER: &str = "KEYWARD_TEST_STORE_WRITER";

/// Not a test of its own: the process that the next test kills. It tells each write on its output once acknowledged.
#[test]
fn writes_until_it_is_killed_when_started_as_a_writer() {
    #[expect(clippy::disallowed_methods, reason = "this process was started by a test with this variable")]
    let Ok(folder) = std::env::var(WRITER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(Path::new(&folder), "dc1").unwrap());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                for number in 0.. {
                    let name = format!("{writer}-{number}");
                    let twin = Write::Put(Key::of(&["twin", &name]), b"x".repeat(300));
                    let mut batch = put(&name, &name);
                    batch.writes.push(twin);
                    store.commit(batch).await.unwrap();
                    println!("written {name}");
                }
            });
        }
        writers.join_all().await;
    });
}

#[tokio::test]
async fn every_acknowledged_write_outlives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "access_store::writes_until_it_is_killed_when_started_as_a_writer"])
            .env(WRITER, folder.path().join(format!("{}", round % 2)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut of_this_round: Vec<String> = lines.by_ref().filter(|line| line.contains("written ")).take(60).collect();
        child.kill().unwrap();
        of_this_round.extend(lines.filter(|line| line.contains("written ")));
        child.wait().unwrap();
        assert!(of_this_round.len() >= 60, "the writer wrote too little");
        acknowledged.push((round % 2, of_this_round));
    }
    for half in 0..2 {
        let store = Embedded::open(&folder.path().join(half.to_string()), "dc1").unwrap();
        for line in acknowledged.iter().filter(|(of, _)| *of == half).flat_map(|(_, lines)| lines) {
            // A line that the kill cut off tells a number that may be of another write, which was acknowledged too.
            let name = line.rsplit("written ").next().unwrap();
            assert_eq!(value(&store, name).await.as_deref(), Some(name));
        }
        let (tokens, _) = names(&store, "token/", None, usize::MAX).await;
        let (twins, _) = names(&store, "twin/", None, usize::MAX).await;
        assert_eq!(tokens, twins, "a batch was written in part");
    }
}
