//! Checksums: one per record, bound to its key, and one sum per kind that detects lost records.
//!
//! redb's page checksums are verified when the store is opened; these are verified on each read. Their key is random
//! and stored with the data: they detect damage, not forgery.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::hmac;
use keyward_telemetry::hex::encode_hex;

use super::{Revision, StoreError};

/// Length of a checksum, in bytes.
pub(super) const LENGTH: usize = 16;

/// Checksum of one record.
pub(super) type Checksum = [u8; LENGTH];

/// Computes the checksums of a store.
#[derive(Debug, Clone)]
pub(super) struct Checksums(Arc<hmac::Key>);

impl Checksums {
    /// Returns a new random key in its stored form.
    pub(super) fn new_key() -> Result<String, StoreError> {
        let mut key = [0; 32];
        let none = |_| StoreError::failed(std::io::Error::other("no random numbers"));
        aws_lc_rs::rand::fill(&mut key).map_err(none)?;
        Ok(encode_hex(&key))
    }

    /// Creates it from the stored key.
    pub(super) fn new(key: &str) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())))
    }

    /// Returns the checksum of a record.
    pub(super) fn record(&self, key: &str, created: Revision, modified: Revision, value: &[u8]) -> Checksum {
        self.sum(&[b"record", key.as_bytes(), &created.0.to_be_bytes(), &modified.0.to_be_bytes(), value])
    }

    /// Returns the checksum of a kind's totals.
    fn totals(&self, kind: &str, totals: &KindTotals) -> Checksum {
        let count = totals.count.to_be_bytes();
        let revision = totals.revision.0.to_be_bytes();
        self.sum(&[b"totals", kind.as_bytes(), &count, &totals.sum, &revision])
    }

    /// Each part is length-prefixed, so that parts cannot be shifted.
    fn sum(&self, parts: &[&[u8]]) -> Checksum {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut checksum = [0; LENGTH];
        checksum.copy_from_slice(&context.sign().as_ref()[..LENGTH]);
        checksum
    }
}

/// Number of records of a kind, order-independent sum of their checksums, and the kind's last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KindTotals {
    pub(super) count: u64,
    pub(super) sum: Checksum,
    pub(super) revision: Revision,
}

impl KindTotals {
    /// Length of encoded totals, in bytes.
    const BYTES: usize = 8 + LENGTH + 8 + LENGTH;

    pub(super) fn add(&mut self, checksum: &Checksum) {
        self.count += 1;
        self.toggle(checksum);
    }

    pub(super) fn remove(&mut self, checksum: &Checksum) {
        self.count = self.count.saturating_sub(1);
        self.toggle(checksum);
    }

    fn toggle(&mut self, checksum: &Checksum) {
        self.sum.iter_mut().zip(checksum).for_each(|(sum, byte)| *sum ^= byte);
    }

    pub(super) fn encode(&self, kind: &str, checksums: &Checksums) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend_from_slice(&self.count.to_be_bytes());
        bytes.extend_from_slice(&self.sum);
        bytes.extend_from_slice(&self.revision.0.to_be_bytes());
        bytes.extend_from_slice(&checksums.totals(kind, self));
        bytes
    }

    /// Decodes totals; `None` if damaged.
    pub(super) fn decode(kind: &str, checksums: &Checksums, bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (sum, rest) = rest.split_first_chunk()?;
        let (revision, checksum) = rest.split_first_chunk()?;
        let totals =
            Self { count: u64::from_be_bytes(*count), sum: *sum, revision: Revision(u64::from_be_bytes(*revision)) };
        (checksums.totals(kind, &totals) == checksum).then_some(totals)
    }
}

/// Totals of all kinds.
pub(super) type TotalsByKind = BTreeMap<String, KindTotals>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_depend_on_key_and_content_and_sums_ignore_order() {
        let checksums = Checksums::new(&Checksums::new_key().unwrap());
        let of = |key: &str, value: &[u8]| checksums.record(key, Revision(1), Revision(2), value);
        let one = of("token/a", b"x");
        let two = of("token/b", b"x");
        let three = of("token/a", b"y");
        assert_eq!(one, of("token/a", b"x"));
        assert!(one != two && one != three && one != of("token/ax", b""));
        assert_ne!(one, checksums.record("token/a", Revision(1), Revision(3), b"x"));
        assert_ne!(one, Checksums::new("another").record("token/a", Revision(1), Revision(2), b"x"));

        let mut totals = KindTotals { revision: Revision(7), ..KindTotals::default() };
        for checksum in [&one, &two, &three] {
            totals.add(checksum);
        }
        let mut others = KindTotals { revision: Revision(7), ..KindTotals::default() };
        for checksum in [&three, &one, &two] {
            others.add(checksum);
        }
        assert_eq!(totals, others);
        let encoded = totals.encode("token", &checksums);
        assert_eq!(KindTotals::decode("token", &checksums, &encoded), Some(totals.clone()));
        for place in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[place] ^= 1;
            assert_eq!(KindTotals::decode("token", &checksums, &damaged), None, "{place}");
        }
        assert_eq!(KindTotals::decode("role", &checksums, &encoded), None);
        for checksum in [&one, &two, &three] {
            totals.remove(checksum);
        }
        assert_eq!(totals, KindTotals { revision: Revision(7), ..KindTotals::default() });
    }
}
