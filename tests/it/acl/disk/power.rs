//! Power loss: acknowledged batches survive, and no batch is partial.

use std::collections::BTreeMap;
use std::sync::Arc;

use keyward_acl::store::{Batch, Embedded, Freshness, Key, Page, Revision, Store as _, Write};

use super::drive::{Drive, Rng};
use super::{all, open};

type Model = BTreeMap<Key, String>;

/// Number of power losses; every tenth starts with a new drive, the others continue.
const SEEDS: u64 = 1000;

#[test]
fn acknowledged_batches_survive_a_power_loss_and_none_is_partial() {
    let halves = [0..SEEDS / 2, SEEDS / 2..SEEDS];
    let acknowledged: usize = std::thread::scope(|scope| {
        let runs = halves.map(|seeds| scope.spawn(move || run_seeds(seeds)));
        runs.map(|run| run.join().unwrap()).into_iter().sum()
    });
    assert!(acknowledged > 3 * usize::try_from(SEEDS).unwrap(), "{acknowledged} batches were acknowledged");
}

fn run_seeds(seeds: std::ops::Range<u64>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut acknowledged = 0;
    let mut lived = None;
    for seed in seeds {
        let StoreRun { drive, store, model } = lived.take().filter(|_| seed % 10 > 0).unwrap_or_else(|| {
            let drive = Drive::default();
            StoreRun { store: open(&drive), drive, model: Model::new() }
        });
        lived = Some(runtime.block_on(run_until_power_loss(seed, drive, store, model, &mut acknowledged)));
    }
    acknowledged
}

/// A store, its drive, and the expected records.
struct StoreRun {
    drive: Drive,
    store: Embedded,
    model: Model,
}

/// Writes until the power fails; returns the reopened store after checking it.
async fn run_until_power_loss(
    seed: u64,
    drive: Drive,
    store: Embedded,
    mut model: Model,
    acknowledged: &mut usize,
) -> StoreRun {
    let rng = &mut Rng(seed);
    let store = Arc::new(store);
    drive.set(|state| state.power = Some(rng.below(250)));
    let mut last = Revision::default();
    let in_doubt = loop {
        let batches: Vec<Batch> = (0..=rng.below(4)).map(|_| batch(rng)).collect();
        let outcomes = commit_at_once(&store, &batches).await;
        let done = outcomes.iter().take_while(|outcome| outcome.is_some()).count();
        *acknowledged += done;
        last = outcomes.iter().flatten().max().copied().unwrap_or(last);
        batches[..done].iter().for_each(|batch| write(&mut model, batch));
        if done < batches.len() {
            assert_eq!(outcomes.iter().flatten().count(), done, "seed {seed}: a batch overtook one before it");
            break batches[done..].to_vec();
        }
    };
    drop(store);

    let drive = drive.after_power_loss(rng);
    let store = open(&drive);
    let found: Model = all(&store, "a/").await.into_iter().chain(all(&store, "b/").await).collect();
    let mut in_doubt = in_doubt.iter();
    while found != model {
        let next = in_doubt.next();
        write(&mut model, next.unwrap_or_else(|| panic!("seed {seed}: what is there was never written: {found:?}")));
    }
    let page = Page { after: None, limit: 1 };
    let (a, b) = tokio::join!(
        store.list("a/", page.clone(), Freshness::Linearizable),
        store.list("b/", page, Freshness::Linearizable)
    );
    let revision = a.unwrap().revision.max(b.unwrap().revision);
    assert!(revision >= last, "seed {seed}: revision {last:?} was acknowledged, {revision:?} is kept");
    StoreRun { drive, store, model }
}

/// Submits all batches before the first is written; returns the revisions of written ones.
async fn commit_at_once(store: &Arc<Embedded>, batches: &[Batch]) -> Vec<Option<Revision>> {
    let mut commits = tokio::task::JoinSet::new();
    for (number, batch) in batches.iter().cloned().enumerate() {
        let store = Arc::clone(store);
        // Tasks of this runtime begin in the order in which they are spawned.
        commits.spawn(async move { (number, store.commit(batch).await.ok()) });
    }
    let mut outcomes = commits.join_all().await;
    outcomes.sort_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn batch(rng: &mut Rng) -> Batch {
    let stamp = rng.below(usize::MAX);
    let writes = (0..=rng.below(5)).map(|_| {
        let key = Key::new(&[["a", "b"][rng.below(2)], &rng.below(40).to_string()]);
        if rng.below(4) == 0 {
            return Write::Delete(key);
        }
        let longest = [30, 300, 6000][rng.below(3)];
        Write::Put(key, format!("{stamp} {}", "x".repeat(rng.below(longest))).into_bytes())
    });
    Batch { checks: Vec::new(), writes: writes.collect() }
}

fn write(model: &mut Model, batch: &Batch) {
    for write in &batch.writes {
        match write {
            Write::Put(key, value) => drop(model.insert(key.clone(), String::from_utf8(value.clone()).unwrap())),
            Write::Delete(key) => drop(model.remove(key)),
        }
    }
}
