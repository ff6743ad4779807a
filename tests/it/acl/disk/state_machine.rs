//! State machine: random steps on the embedded store and on a model of it, which must agree after each. A failing sequence is shrunk.

use std::collections::BTreeMap;
use std::ops::Bound;

use keyward_acl::store::{
    Batch, Check, CommitError, Embedded, Freshness, Key, Page, Record, Revision, Store as _, Write,
};
use proptest::prelude::*;

use super::drive::{Drive, Rng};
use super::open;

/// Records of a kind, and kinds.
const NAMES: usize = 5;
const KINDS: [&str; 2] = ["a", "b"];

/// One step. Numbers name keys; revisions come from the model when the step is done, so that steps can be left out.
#[derive(Debug, Clone)]
enum Step {
    Commit { checks: Vec<(usize, Expected)>, writes: Vec<(usize, Option<u8>)> },
    List { kind: usize, after: Option<usize>, limit: usize },
    Changed { kind: usize },
    Export { writes: Vec<(usize, Option<u8>)> },
    Reopen,
    LosePower { seed: u64 },
}

/// Expectation of a check.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Absent,
    Current,
    Older,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..NAMES * KINDS.len();
    let expected = prop_oneof![1 => Just(Expected::Absent), 4 => Just(Expected::Current), 1 => Just(Expected::Older)];
    let checks = prop::collection::vec((key.clone(), expected), 0..3);
    let value = prop_oneof![1 => Just(None), 2 => any::<u8>().prop_map(Some)];
    let writes = prop::collection::vec((key.clone(), value), 0..4);
    let kind = 0..KINDS.len();
    prop_oneof![
        8 => (checks, writes.clone()).prop_map(|(checks, writes)| Step::Commit { checks, writes }),
        2 => (kind.clone(), prop::option::of(key), 0..7_usize)
            .prop_map(|(kind, after, limit)| Step::List { kind, after, limit }),
        1 => kind.prop_map(|kind| Step::Changed { kind }),
        1 => writes.prop_map(|writes| Step::Export { writes }),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(|seed| Step::LosePower { seed }),
    ]
}

/// Expected contents of the store.
#[derive(Debug, Default)]
struct Model {
    records: BTreeMap<Key, Record>,
    /// Revision of the last change of each kind.
    kinds: [Revision; KINDS.len()],
    last: Revision,
}

impl Model {
    fn check(&self, number: usize, expected: Expected) -> Check {
        let modified = self.records.get(&key(number)).map_or(Revision(0), |record| record.modified);
        match expected {
            Expected::Absent => Check::Absent(key(number)),
            Expected::Current => Check::Unchanged(key(number), modified),
            Expected::Older => Check::Unchanged(key(number), Revision(modified.0.saturating_sub(1))),
        }
    }

    /// Returns the key of the first failing check.
    fn conflict(&self, checks: &[Check]) -> Option<Key> {
        let failing = checks.iter().find_map(|check| match check {
            Check::Absent(key) => self.records.contains_key(key).then_some(key),
            Check::Unchanged(key, at) => {
                (self.records.get(key).map(|record| record.modified) != Some(*at)).then_some(key)
            }
        });
        failing.cloned()
    }

    /// Applies writes that were committed at `revision`; the last one of a key counts.
    fn apply(&mut self, writes: &[(usize, Option<u8>)], revision: Revision) {
        let last: BTreeMap<usize, Option<u8>> = writes.iter().copied().collect();
        for (number, value) in last {
            self.kinds[number / NAMES] = revision;
            let Some(value) = value else {
                self.records.remove(&key(number));
                continue;
            };
            let created = self.records.get(&key(number)).map_or(revision, |record| record.created);
            let record = Record { value: vec![value; 1 + usize::from(value)].into(), created, modified: revision };
            self.records.insert(key(number), record);
        }
        self.last = revision;
    }
}

fn key(number: usize) -> Key {
    Key::new(&[KINDS[number / NAMES], &(number % NAMES).to_string()])
}

