//! The keys that a server has, and those of them that the store's records are under.

use std::sync::Arc;

use super::key::SealKey;
use crate::acl::model::secret::{PlainSecret, SecretHash};
use crate::acl::store::Revision;

/// Keys, the first of which counts before the others.
#[derive(Debug, Clone)]
pub struct Ring {
    /// The first.
    pub first: Arc<SealKey>,
    others: Vec<Arc<SealKey>>,
}

impl Ring {
    /// Keys in their order, each once; `None` without any.
    pub(super) fn of(keys: impl IntoIterator<Item = Arc<SealKey>>) -> Option<Self> {
        let mut keys = keys.into_iter();
        let first = keys.next()?;
        let mut ring = Self { first, others: Vec::new() };
        for key in keys {
            if ring.find(key.id()).is_none() {
                ring.others.push(key);
            }
        }
        Some(ring)
    }

    /// The key with that id.
    pub fn find(&self, id: &str) -> Option<&Arc<SealKey>> {
        self.all().find(|key| key.id() == id)
    }

    /// The first alone.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { first: Arc::clone(&self.first), others: Vec::new() }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<SealKey>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Their ids, as the store names them.
    pub fn ids(&self) -> String {
        self.all().map(|key| key.id()).collect::<Vec<_>>().join(" ")
    }
}

/// The keys of the key file, and what the store says of them: its record names the key that tokens are written with, and
/// after it, while the key is being changed, those that tokens may still be under. The record alone decides, so that
/// servers whose files differ in the order of their lines do the same.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The file's.
    pub file: Ring,
    /// Those that the store names.
    pub named: Ring,
    /// When the store's record was written.
    pub at: Revision,
}

impl Keys {
    /// Finds the keys that a record names.
    ///
    /// # Errors
    /// The id of one that the file lacks.
    pub(super) fn new(file: &Ring, record: &[u8], at: Revision) -> Result<Self, String> {
        let record = String::from_utf8_lossy(record);
        let find = |id| file.find(id).cloned().ok_or_else(|| str::to_owned(id));
        let named = record.split_whitespace().map(find).collect::<Result<Vec<_>, _>>()?;
        let named = Ring::of(named).ok_or_else(String::new)?;
        Ok(Self { file: file.clone(), named, at })
    }

    /// The key that tokens are written with.
    pub fn current(&self) -> &SealKey {
        &self.named.first
    }

    /// Whether tokens may be under other keys than the one they are written with.
    pub fn is_changing(&self) -> bool {
        !self.named.others.is_empty()
    }

    /// The hashes that a token with that secret may be found by. Tokens move to the current key and never away from it, so
    /// its hash comes last: a token that moves while they are tried in this order is not missed.
    pub fn hashes(&self, secret: &PlainSecret) -> Vec<SecretHash> {
        self.named.others.iter().chain([&self.named.first]).map(|key| key.hash(secret)).collect()
    }

    /// The keys that the store is to name so that the file's first key becomes the one to write with.
    pub fn aimed(&self) -> Ring {
        let aimed = Ring::of(std::iter::once(&self.file.first).chain(self.named.all()).cloned());
        aimed.unwrap_or_else(|| self.named.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Arc<SealKey> {
        Arc::new(SealKey::derived(&[byte; 32]).unwrap())
    }

    #[test]
    fn the_store_says_which_of_the_files_keys_count() {
        let (a, b, c) = (key(1), key(2), key(3));
        let check = |file: &[&Arc<SealKey>], record: &[&Arc<SealKey>], wanted: Result<[&str; 3], &str>| {
            let file = Ring::of(file.iter().copied().cloned()).unwrap();
            let record = record.iter().map(|key| key.id()).collect::<Vec<_>>().join(" ");
            let keys = Keys::new(&file, record.as_bytes(), Revision(7));
            let found = keys.map(|keys| {
                let secret = PlainSecret::random();
                assert_eq!(keys.hashes(&secret).last(), Some(&keys.current().hash(&secret)));
                assert_eq!(keys.hashes(&secret).len(), keys.named.all().count());
                assert_eq!(keys.is_changing(), record.contains(' '));
                [keys.current().id().to_owned(), keys.aimed().ids(), keys.named.alone().ids()]
            });
            assert_eq!(found, wanted.map(|texts| texts.map(str::to_owned)).map_err(str::to_owned), "{record}");
        };
        let (ia, ib, ic) = (a.id(), b.id(), c.id());
        check(&[&a], &[&a], Ok([ia, ia, ia]));
        check(&[&a, &b], &[&a], Ok([ia, ia, ia]));
        check(&[&b, &a], &[&a], Ok([ia, &format!("{ib} {ia}"), ia]));
        check(&[&b, &a], &[&b, &a], Ok([ib, &format!("{ib} {ia}"), ib]));
        check(&[&a, &b], &[&b, &a], Ok([ib, &format!("{ia} {ib}"), ib]));
        check(&[&c, &b, &a], &[&b, &a], Ok([ib, &format!("{ic} {ib} {ia}"), ib]));
        check(&[&b], &[&a], Err(ia));
        check(&[&b], &[&b, &a], Err(ia));
        check(&[&a], &[], Err(""));
        assert_eq!(Ring::of([&a, &b, &a].map(Arc::clone)).unwrap().ids(), format!("{ia} {ib}"));
    }
}
