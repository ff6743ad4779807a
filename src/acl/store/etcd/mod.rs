//! Store on an etcd cluster (3.4 or later), shared by any number of equal servers.
//!
//! etcd's revisions are the store's. One watch reports changes of other servers; own writes are reported without
//! waiting for it.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

mod options;
mod error;
mod keys;
mod connect;
mod members;
mod watch;
mod reads;
mod export;
mod probe;

pub use self::options::{EtcdLogin, EtcdOptions, is_address, is_prefix};

use self::connect::{EtcdTls, LeaderRequirement};
use self::error::{FailureKind, MemberErrors};
pub(super) use self::export::Export;
use self::keys::{Prefix, conflict, revision};
use self::members::Members;
pub use self::probe::probe;
use self::watch::ChangeWatch;
use super::revisions::KindRevisions;
use super::watchers::Watchers;
use super::{
    Batch, CommitError, FORMAT, Freshness, Key, Listing, OpenError, Page, Record, Revision, Store, StoreError,
};

/// A store on an etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    /// Members for linearizable reads and writes.
    members: Arc<Members>,
    /// Members for stale reads, which may be partitioned.
    nearest: Members,
    prefix: Prefix,
    kinds: Arc<KindRevisions>,
    watchers: Arc<Watchers>,
    /// Running writes: they continue if the caller goes away.
    commits: TaskTracker,
    /// Watch task; aborted on drop.
    _watch: JoinSet<()>,
}

/// Metadata of the store, under the key `about`.
#[derive(Debug, Serialize, Deserialize)]
struct StoreMetadata {
    format: String,
    datacenter: String,
}

impl Etcd {
    /// Opens the store and creates it if missing.
    pub async fn open(options: &EtcdOptions, datacenter: &str) -> Result<Self, OpenError> {
        let store = || options.to_string();
        let shared = Arc::new(options.clone());
        let tls = EtcdTls::new(&shared)?;
        let members = Arc::new(Members::new(&shared, &tls, LeaderRequirement::Required).await?);
        let nearest = Members::new(&shared, &tls, LeaderRequirement::NotRequired).await?;
        let unreachable = |errors: MemberErrors| OpenError::Unreachable {
            store: store(),
            advice: match errors.kind() {
                FailureKind::Refused | FailureKind::Unauthenticated => {
                    "check its users and roles, and user and password_file"
                }
                _ => "check that it is running and that addresses and certificates are right",
            },
            source: errors.into(),
        };
        let prefix = Prefix(options.prefix.clone());
        let (metadata, now) = read_or_init_metadata(&members, &prefix, datacenter).await.map_err(unreachable)?;
        let metadata: StoreMetadata = serde_json::from_slice(&metadata).map_err(|_| OpenError::Damaged {
            store: store(),
            source: StoreError::Unreadable { key: "about".to_owned() },
        })?;
        if metadata.format != FORMAT {
            return Err(OpenError::Format { store: store(), found: metadata.format });
        }
        if metadata.datacenter != datacenter {
            let expected = datacenter.to_owned();
            return Err(OpenError::Datacenter { store: store(), found: metadata.datacenter, expected });
        }
        let kinds = Arc::new(KindRevisions::default());
        let watchers = Arc::new(Watchers::default());
        // The watch begins after this revision: of earlier changes only this bound is known.
        kinds.raise_lower_bound(now);
        let follower = ChangeWatch {
            members: Arc::clone(&members),
            prefix: prefix.clone(),
            kinds: Arc::clone(&kinds),
            watchers: Arc::clone(&watchers),
        };
        let from = Revision(now.0 + 1);
        let stream = follower.begin(from).await.map_err(unreachable)?;
        let mut watch = JoinSet::new();
        watch.spawn(follower.run(stream, from));
        Ok(Self { members, nearest, prefix, kinds, watchers, commits: TaskTracker::new(), _watch: watch })
    }
}

/// Returns the store's metadata, written by the first server, and etcd's revision.
async fn read_or_init_metadata(
    members: &Members,
    prefix: &Prefix,
    datacenter: &str,
) -> Result<(Vec<u8>, Revision), MemberErrors> {
    let metadata = StoreMetadata { format: FORMAT.to_owned(), datacenter: datacenter.to_owned() };
    let key = prefix.prepend_to("about");
    let metadata = serde_json::to_vec(&metadata).unwrap_or_default();
    // The transaction is idempotent.
    let response = members.read(members.deadline(), |client: Client| {
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), metadata.clone(), None)])
            .or_else([TxnOp::get(key.clone(), None)]);
        async move { client.kv_client().txn(txn).await }
    });
    let response = response.await?;
    let existing = response.op_responses().into_iter().find_map(|operation| match operation {
        TxnOpResponse::Get(response) => Some(response.kvs().first()?.value().to_vec()),
        _ => None,
    });
    Ok((existing.unwrap_or(metadata), at(response.header())))
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError> {
        let mut response =
            self.range(key.kind(), self.prefix.prepend_to(key.as_str()), GetOptions::new(), freshness).await?;
        let record = response.take_kvs().into_iter().next();
        record.map(|record| Ok(self.prefix.record(record)?.1)).transpose()
    }

    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError> {
        Ok(self.page(prefix, &page, freshness).await?)
    }

    async fn export(&self) -> Result<super::Export, StoreError> {
        let export = Export::begin(&self.members, &self.prefix).await?;
        Ok(super::Export(super::ExportSource::Etcd(export)))
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let batch = batch.normalize()?;
        let members = Arc::clone(&self.members);
        let prefix = self.prefix.clone();
        let kinds = Arc::clone(&self.kinds);
        let watchers = Arc::clone(&self.watchers);
        let written = self.commits.spawn(async move {
            let ask = |client: Client| {
                let transaction = prefix.transaction(&batch);
                async move { client.kv_client().txn(transaction).await }
            };
            let response = if batch.writes.is_empty() {
                members.read(members.deadline(), ask).await?
            } else {
                members.write(ask).await?
            };
            if !response.succeeded() {
                // etcd compared and read the records in one transaction, so one check must have failed.
                let key = conflict(&batch.checks, &response);
                return Err(key.map_or(CommitError::Unknown(StoreError::Stopped), CommitError::Conflict));
            }
            let at = at(response.header());
            kinds.record(batch.writes.iter().map(|write| (write.key().kind(), at)));
            watchers.wake(&batch.writes);
            Ok(at)
        });
        written.await.unwrap_or(Err(CommitError::Unknown(StoreError::Stopped)))
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        let watcher = self.watchers.watch(prefix);
        loop {
            let mut changed = std::pin::pin!(watcher.changed());
            // Registered before the revision is read, so that no change in between is missed.
            changed.as_mut().enable();
            let revision = self.kinds.last(kind_of(prefix));
            if revision > since {
                return Ok(revision);
            }
            // A change reported twice, as after a reconnect, only causes a spurious wakeup.
            changed.await;
        }
    }
}

fn at(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(Revision(0), |header| revision(header.revision()))
}

fn kind_of(prefix: &str) -> &str {
    prefix.split('/').next().unwrap_or_default()
}
