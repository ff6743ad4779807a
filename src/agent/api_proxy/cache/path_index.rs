//! Index of cache keys by request path. A prefix search visits no other keys.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::CacheKey;

/// Keys by full path, which is namespace and path as the server joins them.
#[derive(Debug, Default)]
pub(super) struct PathIndex(BTreeSet<ByPath>);

/// A key that is ordered by its full path, and then by the rest of it.
#[derive(Debug, PartialEq, Eq)]
struct ByPath(Arc<CacheKey>);

impl Ord for ByPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.full_path().cmp(other.0.full_path()).then_with(|| self.0.cmp_parts(&other.0))
    }
}

impl PartialOrd for ByPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PathIndex {
    /// Memory for a key besides the key itself, in bytes.
    pub(super) const OVERHEAD: usize = size_of::<ByPath>();

    pub(super) fn insert(&mut self, key: Arc<CacheKey>) {
        self.0.insert(ByPath(key));
    }

    pub(super) fn remove(&mut self, key: Arc<CacheKey>) {
        self.0.remove(&ByPath(key));
    }

    /// Returns the keys whose full path starts with the one of `namespace` and `path`.
    pub(super) fn with_prefix(&self, namespace: &str, path: &str) -> Vec<Arc<CacheKey>> {
        let start = ByPath(Arc::new(CacheKey::smallest(namespace, path)));
        let has_prefix = |key: &&ByPath| key.0.has_path_prefix(&start.0);
        self.0.range(&start..).take_while(has_prefix).map(|key| Arc::clone(&key.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api_proxy::cache::key::TokenScope;

    #[test]
    fn the_keys_below_a_path_are_those_whose_full_path_starts_with_it() {
        let requests = [
            ("", "a"),
            ("", "a/b"),
            ("", "a/b/c"),
            ("", "a/bc"),
            ("", "a!"),
            ("", "b"),
            ("a", "b"),
            ("a/b", "c"),
            ("a", "b/\u{e9}"),
            ("team", "a/b"),
        ];
        let scopes = [TokenScope::Session, TokenScope::Anonymous, TokenScope::from_token(b"token")];
        let all: Vec<_> = requests
            .into_iter()
            .flat_map(|(namespace, path)| scopes.map(|scope| (scope, namespace, path)))
            .flat_map(|(scope, namespace, path)| {
                [(Method::GET, None), (Method::GET, Some("list=true")), (Method::PUT, None)]
                    .map(|(method, query)| Arc::new(CacheKey::new(scope, &method, namespace, path, query, b"body")))
            })
            .collect();
        let mut index = PathIndex::default();
        for key in &all {
            index.insert(Arc::clone(key));
            index.insert(Arc::new(CacheKey::clone(key)));
        }
        let text = |key: &CacheKey| String::from_utf8(key.full_path().collect()).unwrap();
        for (namespace, path) in requests.into_iter().chain([("", ""), ("", "a/"), ("/a/", "b/"), ("x", ""), ("", "z")])
        {
            let prefix = CacheKey::smallest(namespace, path);
            let mut expected: Vec<_> =
                all.iter().filter(|key| text(key).starts_with(&text(&prefix))).cloned().collect();
            expected.sort_by(|a, b| ByPath(Arc::clone(a)).cmp(&ByPath(Arc::clone(b))));
            assert_eq!(index.with_prefix(namespace, path), expected, "{namespace} {path}");
        }
        // Six of the requests lead there, three of them through a namespace; each has nine keys.
        assert_eq!(index.with_prefix("a", "b").len(), 6 * 9);
        for key in &all {
            index.remove(Arc::clone(key));
        }
        assert!(index.with_prefix("", "").is_empty());
    }
}
