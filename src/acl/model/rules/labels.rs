//! Map of exact names and prefixes, searched by name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// Specificity of a match; the greatest applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Specificity {
    /// Prefix of this length in bytes.
    Prefix(usize),
    /// Exact match.
    Exact,
}

/// Values by exact name and by prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels<T> {
    exact: BTreeMap<Box<str>, T>,
    prefixes: BTreeMap<Box<str>, T>,
}

impl<T> Default for Labels<T> {
    fn default() -> Self {
        Self { exact: BTreeMap::new(), prefixes: BTreeMap::new() }
    }
}

impl<T> Labels<T> {
    /// Adds a value; `join` merges it into an existing one with the same label.
    pub(super) fn add(&mut self, exact: bool, label: &str, value: T, join: impl FnOnce(&mut T, T)) {
        let map = if exact { &mut self.exact } else { &mut self.prefixes };
        match map.entry(label.into()) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(mut entry) => join(entry.get_mut(), value),
        }
    }

    /// Consumes all values with their labels and whether they are exact.
    pub(super) fn for_each(self, mut take: impl FnMut(bool, Box<str>, T)) {
        self.exact.into_iter().for_each(|(label, value)| take(true, label, value));
        self.prefixes.into_iter().for_each(|(label, value)| take(false, label, value));
    }

    /// Returns all values with their labels and whether they are exact.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (bool, &str, &T)> {
        let exact = self.exact.iter().map(|(label, value)| (true, &**label, value));
        exact.chain(self.prefixes.iter().map(|(label, value)| (false, &**label, value)))
    }

    /// Returns the values that match a name, the most specific first. If `exact` is false, `name` is a prefix and only
    /// prefixes of it match.
    pub(crate) fn matching<'a>(
        &'a self,
        exact: bool,
        name: &'a str,
    ) -> impl Iterator<Item = (Specificity, &'a T)> + use<'a, T> {
        let exact = exact.then(|| self.exact.get(name)).flatten().map(|value| (Specificity::Exact, value));
        let mut remaining = Some(name);
        let prefixes = std::iter::from_fn(move || {
            loop {
                let rest = remaining?;
                let below = (Bound::Unbounded, Bound::Included(rest));
                let (prefix, value) = self.prefixes.range::<str, _>(below).next_back()?;
                if rest.starts_with(&**prefix) {
                    let shorter = prefix.len().checked_sub(1);
                    remaining = shorter.map(|end| &rest[..rest.floor_char_boundary(end)]);
                    return Some((Specificity::Prefix(prefix.len()), value));
                }
                // A longer matching prefix would sort between `rest` and this neighbour.
                let shared = prefix.bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count();
                remaining = Some(&rest[..rest.floor_char_boundary(shared)]);
            }
        });
        exact.into_iter().chain(prefixes)
    }
}
