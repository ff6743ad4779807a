//! Kill -9: acknowledged batches survive, and no batch is partial.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use keyward_acl::store::{Batch, Check, Embedded, Key, Store as _, Write};

use super::all;
use super::drive::Rng;

const FOLDER: &str = "KEYWARD_TEST_STORE_FOLDER";
const ROUND: &str = "KEYWARD_TEST_STORE_ROUND";
const ROUNDS: usize = 20;
const WRITERS: usize = 64;
const KINDS: [&str; 4] = ["token", "secret", "expiry", "parent"];

/// Not a test: the process that the next test kills. It prints each batch once acknowledged.
#[test]
fn writes_until_it_is_killed_when_started_as_a_writer() {
    #[expect(clippy::disallowed_methods, reason = "this process was started by a test with these variables")]
    let (Ok(folder), Ok(round)) = (std::env::var(FOLDER), std::env::var(ROUND)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(Path::new(&folder), "dc1").unwrap());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, round) = (Arc::clone(&store), round.clone());
            writers.spawn(async move {
                for number in 0.. {
                    let name = format!("{round}-{writer}-{number}");
                    store.commit(batch(&name)).await.unwrap();
                    // One write per line, so that no line is partial.
                    std::io::stdout().write_all(format!("written {name}\n").as_bytes()).unwrap();
                }
            });
        }
        writers.join_all().await;
    });
}

fn batch(name: &str) -> Batch {
    let put = |kind| Write::Put(Key::new(&[kind, name]), format!("{name} {}", "x".repeat(200)).into_bytes());
    Batch { checks: vec![Check::Absent(Key::new(&["token", name]))], writes: KINDS.map(put).to_vec() }
}

#[tokio::test]
async fn acknowledged_batches_survive_kill_9_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut rng) = (BTreeSet::new(), Rng(1));
    for round in 0..ROUNDS {
        acknowledged.extend(written_by_a_killed_process(folder.path(), round, 50 + rng.below(100)));
    }
    let store = Embedded::open(folder.path(), "dc1").unwrap();
    let mut found = BTreeMap::new();
    for kind in KINDS {
        for (key, value) in all(&store, &format!("{kind}/")).await {
            assert_eq!(value.split(' ').next(), Some(key.last_segment()), "a record is not what was written");
            *found.entry(key.last_segment().to_owned()).or_insert(0) += 1;
        }
    }
    assert!(found.values().all(|kinds| *kinds == KINDS.len()), "a batch is there in part");
    let lost: Vec<_> = acknowledged.iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(lost.is_empty(), "{lost:?} were acknowledged and are gone");
}

/// Names of acknowledged batches; the process is killed after `enough` of them.
fn written_by_a_killed_process(folder: &Path, round: usize, enough: usize) -> Vec<String> {
    let (_binary, module) = module_path!().split_once("::").unwrap();
    let writer = format!("{module}::writes_until_it_is_killed_when_started_as_a_writer");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &writer])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut names = lines.filter_map(|line| Some(line.split_once("written ")?.1.to_owned()));
    let mut found: Vec<String> = names.by_ref().take(enough).collect();
    child.kill().unwrap();
    found.extend(names);
    child.wait().unwrap();
    assert!(found.len() >= enough, "the writer of round {round} wrote too little");
    found
}
