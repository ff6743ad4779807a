//! Cache of responses to reads, valid until the next write to the store.
//!
//! Authorizing, reading and encoding a response costs several times as much as sending it, and ten thousand blocking queries
//! may ask for the same. The caller is part of the key: its rights change by a write, or when its token expires.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Body as _;
use parking_lot::Mutex;

use super::query_string::ConsistencyMode;
use super::response::ResponseBody;
use crate::model::id::Id;
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;
use crate::store::Revision;

/// Responses by request, all read at one revision of the store.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    contents: Mutex<CacheContents>,
    /// Hasher of the keys, seeded per process against crafted collisions.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct CacheContents {
    revision: Revision,
    /// Entries by the hash of their key, which is not hashed again.
    entries: BTreeMap<u64, CacheEntry>,
    /// Size of all entries in bytes.
    size: usize,
}

#[derive(Debug)]
struct CacheEntry {
    key: Arc<CacheKey>,
    status: StatusCode,
    headers: HeaderMap,
    body: Full<Bytes>,
    index: Revision,
    watch: Arc<[String]>,
    accessor: Option<Id>,
    until: Option<Timestamp>,
    /// Size of the body and of the key in bytes.
    size: usize,
}

/// Response as HTTP, with the index and the keys that a blocking query needs.
#[derive(Debug)]
pub(super) struct CachedResponse {
    pub(super) response: Response<ResponseBody>,
    pub(super) index: Revision,
    pub(super) watch: Arc<[String]>,
    /// Accessor of the caller's token, for the audit; `None` for the anonymous token.
    pub(super) accessor: Option<Id>,
}

/// Maximum size of all entries in bytes. Beyond it the cache is cleared: frequent requests fill it again at once.
const MAX_SIZE: usize = 4 * 1024 * 1024;

/// Estimated size of an entry without its body and the texts of its key, in bytes.
const ENTRY_OVERHEAD: usize = 2048;

/// Largest body that is cached, together with the texts of its key, in bytes.
const MAX_BODY: usize = MAX_SIZE / 64;

/// Everything that a response depends on besides the store's records and the time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    /// Keyed hash of the caller's secret; `None` for an anonymous caller.
    pub(super) caller: Option<SecretHash>,
    /// Index of the read in the table of operations.
    pub(super) operation: usize,
    pub(super) subject: String,
    /// The query without its blocking parameters.
    pub(super) query: String,
    /// Namespace of the query or a header.
    pub(super) namespace: Option<String>,
    /// Consistency mode, which a header of the response repeats.
    pub(super) mode: ConsistencyMode,
}

impl CacheKey {
    /// Returns the size of its texts in bytes, which the caller chooses.
    fn size(&self) -> usize {
        self.subject.len() + self.query.len() + self.namespace.as_ref().map_or(0, String::len)
    }
}

/// Cache key with its hash, shared by all requests for the same: a blocking query looks it up after each change.
#[derive(Debug)]
pub(super) struct HashedKey {
    key: Arc<CacheKey>,
    hash: u64,
}

impl HashedKey {
    fn matches(&self, entry: &CacheEntry) -> bool {
        Arc::ptr_eq(&entry.key, &self.key) || entry.key == self.key
    }
}

impl ResponseCache {
    /// Hashes a key; shares the key of the cached entry if there is one.
    pub(super) fn hash_key(&self, key: CacheKey) -> HashedKey {
        let hash = self.hasher.hash_one(&key);
        let contents = self.contents.lock();
        let cached_key = contents.entries.get(&hash).filter(|entry| *entry.key == key);
        HashedKey { hash, key: cached_key.map_or_else(|| Arc::new(key), |entry| Arc::clone(&entry.key)) }
    }

    /// Returns the response if the store is still at `revision`, and neither the caller's token nor the token shown has
    /// expired since.
    pub(super) fn get(&self, key: &HashedKey, revision: Revision, now: Timestamp) -> Option<CachedResponse> {
        let contents = self.contents.lock();
        let entry = contents.entries.get(&key.hash);
        let entry = entry.filter(|entry| contents.revision == revision && key.matches(entry))?;
        if entry.until.is_some_and(|until| until <= now) {
            return None;
        }
        let mut response = Response::new(Either::Left(entry.body.clone()));
        *response.status_mut() = entry.status;
        response.headers_mut().clone_from(&entry.headers);
        let watch = Arc::clone(&entry.watch);
        let accessor = entry.accessor;
        Some(CachedResponse { response, index: entry.index, watch, accessor })
    }

    /// Inserts a response that was read at `revision` or later, and is valid until `until` at most. Streamed bodies are not
    /// cached.
    pub(super) fn insert(
        &self,
        key: &HashedKey,
        revision: Revision,
        result: &CachedResponse,
        until: Option<Timestamp>,
    ) {
        let Either::Left(body) = result.response.body() else { return };
        let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let size = size.map(|size| size.saturating_add(key.key.size()));
        let Some(size) = size.filter(|size| *size <= MAX_BODY) else { return };
        let mut contents = self.contents.lock();
        if contents.revision > revision {
            return;
        }
        if contents.revision < revision || contents.size + size + ENTRY_OVERHEAD > MAX_SIZE {
            *contents = CacheContents { revision, ..CacheContents::default() };
        }
        let entry = CacheEntry {
            key: Arc::clone(&key.key),
            status: result.response.status(),
            headers: result.response.headers().clone(),
            body: body.clone(),
            index: result.index,
            watch: Arc::clone(&result.watch),
            accessor: result.accessor,
            until,
            size,
        };
        if let Some(replaced) = contents.entries.insert(key.hash, entry) {
            contents.size -= replaced.size + ENTRY_OVERHEAD;
        }
        contents.size += size + ENTRY_OVERHEAD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_queries_count_in_the_size_of_the_cache() {
        let cache = ResponseCache::default();
        let mut inserted = 0;
        for number in 0..1000 {
            let query = format!("{number}={}", "x".repeat(16 * 1024));
            inserted += query.len();
            let key = CacheKey {
                caller: None,
                operation: 0,
                subject: String::new(),
                query,
                namespace: None,
                mode: ConsistencyMode::Default,
            };
            let response = Response::new(Either::Left(Full::new(Bytes::from_static(b"[]"))));
            let result = CachedResponse { response, index: Revision(1), watch: Arc::from(Vec::new()), accessor: None };
            cache.insert(&cache.hash_key(key), Revision(1), &result, None);
        }
        assert!(inserted > 2 * MAX_SIZE);
        let contents = cache.contents.lock();
        let held: usize = contents.entries.values().map(|entry| entry.key.query.len()).sum();
        assert!((1..=MAX_SIZE).contains(&held), "{held} bytes of queries");
    }
}
