//! Mapping of records to etcd: keys under the store's prefix, batches as transactions.

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};

use crate::store::{Batch, Check, Key, Record, Revision, StoreError, Write};

/// Prefix of all keys of the store.
#[derive(Debug, Clone)]
pub(super) struct Prefix(pub(super) String);

impl Prefix {
    /// Returns a key or key prefix in etcd's key space.
    pub(super) fn prepend_to(&self, key: &str) -> Vec<u8> {
        [self.0.as_bytes(), key.as_bytes()].concat()
    }

    /// Returns the record key of an etcd key; `None` for other keys.
    pub(super) fn strip_from(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key.strip_prefix(self.0.as_bytes())?).ok()?;
        key.contains('/').then(|| Key::from(key.to_owned()))
    }

    /// Converts an etcd entry.
    pub(super) fn record(&self, entry: KeyValue) -> Result<(Key, Record), StoreError> {
        let created = revision(entry.create_revision());
        let modified = revision(entry.mod_revision());
        let (key, value) = entry.into_key_value();
        let unreadable = || StoreError::Unreadable { key: String::from_utf8_lossy(&key).into_owned() };
        Ok((self.strip_from(&key).ok_or_else(unreadable)?, Record { value: value.into(), created, modified }))
    }

    /// Builds the transaction of a batch; its else branch reads the records of the checks.
    pub(super) fn transaction(&self, batch: &Batch) -> Txn {
        let compare = |check: &Check| {
            let key = self.prepend_to(check.key().as_str());
            match check {
                Check::Absent(_) => Compare::create_revision(key, CompareOp::Equal, 0),
                // etcd gives missing keys revision 0, which must not match as unchanged.
                Check::Unchanged(_, Revision(0)) => Compare::mod_revision(key, CompareOp::Less, 0),
                Check::Unchanged(_, at) => Compare::mod_revision(key, CompareOp::Equal, number(*at)),
            }
        };
        let look =
            |check: &Check| TxnOp::get(self.prepend_to(check.key().as_str()), Some(GetOptions::new().with_keys_only()));
        let write = |write: &Write| {
            let key = self.prepend_to(write.key().as_str());
            match write {
                Write::Put(_, value) => TxnOp::put(key, value.clone(), None),
                Write::Delete(_) => TxnOp::delete(key, None),
            }
        };
        let mut writes: Vec<_> = batch.writes.iter().map(write).collect();
        if writes.is_empty() {
            // A transaction without operations is answered from the member's own, possibly old, state.
            writes.push(TxnOp::get(self.prepend_to("about"), Some(GetOptions::new().with_keys_only())));
        }
        Txn::new()
            .when(batch.checks.iter().map(compare).collect::<Vec<_>>())
            .and_then(writes)
            .or_else(batch.checks.iter().map(look).collect::<Vec<_>>())
    }
}

/// Returns the key of the first failed check from the transaction's response.
pub(super) fn conflict(checks: &[Check], response: &TxnResponse) -> Option<Key> {
    let results = response.op_responses();
    let mut pairs = checks.iter().zip(&results);
    pairs.find_map(|(check, result)| {
        let TxnOpResponse::Get(response) = result else { return None };
        let modified = response.kvs().first().map(|record| revision(record.mod_revision()));
        let holds = match check {
            Check::Absent(_) => modified.is_none(),
            Check::Unchanged(_, at) => modified == Some(*at),
        };
        (!holds).then(|| check.key().clone())
    })
}

/// Converts an etcd revision; they start at 1.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// Converts to an etcd revision; saturates beyond its range, where no record exists.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
