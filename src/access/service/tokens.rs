//! Tokens: made, found by their secret, revoked, and destroyed after their end.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::seal::{SealError, Sealer};
use crate::access::model::id::Id;
use crate::access::model::secret::PlainSecret;
use crate::access::model::timestamp::Timestamp;
use crate::access::model::token::{Birth, Links, LoginOrigin, TokenRecord};
use crate::access::store::{Batch, Check, CommitError, Embedded, Key, Page, Revision, StoreError, Write};
use crate::clock::Clock;

/// The tokens of the store.
#[derive(Debug)]
pub struct Tokens {
    store: Arc<Embedded>,
    sealer: Sealer,
    clock: Clock,
}

/// What a new token is to be.
#[derive(Debug)]
pub struct NewToken {
    /// Free text.
    pub description: String,
    /// What it may do.
    pub links: Links,
    /// The namespace it lives in.
    pub namespace: String,
    /// Whether it counts in this datacenter only.
    pub local: bool,
    /// How long it lives; for ever if absent.
    pub ttl: Option<Duration>,
    /// The login that makes it.
    pub login: Option<LoginOrigin>,
}

/// A token that counted when it was read.
#[derive(Debug, Clone)]
pub struct Live {
    /// The token.
    pub record: TokenRecord,
    /// When it was made, as a point of the store's history.
    pub created: Revision,
    /// When it was last changed.
    pub modified: Revision,
    /// When it was read.
    pub read: Timestamp,
}

impl Tokens {
    /// Those of that store, with secrets sealed by `sealer`.
    pub fn new(store: Arc<Embedded>, sealer: Sealer, clock: Clock) -> Self {
        Self { store, sealer, clock }
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        Timestamp::of(self.clock.now().wall)
    }

    /// Makes a token. It is on disk when this returns.
    ///
    /// # Errors
    /// The store or the crypto library failed.
    pub async fn create(&self, new: NewToken) -> Result<(Live, PlainSecret), ServiceError> {
        let now = self.now();
        let secret = PlainSecret::random();
        let accessor_id = Id::random();
        let birth = Birth {
            accessor_id,
            secret_hash: self.sealer.hash(&secret),
            sealed_secret: self.sealer.seal(accessor_id, &secret)?,
            namespace: new.namespace,
            local: new.local,
            create_time: now,
            expiration_time: new.ttl.map(|ttl| now.after(ttl)),
            login: new.login,
        };
        let record = TokenRecord::born(birth, new.description, new.links);
        let keys = Keys::of(&record);
        let mut writes = vec![
            Write::Put(keys.secret.clone(), encode(&accessor_id)?),
            Write::Put(keys.accessor.clone(), encode(&record)?),
        ];
        writes.extend(keys.end.map(|key| Write::Put(key, Vec::new())));
        let checks = vec![Check::Absent(keys.secret), Check::Absent(keys.accessor)];
        let revision = self.store.commit(Batch { checks, writes }).await?;
        Ok((Live { record, created: revision, modified: revision, read: now }, secret))
    }

    /// The token with that secret; `None` if there is none, or its end has come, swept or not.
    ///
    /// # Errors
    /// The store failed.
    pub async fn by_secret(&self, secret: &PlainSecret) -> Result<Option<Live>, ServiceError> {
        let key = by_secret(&self.sealer.hash(secret).to_hex());
        let Some(found) = self.store.get(&key).await? else { return Ok(None) };
        let live = self.by_accessor(decode(key.as_str(), &found.value)?).await?;
        Ok(live.filter(|live| !live.record.is_expired(live.read)))
    }

    async fn by_accessor(&self, accessor: Id) -> Result<Option<Live>, ServiceError> {
        let key = by_accessor(accessor);
        let Some(found) = self.store.get(&key).await? else { return Ok(None) };
        let record = decode(key.as_str(), &found.value)?;
        Ok(Some(Live { record, created: found.created, modified: found.modified, read: self.now() }))
    }

    /// Destroys a token; one that is gone already is no error.
    ///
    /// # Errors
    /// The store failed.
    pub async fn revoke(&self, token: &TokenRecord) -> Result<(), ServiceError> {
        self.store.commit(Batch { checks: Vec::new(), writes: Keys::of(token).deletes() }).await?;
        Ok(())
    }

    /// Destroys the tokens whose end has come, and says how many there were.
    ///
    /// # Errors
    /// The store failed. What was destroyed before stays so.
    pub async fn sweep(&self) -> Result<usize, ServiceError> {
        let until = self.now().sort_key();
        let mut swept = 0;
        loop {
            // Four writes a token at most: a page of them fits into one batch.
            let page = Page { after: None, limit: Batch::MAX_OPERATIONS / 4 };
            let listing = self.store.list("token-end/", page).await?;
            let mut writes = Vec::new();
            let mut found = 0;
            for (key, _) in listing.entries {
                let mut segments = key.as_str().split('/').skip(1);
                let (end, accessor) = (segments.next().unwrap_or_default(), segments.next().map(str::parse));
                if end > until.as_str() {
                    break;
                }
                found += 1;
                if let Some(Ok(accessor)) = accessor
                    && let Some(live) = self.by_accessor(accessor).await?
                    && live.record.is_expired(live.read)
                {
                    writes.extend(Keys::of(&live.record).deletes());
                }
                writes.push(Write::Delete(key));
            }
            if found == 0 {
                return Ok(swept);
            }
            self.store.commit(Batch { checks: Vec::new(), writes }).await?;
            swept += found;
        }
    }

    /// Sweeps once a minute until `stop`.
    pub async fn sweep_until(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.clock.sleep(SWEEP_EVERY)).await.is_some() {
            match self.sweep().await {
                Ok(0) => {}
                Ok(swept) => {
                    tracing::info!(event = "access.token.swept", swept, "destroyed tokens whose end has come");
                }
                Err(error) => {
                    tracing::warn!(event = "access.sweep.failed", %error, "cannot destroy tokens whose end has come");
                }
            }
        }
    }
}

/// Between two sweeps. Nothing depends on it: a token is refused from its end on, swept or not.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// The records of one token.
struct Keys {
    accessor: Key,
    secret: Key,
    end: Option<Key>,
}

impl Keys {
    fn of(token: &TokenRecord) -> Self {
        let birth = token.birth();
        let accessor = birth.accessor_id.to_string();
        Self {
            accessor: by_accessor(birth.accessor_id),
            secret: by_secret(&birth.secret_hash.to_hex()),
            end: birth.expiration_time.map(|end| Key::of(&["token-end", &end.sort_key(), &accessor])),
        }
    }

    fn deletes(self) -> Vec<Write> {
        [self.secret, self.accessor].into_iter().chain(self.end).map(Write::Delete).collect()
    }
}

fn by_accessor(accessor: Id) -> Key {
    Key::of(&["token", &accessor.to_string()])
}

fn by_secret(hash: &str) -> Key {
    Key::of(&["token-secret", hash])
}

pub(super) fn encode(record: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    serde_json::to_vec(record).map_err(ServiceError::Encode)
}

pub(super) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, ServiceError> {
    serde_json::from_slice(value).map_err(|_| StoreError::Unreadable { key: key.to_owned() }.into())
}

/// Why the service could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refused a batch.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A secret could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A record could not be written as JSON.
    #[error("a record cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
}
