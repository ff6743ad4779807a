//! The last change of each kind of record, as far as this server has been told.

use std::sync::{PoisonError, RwLock};

use super::Revision;

/// Revisions by kind. They only grow.
#[derive(Debug, Default)]
pub(super) struct Kinds(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Of any kind something may have changed up to here: what was before was not watched.
    all: Revision,
    /// Few enough that to look through them costs less than to hash.
    each: Vec<(Box<str>, Revision)>,
}

impl Kinds {
    /// The last change of that kind, or later.
    pub(super) fn last(&self, kind: &str) -> Revision {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.each.iter().find(|(its, _)| **its == *kind);
        found.map(|(_, at)| *at).unwrap_or_default().max(known.all)
    }

    /// Something of those kinds was changed. Whoever sees one of them sees all.
    pub(super) fn changed<'a>(&self, kinds: impl IntoIterator<Item = (&'a str, Revision)>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (kind, at) in kinds {
            match known.each.iter_mut().find(|(its, _)| **its == *kind) {
                Some((_, last)) => *last = at.max(*last),
                None => known.each.push((kind.into(), at)),
            }
        }
    }

    /// What was changed up to then is not known.
    #[cfg(feature = "etcd")]
    pub(super) fn unknown_until(&self, at: Revision) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.all = at.max(known.all);
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;

    #[test]
    fn a_revision_never_goes_back() {
        let kinds = Kinds::default();
        kinds.unknown_until(Revision(5));
        assert_eq!(kinds.last("a"), Revision(5));
        kinds.changed([("a", Revision(9))]);
        kinds.changed([("a", Revision(7))]);
        assert_eq!((kinds.last("a"), kinds.last("b")), (Revision(9), Revision(5)));
        kinds.unknown_until(Revision(8));
        kinds.unknown_until(Revision(6));
        assert_eq!((kinds.last("a"), kinds.last("b")), (Revision(9), Revision(8)));
    }
}
