//! What is said by name and by the beginning of a name, and found by a name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// How closely a label fits a name; the greater is the one that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::acl::model) enum Specificity {
    /// It begins so, for that many bytes.
    Prefix(usize),
    /// It is the name.
    Exact,
}

/// Values by exact name and by prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::acl::model) struct Labels<T> {
    exact: BTreeMap<Box<str>, T>,
    prefixes: BTreeMap<Box<str>, T>,
}

impl<T> Default for Labels<T> {
    fn default() -> Self {
        Self { exact: BTreeMap::new(), prefixes: BTreeMap::new() }
    }
}

impl<T> Labels<T> {
    /// Adds a value; `join` makes one of two that have the same label.
    pub(super) fn add(&mut self, exact: bool, label: &str, value: T, join: impl FnOnce(&mut T, T)) {
        let map = if exact { &mut self.exact } else { &mut self.prefixes };
        match map.entry(label.into()) {
            Entry::Vacant(place) => drop(place.insert(value)),
            Entry::Occupied(mut place) => join(place.get_mut(), value),
        }
    }

    /// Gives each value away with its label, and whether that is exact.
    pub(super) fn into_each(self, mut take: impl FnMut(bool, Box<str>, T)) {
        self.exact.into_iter().for_each(|(label, value)| take(true, label, value));
        self.prefixes.into_iter().for_each(|(label, value)| take(false, label, value));
    }

    /// Each value with its label, and whether that is exact.
    pub(in crate::acl::model) fn each(&self) -> impl Iterator<Item = (bool, &str, &T)> {
        let exact = self.exact.iter().map(|(label, value)| (true, &**label, value));
        exact.chain(self.prefixes.iter().map(|(label, value)| (false, &**label, value)))
    }

    /// All that fit a name, the closest first. If `name` is a prefix itself (`exact` is false), these are the ones that
    /// fit all names that begin so.
    pub(in crate::acl::model) fn fitting<'a>(
        &'a self,
        exact: bool,
        name: &'a str,
    ) -> impl Iterator<Item = (Specificity, &'a T)> + use<'a, T> {
        let exact = exact.then(|| self.exact.get(name)).flatten().map(|value| (Specificity::Exact, value));
        let mut left = Some(name);
        let prefixes = std::iter::from_fn(move || {
            loop {
                let rest = left?;
                let below = (Bound::Unbounded, Bound::Included(rest));
                let (prefix, value) = self.prefixes.range::<str, _>(below).next_back()?;
                if rest.starts_with(&**prefix) {
                    let shorter = prefix.len().checked_sub(1);
                    left = shorter.map(|end| &rest[..rest.floor_char_boundary(end)]);
                    return Some((Specificity::Prefix(prefix.len()), value));
                }
                // A prefix of `rest` that is longer than what it shares with its neighbour would stand between the two.
                let shared = prefix.bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count();
                left = Some(&rest[..rest.floor_char_boundary(shared)]);
            }
        });
        exact.into_iter().chain(prefixes)
    }
}
