//! The embedded store alone: durable commits of a token's rows, reads by key, and a store of a million records with its
//! verification.
//! `store [FOLDER] [TOKENS]`: a folder on the disk to measure (default `target`), and tokens of four records (250,000).
//!
//! The same run measures redb alone on the same disk, with groups of the same size.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    missing_docs
)]

mod counted;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyward_acl::store::{Batch, Check, Embedded, Freshness, Key, Page, Store as _, Write};
use redb::{Database, TableDefinition};
use tokio::task::JoinSet;

use counted::SyncCounter;

/// Tasks that commit at the same time.
const WRITERS: usize = 64;
const SECONDS: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["fill", folder, tokens] => fill_store(Path::new(folder), tokens.parse().unwrap()),
        ["open", folder, tokens] => measure_open(Path::new(folder), tokens.parse().unwrap()),
        ["verify", folder, _] => measure_verification(Path::new(folder)),
        _ => {
            let folder = PathBuf::from(words.first().unwrap_or(&"target"));
            let folder = tempfile::tempdir_in(folder).unwrap();
            measure_commits(folder.path());
            measure_large_store(folder.path(), words.get(1).unwrap_or(&"250000"));
        }
    }
}

/// Returns the rows that the creation of a token writes, and its preconditions.
fn token_batch(number: u64) -> Batch {
    // Ids are random in a real store, so that rows are spread over all pages.
    let [accessor_bits, secret_bits] =
        [1, 2].map(|part| u128::from(mix(number * 2 + part)) << 64 | u128::from(mix(number)));
    let accessor = format!("{accessor_bits:032x}");
    let row = |key: Key, length: usize| Write::Put(key, vec![b'x'; length]);
    let key = Key::new(&["token", "default", &accessor]);
    Batch {
        checks: vec![Check::Absent(key.clone())],
        writes: vec![
            row(key, 360),
            row(Key::new(&["token-id", &format!("{secret_bits:064x}")]), 60),
            row(Key::new(&["token-id", &format!("{accessor_bits:064x}")]), 60),
            row(Key::new(&["token-end", &format!("{:020}", number / 100), &accessor]), 0),
        ],
    }
}

/// Mixes the bits of a number, as splitmix64 does: the same number gives the same id.
fn mix(number: u64) -> u64 {
    let first = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Measures commits of the store and of redb alone, in alternating rounds.
fn measure_commits(folder: &Path) {
    let (mut rates, mut groups, mut ratios, mut quick_repair_ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (tokens, syncs) = measure_store_commits(&folder.join(format!("store{round}")));
        let group_size = (tokens / syncs).round();
        let plain = measure_redb_commits(&folder.join(format!("redb{round}")), group_size as u64, false);
        let quick_repair = measure_redb_commits(&folder.join(format!("quick{round}")), group_size as u64, true);
        rates.push(tokens);
        groups.push(group_size);
        ratios.push(tokens / plain);
        quick_repair_ratios.push(quick_repair / plain);
    }
    println!(
        "commits of a token's 4 rows from {WRITERS} tasks, median of {ROUNDS} rounds: {:.0} per second in groups of {:.0}; \
         ratio to redb alone with groups of that size {:.2}; ratio of redb with quick_repair to redb without {:.2}",
        median(rates),
        median(groups),
        median(ratios),
        median(quick_repair_ratios)
    );
}

/// Returns tokens per second and syncs per second of the store.
fn measure_store_commits(path: &Path) -> (f64, f64) {
    let (backend, syncs) = SyncCounter::create(path);
    let store = Arc::new(Embedded::open_backend(backend, path, "dc1").unwrap());
    let (next, before) = (Arc::new(AtomicU64::new(0)), syncs.load(Ordering::Relaxed));
    let start = Instant::now();
    runtime().block_on(async {
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            writers.spawn(async move {
                while start.elapsed() < SECONDS {
                    store.commit(token_batch(next.fetch_add(1, Ordering::Relaxed))).await.unwrap();
                }
            });
        }
        writers.join_all().await;
    });
    let seconds = start.elapsed().as_secs_f64();
    let syncs = syncs.load(Ordering::Relaxed) - before;
    (next.load(Ordering::Relaxed) as f64 / seconds, syncs as f64 / seconds)
}

/// Returns tokens per second of redb alone, with this many tokens in a transaction.
fn measure_redb_commits(path: &Path, group: u64, quick_repair: bool) -> f64 {
    const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows");
    let (backend, _) = SyncCounter::create(path);
    let database = Database::builder().set_cache_size(16 << 20).create_with_backend(backend).unwrap();
    let (start, mut tokens) = (Instant::now(), 0);
    while start.elapsed() < SECONDS {
        let mut transaction = database.begin_write().unwrap();
        transaction.set_quick_repair(quick_repair);
        let mut rows = transaction.open_table(ROWS).unwrap();
        for number in tokens..tokens + group {
            for write in token_batch(number).writes {
                let Write::Put(key, value) = write else { continue };
                rows.insert(key.as_str(), value.as_slice()).unwrap();
            }
        }
        drop(rows);
        transaction.commit().unwrap();
        tokens += group;
    }
    tokens as f64 / start.elapsed().as_secs_f64()
}

