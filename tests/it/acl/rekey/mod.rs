//! Rotation of the sealing key while tokens are in use: none is lost, duplicated or left behind.

mod races;
mod served;
mod stopped;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use keyward::acl::model::authorize::DefaultPolicy;
use keyward::acl::model::names::NamespaceName;
use keyward::acl::model::secret::PlainSecret;
use keyward::acl::service::acl_service::AclService;
use keyward::acl::service::caller::Caller;
use keyward::acl::service::seal::Sealer;
use keyward::acl::service::tokens::{CreatedToken, TokenDraft};
use keyward::acl::store::{
    Batch, CommitError, Export, Freshness, Key, Listing, Page, Record, Revision, Store, StoreError,
};
use keyward::clock::{Clock, TestClock};
use tokio::sync::Notify;

/// Enough pages for all tokens of a test.
const ALL: usize = 100;

/// Store that can stop before a batch, or delay reads of a key prefix.
#[derive(Debug)]
struct StoreFaults {
    store: Arc<dyn Store>,
    /// Batches that are written before the failure.
    batches: AtomicUsize,
    /// Prefix of a read that is delayed once and then returns the old value.
    held: &'static str,
    reached: AtomicBool,
    open: Notify,
    /// Pretends that other servers use the store.
    shared: bool,
}

impl StoreFaults {
    fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
            batches: AtomicUsize::new(usize::MAX),
            held: "nothing",
            reached: AtomicBool::new(false),
            open: Notify::new(),
            shared: false,
        }
    }

    async fn hold_up(&self, what: &str) {
        if what.starts_with(self.held) && !self.reached.swap(true, Ordering::SeqCst) {
            self.open.notified().await;
        }
    }

    async fn is_reached(&self) {
        while !self.reached.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Store for StoreFaults {
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError> {
        let found = self.store.get(key, freshness).await;
        self.hold_up(key.as_str()).await;
        found
    }

    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError> {
        let listing = self.store.list(prefix, page, freshness).await;
        self.hold_up(prefix).await;
        listing
    }

    async fn export(&self) -> Result<Export, StoreError> {
        self.store.export().await
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let left = self.batches.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map_err(|_| StoreError::Stopped)?;
        self.store.commit(batch).await
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        self.store.changed(prefix, since).await
    }

    fn last(&self, kind: &str) -> Option<Revision> {
        self.store.last(kind).filter(|_| !self.shared)
    }
}

fn default_namespace() -> NamespaceName {
    NamespaceName::default_namespace()
}

/// Builds a line of a key file.
fn line(digit: char) -> String {
    format!("{}\n", digit.to_string().repeat(64))
}

/// Writes a key file.
fn key_file(folder: &Path, name: &str, digits: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, digits.chars().map(line).collect::<String>()).unwrap();
    path
}

async fn server(store: Arc<dyn Store>, key_file: &Path, clock: &TestClock) -> AclService {
    let sealer = Sealer::open(key_file, &*store).await.unwrap();
    let clock = Clock::Test(clock.clone());
    let service = AclService::new(store, sealer, "dc1".to_owned(), DefaultPolicy::Deny, clock);
    service.create_builtins().await.unwrap();
    service
}

/// Creates the bootstrap token; returns its secret and caller.
async fn first(server: &AclService) -> (PlainSecret, Arc<Caller>) {
    let secret = PlainSecret::random();
    server.bootstrap(&secret, None).await.unwrap();
    let caller = caller(server, &secret).await;
    (secret, caller)
}

async fn caller(server: &AclService, secret: &PlainSecret) -> Arc<Caller> {
    server.authenticator().authenticate(Some(secret), Freshness::Linearizable).await.unwrap()
}

async fn token(server: &AclService, caller: &Caller, description: String) -> CreatedToken {
    let draft = TokenDraft { description, ..TokenDraft::default() };
    server.tokens().create(caller, &default_namespace(), &draft).await.unwrap()
}

async fn records(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    let mut export = store.export().await.unwrap();
    let all = export.next(100_000).await.unwrap();
    all.into_iter().map(|(key, record)| (key.as_str().to_owned(), record.value.to_vec())).collect()
}

/// Returns the key ids of the store and its tokens, the key record's first one in front. Checks that each token has its
/// two index entries and that there are no others.
async fn keys_in_use(store: &dyn Store) -> Vec<String> {
    let all = records(store).await;
    let named = all.iter().find(|(key, _)| key == "seal/key").unwrap();
    let mut named: Vec<String> = String::from_utf8(named.1.clone()).unwrap().split(' ').map(str::to_owned).collect();
    let tokens: Vec<serde_json::Value> = all
        .iter()
        .filter(|(key, _)| key.starts_with("token/"))
        .map(|(_, value)| serde_json::from_slice(value).unwrap())
        .collect();
    let accessors: BTreeSet<_> = tokens.iter().map(|token| token["birth"]["accessor_id"].to_string()).collect();
    let rows: Vec<serde_json::Value> = all
        .iter()
        .filter(|(key, _)| key.starts_with("token-id/"))
        .map(|(_, value)| serde_json::from_slice(value).unwrap())
        .collect();
    assert_eq!(rows.len(), 2 * tokens.len(), "each token is found by its secret and by its accessor, and nothing else");
    assert!(rows.iter().all(|row| accessors.contains(&row["accessor"].to_string())));
    for token in tokens {
        let id = token["birth"]["sealed_secret"]["key_id"].as_str().unwrap().to_owned();
        if !named.contains(&id) {
            named.push(id);
        }
    }
    named
}
