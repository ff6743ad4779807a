//! In-memory cache of records: a hit costs a fraction of a file read.
//!
//! Entries always equal the file: a key is evicted before its write becomes visible, and a value read before a write is
//! not inserted after it. Missing keys are not cached: unauthenticated callers could fill the memory with them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::{Mutex, MutexGuard};

use super::{Key, Record};

/// Bounded cache of recently read records.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    /// Entries used since the last generation shift.
    recent: HashMap<Key, Record>,
    /// Entries of the previous generation not used since; dropped at the next shift.
    older: HashMap<Key, Record>,
    /// Size of `recent`, in bytes.
    weight: usize,
    /// Keys with a write in progress.
    writing: HashSet<Key>,
    /// Number of writes to this shard.
    writes: u64,
}

/// Token of a cache miss: the value read afterwards may be inserted if no write happened since.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheMiss(u64);

const SHARD_COUNT: usize = 16;

/// Overhead of an entry beyond its key and value, in bytes.
const ENTRY_OVERHEAD: usize = 200;

/// Size limit of one generation of one shard, in bytes.
const GENERATION_BYTES: usize = Cache::MAX_BYTES / SHARD_COUNT / 2;

/// Larger records are not cached.
const MAX_RECORD_BYTES: usize = GENERATION_BYTES / 8;

impl Cache {
    /// Approximate size limit of the cache, in bytes.
    pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;

    pub(super) fn new() -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Returns the record, or the miss to pass to [`Cache::insert_after_miss`]. Must be called before the file is read.
    pub(super) fn get(&self, key: &Key) -> Result<Record, CacheMiss> {
        let mut shard = self.shard(key);
        if let Some(record) = shard.recent.get(key) {
            return Ok(record.clone());
        }
        let Some((key, record)) = shard.older.remove_entry(key) else { return Err(CacheMiss(shard.writes)) };
        let evicted = shard.put(key, record.clone());
        drop(shard);
        drop(evicted);
        Ok(record)
    }

    /// Inserts a record that was read after a miss.
    pub(super) fn insert_after_miss(&self, key: &Key, record: &Record, miss: CacheMiss) {
        if weight(key, record) > MAX_RECORD_BYTES {
            return;
        }
        let mut shard = self.shard(key);
        if shard.writes != miss.0 || shard.writing.contains(key) {
            return;
        }
        let evicted = shard.put(key.clone(), record.clone());
        drop(shard);
        drop(evicted);
    }

    /// Evicts keys before their write and blocks insertion until [`Cache::end_write`].
    pub(super) fn begin_write<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            let mut shard = self.shard(key);
            if let Some(record) = shard.recent.remove(key) {
                shard.weight -= weight(key, &record);
            }
            shard.older.remove(key);
            shard.writing.insert(key.clone());
        }
    }

    /// Ends a write, committed or abandoned.
    pub(super) fn end_write(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if !shard.writing.is_empty() {
                shard.writing.clear();
                shard.writes += 1;
            }
        }
    }

    /// Empties the cache and invalidates outstanding misses.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            *shard = Shard { writes: shard.writes + 1, ..Shard::default() };
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(self.hasher.hash_one(key) % SHARD_COUNT as u64).unwrap_or_default();
        self.shards[number].lock()
    }
}

impl Shard {
    /// Inserts an entry; returns the evicted generation, to be dropped without the lock.
    fn put(&mut self, key: Key, record: Record) -> HashMap<Key, Record> {
        let more = weight(&key, &record);
        let mut evicted = HashMap::new();
        if self.weight + more > GENERATION_BYTES {
            evicted = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.weight = 0;
        }
        if self.recent.insert(key, record).is_none() {
            self.weight += more;
        }
        evicted
    }
}

fn weight(key: &Key, record: &Record) -> usize {
    key.as_str().len() + record.value.len() + ENTRY_OVERHEAD
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Revision;

    fn record(length: usize) -> Record {
        Record { value: Bytes::from(vec![0; length]), created: Revision(1), modified: Revision(1) }
    }

    fn key(number: usize) -> Key {
        Key::new(&["token", &number.to_string()])
    }

    fn read(cache: &Cache, key: &Key, length: usize) -> bool {
        let miss = cache.get(key).err();
        miss.inspect(|miss| cache.insert_after_miss(key, &record(length), *miss)).is_none()
    }

    #[test]
    fn the_cache_stays_within_its_limit_and_keeps_hot_entries() {
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
        assert!(weight > 2 * Cache::MAX_BYTES);
        let entries = cache.shards.iter().map(|shard| {
            let shard = shard.lock();
            let weigh = |entries: &HashMap<Key, Record>| -> usize {
                entries.iter().map(|(key, record)| super::weight(key, record)).sum()
            };
            assert_eq!(weigh(&shard.recent), shard.weight);
            weigh(&shard.recent) + weigh(&shard.older)
        });
        let total: usize = entries.sum();
        assert!(total <= Cache::MAX_BYTES && total > Cache::MAX_BYTES / 3, "{total} bytes are kept");
    }

    #[test]
    fn a_value_read_before_a_write_is_not_cached_after_it() {
        let cache = Cache::new();
        let one = key(1);
        let large = key(2);
        assert!(!read(&cache, &one, 10) && read(&cache, &one, 10));

        // Inserting a value from before the write must fail at each later step.
        cache.begin_write([&one].into_iter());
        let during = cache.get(&one).unwrap_err();
        cache.insert_after_miss(&one, &record(10), during);
        assert!(cache.get(&one).is_err());
        cache.end_write();
        cache.insert_after_miss(&one, &record(10), during);
        let after = cache.get(&one).unwrap_err();
        cache.insert_after_miss(&one, &record(10), after);
        assert!(cache.get(&one).is_ok());

        let miss = cache.get(&large).unwrap_err();
        cache.clear();
        cache.insert_after_miss(&large, &record(10), miss);
        assert!(cache.get(&large).is_err() && cache.get(&one).is_err());
        assert!(!read(&cache, &large, MAX_RECORD_BYTES) && !read(&cache, &large, MAX_RECORD_BYTES));
    }
}
