//! Map that is bounded in bytes and evicts the least recently used values. Uses, insertions and evictions take logarithmic time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// Values by key, ordered by their last use.
#[derive(Debug)]
pub(super) struct LruMap<K, V> {
    slots: HashMap<Arc<K>, Slot<V>>,
    /// Keys by their last use.
    by_use: BTreeMap<u64, Arc<K>>,
    /// Sum of the values' sizes.
    bytes: usize,
    max_bytes: usize,
    /// The last use of any value; grows with each.
    last_use: u64,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    last_use: u64,
    /// In bytes.
    size: usize,
}

impl<K: Eq + Hash, V> LruMap<K, V> {
    /// Memory for a value besides the key and what the value points to, in bytes.
    pub(super) const OVERHEAD: usize =
        size_of::<(Arc<K>, Slot<V>)>() + size_of::<(u64, Arc<K>)>() + 2 * size_of::<usize>();

    pub(super) fn new(max_bytes: usize) -> Self {
        Self { slots: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, max_bytes, last_use: 0 }
    }

    /// Sum of the values' sizes, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns a value, which becomes the most recently used one.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let slot = self.slots.get_mut(key)?;
        if slot.last_use != self.last_use {
            let key = self.by_use.remove(&slot.last_use)?;
            self.last_use += 1;
            slot.last_use = self.last_use;
            self.by_use.insert(slot.last_use, key);
        }
        Some(&slot.value)
    }

    /// Returns a value to change it, without counting a use.
    pub(super) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.slots.get_mut(key).map(|slot| &mut slot.value)
    }

    /// Inserts or replaces a value of `size` bytes as the most recently used one. Returns the
    /// shared key; `None` if the value is larger than the map, and is dropped. `on_removal` gets the evicted values.
    pub(super) fn insert(
        &mut self,
        key: K,
        value: V,
        size: usize,
        mut on_removal: impl FnMut(Arc<K>, V),
    ) -> Option<Arc<K>> {
        if let Some((key, replaced)) = self.remove(&key) {
            on_removal(key, replaced);
        }
        if size > self.max_bytes {
            return None;
        }
        while self.bytes + size > self.max_bytes {
            let (_, oldest) = self.by_use.pop_first()?;
            if let Some((key, evicted)) = self.take(&oldest) {
                on_removal(key, evicted);
            }
        }
        let key = Arc::new(key);
        self.last_use += 1;
        self.bytes += size;
        self.by_use.insert(self.last_use, Arc::clone(&key));
        self.slots.insert(Arc::clone(&key), Slot { value, last_use: self.last_use, size });
        Some(key)
    }

    /// Removes a value and returns it with its shared key.
    pub(super) fn remove(&mut self, key: &K) -> Option<(Arc<K>, V)> {
        let slot = self.slots.get(key)?;
        self.by_use.remove(&slot.last_use);
        self.take(key)
    }

    /// Removes a value whose use was removed already.
    fn take(&mut self, key: &K) -> Option<(Arc<K>, V)> {
        let (key, slot) = self.slots.remove_entry(key)?;
        self.bytes -= slot.size;
        Some((key, slot.value))
    }

    /// Returns the keys of the values that match, in any order. Looks at every value.
    pub(super) fn keys_where(&self, matches: impl Fn(&K, &V) -> bool) -> Vec<Arc<K>> {
        let matching = self.slots.iter().filter(|(key, slot)| matches(key, &slot.value));
        matching.map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Returns the values in any order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.values().map(|slot| &slot.value)
    }

    /// Returns the keys in any order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<K>> {
        self.slots.keys()
    }

    /// Returns the most recently used values whose sizes sum up to at most `max_bytes`, the oldest first. A value that does not
    /// fit any more is omitted.
    pub(super) fn most_recent(&self, max_bytes: usize) -> Vec<(&K, &V)> {
        let mut remaining_bytes = max_bytes;
        let mut entries = Vec::new();
        for key in self.by_use.values().rev() {
            if remaining_bytes < Self::OVERHEAD {
                break;
            }
            if let Some(slot) = self.slots.get(key).filter(|slot| slot.size <= remaining_bytes) {
                remaining_bytes -= slot.size;
                entries.push((&**key, &slot.value));
            }
        }
        entries.reverse();
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of the test tables: its key and its size.
    type Sized = (&'static str, usize);

    fn filled(max_bytes: usize, values: &[Sized]) -> LruMap<&'static str, usize> {
        let mut map = LruMap::new(max_bytes);
        for (key, size) in values {
            map.insert(*key, *size, *size, |_, _| ());
        }
        map
    }

    /// Returns the keys, the least recently used first, after a check that the sizes are exact.
    fn keys(map: &LruMap<&'static str, usize>) -> Vec<&'static str> {
        assert_eq!(map.bytes(), map.values().sum::<usize>(), "the sum of the sizes");
        assert_eq!((map.len(), map.keys().count()), (map.by_use.len(), map.by_use.len()));
        map.by_use.values().map(|key| **key).collect()
    }

    #[test]
    fn the_least_recently_used_values_make_room() {
        let check = |uses: &[&'static str], new: Sized, evicted: &[usize], expected: &[&str]| {
            let mut map = filled(100, &[("a", 30), ("b", 31), ("c", 32)]);
            for key in uses {
                assert!(map.get(key).is_some());
            }
            let mut removed = Vec::new();
            map.insert(new.0, new.1, new.1, |_, value| removed.push(value));
            assert_eq!((removed.as_slice(), keys(&map).as_slice()), (evicted, expected), "{uses:?} {new:?}");
        };
        check(&[], ("d", 7), &[], &["a", "b", "c", "d"]);
        check(&[], ("d", 8), &[30], &["b", "c", "d"]);
        check(&["a"], ("d", 8), &[31], &["c", "a", "d"]);
        check(&["a", "c", "c", "b"], ("d", 8), &[30], &["c", "b", "d"]);
        check(&["a"], ("d", 60), &[31, 32], &["a", "d"]);
        check(&[], ("d", 100), &[30, 31, 32], &["d"]);
        check(&[], ("d", 101), &[], &["a", "b", "c"]);
        check(&[], ("a", 38), &[30, 31], &["c", "a"]);
        check(&[], ("a", 37), &[30], &["b", "c", "a"]);
        check(&[], ("a", 101), &[30], &["b", "c"]);
    }

    #[test]
    fn a_look_without_a_use_keeps_the_order() {
        let mut map = filled(100, &[("a", 30), ("b", 31), ("c", 32)]);
        assert_eq!(map.peek_mut(&"b"), Some(&mut 31));
        assert_eq!(map.get(&"x"), None);
        assert_eq!(keys(&map), ["a", "b", "c"]);
    }

    #[test]
    fn removed_values_leave_nothing_behind() {
        let mut map = filled(100, &[("a", 30), ("b", 31), ("c", 32)]);
        assert_eq!((map.remove(&"b"), map.remove(&"b")), (Some((Arc::new("b"), 31)), None));
        assert_eq!(keys(&map), ["a", "c"]);
        assert_eq!(map.keys_where(|key, size| *key == "a" || *size == 31), [Arc::new("a")]);
        for key in map.keys_where(|_, _| true) {
            map.remove(&key);
        }
        assert_eq!((keys(&map).len(), map.bytes()), (0, 0));
    }

    #[test]
    fn the_most_recently_used_values_come_first_into_a_bounded_list() {
        let overhead = LruMap::<&str, usize>::OVERHEAD;
        let mut map = filled(100 * overhead, &[("a", overhead), ("b", 10 * overhead), ("c", 2 * overhead)]);
        map.get(&"a");
        let check = |max_entries: usize, expected: &[&str]| {
            let found: Vec<_> = map.most_recent(max_entries * overhead).into_iter().map(|(key, _)| *key).collect();
            assert_eq!(found, expected, "{max_entries}");
        };
        check(13, &["b", "c", "a"]);
        check(12, &["c", "a"]);
        check(11, &["c", "a"]);
        check(2, &["a"]);
        check(0, &[]);
    }

    #[test]
    fn a_hit_and_an_eviction_do_not_look_at_the_other_values() {
        // A scan of all values for each insertion would take minutes.
        const VALUES: u32 = 50_000;
        let mut map = LruMap::new(VALUES as usize);
        for key in 0..2 * VALUES {
            map.insert(key, (), 1, |_, ()| ());
            map.get(&(key / 2 + key / 4));
        }
        assert_eq!((map.len(), map.bytes()), (VALUES as usize, VALUES as usize));
    }
}