/// Measures a store of many records. Each step runs in a separate process, so that its memory counts alone.
fn measure_large_store(folder: &Path, tokens: &str) {
    let folder = folder.join("large");
    let run = |step: &str| {
        let executable = std::env::current_exe().unwrap();
        Command::new(executable)
            .args([step, folder.to_str().unwrap(), tokens])
            .stdout(Stdio::inherit())
            .status()
            .unwrap();
    };
    // `fill` ends as after a kill -9: the first opening repairs the file, the second has nothing to repair.
    for step in ["fill", "open", "open", "verify"] {
        run(step);
    }
}

/// Writes the tokens, and ends without a clean shutdown.
fn fill_store(folder: &Path, tokens: u64) {
    let store = Arc::new(Embedded::open(folder, "dc1").unwrap());
    let start = Instant::now();
    runtime().block_on(async {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS as u64 {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                for number in (writer..tokens).step_by(WRITERS) {
                    store.commit(token_batch(number)).await.unwrap();
                }
            });
        }
        writers.join_all().await;
    });
    let bytes = store.path().metadata().unwrap().len();
    println!(
        "{} records written in {:.1} s, a durable commit for each token; file {} MiB, resident {} MiB",
        tokens * 4,
        start.elapsed().as_secs_f64(),
        bytes >> 20,
        resident_mib()
    );
    std::process::abort();
}

/// Opens the store and measures reads by key, and a list in pages.
fn measure_open(folder: &Path, tokens: u64) {
    let start = Instant::now();
    let store = Embedded::open(folder, "dc1").unwrap();
    println!("opened in {:.3} s, resident {} MiB", start.elapsed().as_secs_f64(), resident_mib());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let key = |number| match token_batch(mix(number) % tokens).checks.remove(0) {
            Check::Absent(key) | Check::Unchanged(key, _) => key,
        };
        let keys: Vec<Key> = (0..20_000).map(key).collect();
        for keys_read in ["20,000 in random order", "the same 20,000 again"] {
            println!("reads by key, {keys_read}: {:.2} us each", measure_reads(&store, &keys).await);
        }
        let few: Vec<Key> = (0..200).flat_map(|_| keys[..100].to_vec()).collect();
        println!("reads by key, 100 of them: {:.2} us each", measure_reads(&store, &few).await);
        let (start, mut listed, mut after) = (Instant::now(), 0, None);
        while listed < 100_000 {
            let page = Page { after, limit: 500 };
            let listing = store.list("token/default/", page, Freshness::Linearizable).await.unwrap();
            listed += listing.entries.len();
            after = listing.entries.last().map(|(key, _)| key.clone());
            if !listing.more {
                break;
            }
        }
        println!("{listed} records listed in pages in {:.2} s", start.elapsed().as_secs_f64());
    });
    println!("resident at the end {} MiB", resident_mib());
}

/// Measures verification: redb's checksums of pages, and keyward's of records and kinds.
fn measure_verification(folder: &Path) {
    let seconds = |start: Instant| start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut database = Database::builder().set_cache_size(16 << 20).open(Embedded::file_in(folder)).unwrap();
    let (opened, start) = (seconds(start), Instant::now());
    assert!(database.check_integrity().unwrap());
    println!("redb alone: opened in {opened:.3} s, check_integrity in {:.2} s", seconds(start));
    drop(database);
    let start = Instant::now();
    let report = Embedded::verify_file(folder).unwrap();
    println!("pages and {} records of the closed file verified in {:.2} s", report.records, seconds(start));
    assert!(report.is_clean() && report.unchecked == 0, "{report:?}");
    let start = Instant::now();
    let store = Embedded::open(folder, "dc1").unwrap();
    let (opened, start) = (seconds(start), Instant::now());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(store.verify()).unwrap();
    println!(
        "opened in {opened:.3} s, {} records verified while open in {:.2} s, resident {} MiB",
        report.records,
        seconds(start),
        resident_mib()
    );
}

/// Returns microseconds per read.
async fn measure_reads(store: &Embedded, keys: &[Key]) -> f64 {
    let start = Instant::now();
    for key in keys {
        assert!(store.get(key, Freshness::Linearizable).await.unwrap().is_some());
    }
    start.elapsed().as_secs_f64() * 1e6 / keys.len() as f64
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
