//! Keys of the key file, and which of them the store names.

use std::sync::Arc;

use super::key::SealKey;
use crate::model::secret::{PlainSecret, SecretHash};
use crate::store::Revision;

/// Ordered keys; the first has precedence.
#[derive(Debug, Clone)]
pub(crate) struct Keyring {
    /// First key.
    pub first: Arc<SealKey>,
    other_keys: Vec<Arc<SealKey>>,
}

impl Keyring {
    /// Creates a keyring without duplicates; `None` without keys.
    pub(super) fn new(keys: impl IntoIterator<Item = Arc<SealKey>>) -> Option<Self> {
        let mut keys = keys.into_iter();
        let first = keys.next()?;
        let mut ring = Self { first, other_keys: Vec::new() };
        for key in keys {
            if ring.find(key.id()).is_none() {
                ring.other_keys.push(key);
            }
        }
        Some(ring)
    }

    /// Returns the key with that id.
    pub(crate) fn find(&self, id: &str) -> Option<&Arc<SealKey>> {
        self.keys().find(|key| key.id() == id)
    }

    /// Returns a keyring of the first key only.
    #[must_use]
    pub(crate) fn first_only(&self) -> Self {
        Self { first: Arc::clone(&self.first), other_keys: Vec::new() }
    }

    /// Returns all keys in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<SealKey>> {
        std::iter::once(&self.first).chain(&self.other_keys)
    }

    /// Returns their ids, separated by spaces, as the key record stores them.
    pub(crate) fn ids(&self) -> String {
        self.keys().map(|key| key.id()).collect::<Vec<_>>().join(" ")
    }
}

/// Keys of the key file, and those that the store's key record names: first the key for new tokens, then, during a
/// rotation, keys of older tokens. Only the record decides which keys are used. Servers whose files differ in order
/// therefore behave the same.
#[derive(Debug, Clone)]
pub(crate) struct SealKeys {
    /// All keys of the key file.
    pub file: Keyring,
    /// Keys that the key record names.
    pub active: Keyring,
    /// Revision of the key record.
    pub at: Revision,
}

impl SealKeys {
    /// Looks up the keys that a key record names. The error is the id of a key that the file lacks.
    pub(super) fn new(file: &Keyring, record: &[u8], at: Revision) -> Result<Self, String> {
        let record = String::from_utf8_lossy(record);
        let find = |id| file.find(id).cloned().ok_or_else(|| str::to_owned(id));
        let active = record.split_whitespace().map(find).collect::<Result<Vec<_>, _>>()?;
        let active = Keyring::new(active).ok_or_else(String::new)?;
        Ok(Self { file: file.clone(), active, at })
    }

    /// Returns the key for new tokens.
    pub(crate) fn current(&self) -> &SealKey {
        &self.active.first
    }

    /// Returns whether tokens may use other keys than the current one.
    pub(crate) fn is_rotating(&self) -> bool {
        !self.active.other_keys.is_empty()
    }

    /// Returns the hashes that may index a token with that secret. The current key's hash is last: tokens only move to
    /// the current key, so one that moves during the lookup is not missed.
    pub(crate) fn hashes(&self, secret: &PlainSecret) -> Vec<SecretHash> {
        self.active.other_keys.iter().chain([&self.active.first]).map(|key| key.hash(secret)).collect()
    }

    /// Returns the keys to name in the key record to make the file's first key the current one.
    pub(crate) fn with_file_key_first(&self) -> Keyring {
        let target = Keyring::new(std::iter::once(&self.file.first).chain(self.active.keys()).cloned());
        target.unwrap_or_else(|| self.active.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Arc<SealKey> {
        Arc::new(SealKey::derive(&[byte; 32]).unwrap())
    }

    #[test]
    fn the_key_record_selects_the_active_keys_of_the_file() {
        let a = key(1);
        let b = key(2);
        let c = key(3);
        let check = |file: &[&Arc<SealKey>], record: &[&Arc<SealKey>], expected: Result<[&str; 3], &str>| {
            let file = Keyring::new(file.iter().copied().cloned()).unwrap();
            let record = record.iter().map(|key| key.id()).collect::<Vec<_>>().join(" ");
            let keys = SealKeys::new(&file, record.as_bytes(), Revision(7));
            let found = keys.map(|keys| {
                let secret = PlainSecret::random();
                assert_eq!(keys.hashes(&secret).last(), Some(&keys.current().hash(&secret)));
                assert_eq!(keys.hashes(&secret).len(), keys.active.keys().count());
                assert_eq!(keys.is_rotating(), record.contains(' '));
                [keys.current().id().to_owned(), keys.with_file_key_first().ids(), keys.active.first_only().ids()]
            });
            assert_eq!(found, expected.map(|texts| texts.map(str::to_owned)).map_err(str::to_owned), "{record}");
        };
        let ia = a.id();
        let ib = b.id();
        let ic = c.id();
        check(&[&a], &[&a], Ok([ia, ia, ia]));
        check(&[&a, &b], &[&a], Ok([ia, ia, ia]));
        check(&[&b, &a], &[&a], Ok([ia, &format!("{ib} {ia}"), ia]));
        check(&[&b, &a], &[&b, &a], Ok([ib, &format!("{ib} {ia}"), ib]));
        check(&[&a, &b], &[&b, &a], Ok([ib, &format!("{ia} {ib}"), ib]));
        check(&[&c, &b, &a], &[&b, &a], Ok([ib, &format!("{ic} {ib} {ia}"), ib]));
        check(&[&b], &[&a], Err(ia));
        check(&[&b], &[&b, &a], Err(ia));
        check(&[&a], &[], Err(""));
        assert_eq!(Keyring::new([&a, &b, &a].map(Arc::clone)).unwrap().ids(), format!("{ia} {ib}"));
    }
}
