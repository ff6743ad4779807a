//! Records in memory, by key: a look that costs a fraction of one into the file.
//!
//! What is here is what a look into the file would find, at each moment: a key that is about to be written is taken
//! out before the write can be seen, and what a reader found earlier is not put in afterwards. Keys without a record
//! are not kept: callers without a token could fill the memory with them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Key, Record};

/// Records that were read lately, within a bound.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    /// What was read since the two generations were last shifted.
    recent: HashMap<Key, Record>,
    /// What was read in the generation before, and not since. Forgotten at the next shift.
    older: HashMap<Key, Record>,
    /// What `recent` takes, in bytes.
    weight: usize,
    /// Keys that are being written.
    writing: HashSet<Key>,
    /// How often keys of this shard were written.
    writes: u64,
}

/// A look that found nothing: what is then read from the file may be kept, if nothing was written since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Miss(u64);

const SHARDS: usize = 16;

/// Bytes that an entry takes beside those of its key and value.
const ENTRY: usize = 200;

/// Bytes of one generation of one shard.
const GENERATION: usize = Cache::BYTES / SHARDS / 2;

/// Larger records are not kept.
const LARGEST: usize = GENERATION / 8;

impl Cache {
    /// Bytes that all entries take at most, roughly.
    pub(super) const BYTES: usize = 16 * 1024 * 1024;

    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// The record, or the miss to hand to [`Cache::fill`]. Called before the look into the file begins.
    pub(super) fn get(&self, key: &Key) -> Result<Record, Miss> {
        let mut shard = self.shard(key);
        if let Some(record) = shard.recent.get(key) {
            return Ok(record.clone());
        }
        let Some((key, record)) = shard.older.remove_entry(key) else { return Err(Miss(shard.writes)) };
        let forgotten = shard.put(key, record.clone());
        drop(shard);
        drop(forgotten);
        Ok(record)
    }

    /// Keeps what was read after a miss.
    pub(super) fn fill(&self, key: &Key, record: &Record, miss: Miss) {
        if weight(key, record) > LARGEST {
            return;
        }
        let mut shard = self.shard(key);
        if shard.writes != miss.0 || shard.writing.contains(key) {
            return;
        }
        let forgotten = shard.put(key.clone(), record.clone());
        drop(shard);
        drop(forgotten);
    }

    /// Forgets keys that are about to be written, and keeps nothing of them until [`Cache::written`].
    pub(super) fn write<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            let mut shard = self.shard(key);
            if let Some(record) = shard.recent.remove(key) {
                shard.weight -= weight(key, &record);
            }
            shard.older.remove(key);
            shard.writing.insert(key.clone());
        }
    }

    /// What was about to be written can be seen by all who look from now on, or was given up.
    pub(super) fn written(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if !shard.writing.is_empty() {
                shard.writing.clear();
                shard.writes += 1;
            }
        }
    }

    /// Forgets everything, and what is being read right now.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            *shard = Shard { writes: shard.writes + 1, ..Shard::default() };
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or_default();
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Puts an entry in. Gives what has to go for it, to be dropped without the lock.
    fn put(&mut self, key: Key, record: Record) -> HashMap<Key, Record> {
        let more = weight(&key, &record);
        let mut forgotten = HashMap::new();
        if self.weight + more > GENERATION {
            forgotten = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.weight = 0;
        }
        if self.recent.insert(key, record).is_none() {
            self.weight += more;
        }
        forgotten
    }
}

fn weight(key: &Key, record: &Record) -> usize {
    key.as_str().len() + record.value.len() + ENTRY
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::acl::store::Revision;

    fn record(length: usize) -> Record {
        Record { value: Bytes::from(vec![0; length]), created: Revision(1), modified: Revision(1) }
    }

    fn key(number: usize) -> Key {
        Key::of(&["token", &number.to_string()])
    }

    fn read(cache: &Cache, key: &Key, length: usize) -> bool {
        let miss = cache.get(key).err();
        miss.inspect(|miss| cache.fill(key, &record(length), *miss)).is_none()
    }

    #[test]
    fn what_is_kept_stays_within_its_bound_and_what_is_read_often_stays() {
        let cache = Cache::new();
        let often: Vec<Key> = (0..100).map(key).collect();
        let mut weight = 0;
        for number in 100..100_000 {
            read(&cache, &key(number), 500);
            if number % 1000 == 0 {
                let found = often.iter().filter(|key| read(&cache, key, 500)).count();
                assert!(number <= 1000 || found == often.len(), "only {found} are there");
            }
            weight += 500;
        }
        assert!(weight > 2 * Cache::BYTES);
        let entries = cache.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            let weigh = |entries: &HashMap<Key, Record>| -> usize {
                entries.iter().map(|(key, record)| super::weight(key, record)).sum()
            };
            assert_eq!(weigh(&shard.recent), shard.weight);
            weigh(&shard.recent) + weigh(&shard.older)
        });
        let kept: usize = entries.sum();
        assert!(kept <= Cache::BYTES && kept > Cache::BYTES / 3, "{kept} bytes are kept");
    }

    #[test]
    fn what_was_read_before_a_write_is_not_kept_after_it() {
        let cache = Cache::new();
        let (one, large) = (key(1), key(2));
        assert!(!read(&cache, &one, 10) && read(&cache, &one, 10));

        // Found before the write, and handed in at each moment after that.
        cache.write([&one].into_iter());
        let during = cache.get(&one).unwrap_err();
        cache.fill(&one, &record(10), during);
        assert!(cache.get(&one).is_err());
        cache.written();
        cache.fill(&one, &record(10), during);
        let after = cache.get(&one).unwrap_err();
        cache.fill(&one, &record(10), after);
        assert!(cache.get(&one).is_ok());

        let miss = cache.get(&large).unwrap_err();
        cache.clear();
        cache.fill(&large, &record(10), miss);
        assert!(cache.get(&large).is_err() && cache.get(&one).is_err());
        assert!(!read(&cache, &large, LARGEST) && !read(&cache, &large, LARGEST));
    }
}