fn batch(checks: Vec<Check>, writes: &[(usize, Option<u8>)]) -> Batch {
    let write = |&(number, value): &(usize, Option<u8>)| match value {
        Some(value) => Write::Put(key(number), vec![value; 1 + usize::from(value)]),
        None => Write::Delete(key(number)),
    };
    Batch { checks, writes: writes.iter().map(write).collect() }
}

/// Writes to the store and to the model.
async fn write(store: &Embedded, model: &mut Model, checks: Vec<Check>, writes: &[(usize, Option<u8>)]) {
    let conflict = model.conflict(&checks);
    match (store.commit(batch(checks, writes)).await, conflict) {
        (Ok(_), None) if writes.is_empty() => {}
        (Ok(revision), None) => {
            assert!(revision > model.last, "{revision:?} follows {:?}", model.last);
            model.apply(writes, revision);
        }
        (Err(CommitError::Conflict(found)), Some(expected)) => assert_eq!(found, expected),
        (outcome, expected) => panic!("{outcome:?}, expected conflict: {expected:?}"),
    }
}

async fn list(store: &Embedded, model: &Model, kind: usize, after: Option<usize>, limit: usize) {
    let prefix = format!("{}/", KINDS[kind]);
    // A key of the other kind is no position in this list.
    let after = after.map(|number| key(kind * NAMES + number % NAMES));
    let page = Page { after: after.clone(), limit };
    let listing = store.list(&prefix, page, Freshness::Linearizable).await.unwrap();
    let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let expected = model.records.range((start, Bound::Unbounded)).filter(|(key, _)| key.as_str().starts_with(&prefix));
    let mut expected: Vec<_> = expected.map(|(key, record)| (key.clone(), record.clone())).collect();
    let more = expected.len() > limit;
    expected.truncate(limit);
    assert_eq!((listing.entries, listing.more), (expected, more));
    assert_eq!(listing.revision, model.kinds[kind], "revision of the last change of {prefix}");
}

/// Does one step, and returns the store: another one after a step that opens it again.
async fn take(step: &Step, drive: &mut Drive, store: Embedded, model: &mut Model) -> Embedded {
    match step {
        Step::Commit { checks, writes } => {
            let checks = checks.iter().map(|&(number, expected)| model.check(number, expected)).collect();
            write(&store, model, checks, writes).await;
        }
        Step::List { kind, after, limit } => list(&store, model, *kind, *after, *limit).await,
        Step::Changed { kind } => {
            let (prefix, last) = (format!("{}/", KINDS[*kind]), model.kinds[*kind]);
            if last > Revision(0) {
                assert_eq!(store.changed(&prefix, Revision(last.0 - 1)).await.unwrap(), last);
            }
            let waited = tokio::time::timeout(std::time::Duration::ZERO, store.changed(&prefix, last)).await;
            assert!(waited.is_err(), "{waited:?}, though nothing is newer than {last:?}");
        }
        Step::Export { writes } => {
            let mut export = store.export().await.unwrap();
            let expected: Vec<_> = model.records.clone().into_iter().collect();
            // Later changes are not in it.
            write(&store, model, Vec::new(), writes).await;
            let mut found = Vec::new();
            loop {
                let next = export.next(3).await.unwrap();
                if next.is_empty() {
                    break;
                }
                found.extend(next);
            }
            assert_eq!(found, expected);
        }
        Step::Reopen => {
            drop(store);
            return open(drive);
        }
        Step::LosePower { seed } => {
            drop(store);
            *drive = drive.after_power_loss(&mut Rng(*seed));
            return open(drive);
        }
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_and_its_model_agree_after_each_step(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut drive = Drive::default();
            let (mut store, mut model) = (open(&drive), Model::default());
            for step in &steps {
                store = take(step, &mut drive, store, &mut model).await;
                for number in 0..NAMES * KINDS.len() {
                    let found = store.get(&key(number), Freshness::Linearizable).await.unwrap();
                    assert_eq!(found.as_ref(), model.records.get(&key(number)), "{:?} after {step:?}", key(number));
                }
            }
        });
    }
}
