//! Revision of the last change of each kind of record, as far as this server knows.

use parking_lot::RwLock;

use super::Revision;

/// Revisions by kind. They only increase.
#[derive(Debug, Default)]
pub(super) struct KindRevisions(RwLock<Revisions>);

#[derive(Debug, Default)]
struct Revisions {
    /// Lower bound for all kinds: earlier changes were not watched.
    all: Revision,
    /// A list: with so few kinds, searching is cheaper than hashing.
    each: Vec<(Box<str>, Revision)>,
}

impl KindRevisions {
    /// Returns the revision of the last change of a kind, or a later one.
    pub(super) fn last(&self, kind: &str) -> Revision {
        let revisions = self.0.read();
        let entry = revisions.each.iter().find(|(entry_kind, _)| **entry_kind == *kind);
        entry.map(|(_, at)| *at).unwrap_or_default().max(revisions.all)
    }

    /// Records changes of several kinds atomically.
    pub(super) fn record<'a>(&self, kinds: impl IntoIterator<Item = (&'a str, Revision)>) {
        let mut revisions = self.0.write();
        for (kind, at) in kinds {
            match revisions.each.iter_mut().find(|(entry_kind, _)| **entry_kind == *kind) {
                Some((_, last)) => *last = at.max(*last),
                None => revisions.each.push((kind.into(), at)),
            }
        }
    }

    /// Sets the lower bound: changes up to `at` are unknown.
    #[cfg(feature = "etcd")]
    pub(super) fn raise_lower_bound(&self, at: Revision) {
        let mut revisions = self.0.write();
        revisions.all = at.max(revisions.all);
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;

    #[test]
    fn a_revision_never_decreases() {
        let kinds = KindRevisions::default();
        kinds.raise_lower_bound(Revision(5));
        assert_eq!(kinds.last("a"), Revision(5));
        kinds.record([("a", Revision(9))]);
        kinds.record([("a", Revision(7))]);
        assert_eq!((kinds.last("a"), kinds.last("b")), (Revision(9), Revision(5)));
        kinds.raise_lower_bound(Revision(8));
        kinds.raise_lower_bound(Revision(6));
        assert_eq!((kinds.last("a"), kinds.last("b")), (Revision(9), Revision(8)));
    }
}
