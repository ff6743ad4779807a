//! The store on an etcd cluster (3.4 or later), where one machine is outgrown: any number of servers share it, none of
//! which leads.
//!
//! etcd's revisions are the store's. What other servers change is told by one watch; what this one wrote is told
//! without waiting for it.

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

pub use self::options::{Login, Options, PREFIX_FORM, is_address, is_prefix};

use self::connect::Leader;
use self::error::{Kind, Troubles};
pub(super) use self::export::Export;
use self::keys::{Prefix, conflict, revision};
use self::members::Members;
use self::watch::Watch;
use super::revisions::Kinds;
use super::watchers::Watchers;
use super::{
    Batch, CommitError, FORMAT, Freshness, Key, Listing, OpenError, Page, Record, Revision, Store, StoreError,
};

/// A store on an etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    /// Asked by those who want the newest, and for writes.
    members: Arc<Members>,
    /// Asked by those who take what a member has, which may be cut off from the others.
    nearest: Members,
    prefix: Prefix,
    kinds: Arc<Kinds>,
    watchers: Arc<Watchers>,
    /// Writes under way: they go on when who asked for them has gone.
    commits: TaskTracker,
    /// The watch; it ends with the store.
    _watch: JoinSet<()>,
}

/// What the store says of itself, under the key `about`.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    format: String,
    datacenter: String,
}

impl Etcd {
    /// Opens the store, which is begun where there is none yet.
    ///
    /// # Errors
    /// A file cannot be used, no member answers, the user is refused, or the store belongs to another datacenter.
    pub async fn open(options: &Options, datacenter: &str) -> Result<Self, OpenError> {
        let store = || options.to_string();
        let shared = Arc::new(options.clone());
        let members = Arc::new(Members::new(&shared, Leader::Needed).await?);
        let nearest = Members::new(&shared, Leader::NotNeeded).await?;
        let unreachable = |troubles: Troubles| OpenError::Unreachable {
            store: store(),
            advice: match troubles.kind() {
                Kind::Refused | Kind::LoggedOut => "look at its users and roles, and at user and password_file",
                _ => "is it running, are addresses and certificates right?",
            },
            source: troubles.into(),
        };
        let prefix = Prefix(options.prefix.clone());
        let (about, now) = introduce(&members, &prefix, datacenter).await.map_err(unreachable)?;
        let about: About = serde_json::from_slice(&about).map_err(|_| OpenError::Damaged {
            store: store(),
            source: StoreError::Unreadable { key: "about".to_owned() },
        })?;
        if about.format != FORMAT {
            return Err(OpenError::Format { store: store(), found: about.format });
        }
        if about.datacenter != datacenter {
            let wanted = datacenter.to_owned();
            return Err(OpenError::Datacenter { store: store(), found: about.datacenter, wanted });
        }
        let (kinds, watchers) = (Arc::new(Kinds::default()), Arc::new(Watchers::default()));
        kinds.unknown_until(now);
        let follower = Watch {
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

/// The store's description, written by the first who comes, and etcd's revision.
async fn introduce(members: &Members, prefix: &Prefix, datacenter: &str) -> Result<(Vec<u8>, Revision), Troubles> {
    let about = About { format: FORMAT.to_owned(), datacenter: datacenter.to_owned() };
    let (key, about) = (prefix.with("about"), serde_json::to_vec(&about).unwrap_or_default());
    // To have this done twice is no harm.
    let answer = members.read(members.end(), |client: Client| {
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), about.clone(), None)])
            .or_else([TxnOp::get(key.clone(), None)]);
        async move { client.kv_client().txn(txn).await }
    });
    let answer = answer.await?;
    let found = answer.op_responses().into_iter().find_map(|found| match found {
        TxnOpResponse::Get(found) => Some(found.kvs().first()?.value().to_vec()),
        _ => None,
    });
    Ok((found.unwrap_or(about), at(answer.header())))
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError> {
        let mut found = self.range(key.kind(), self.prefix.with(key.as_str()), GetOptions::new(), freshness).await?;
        let record = found.take_kvs().into_iter().next();
        record.map(|record| Ok(self.prefix.record(record)?.1)).transpose()
    }

    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError> {
        Ok(self.page(prefix, &page, freshness).await?)
    }

    async fn export(&self) -> Result<super::Export, StoreError> {
        let export = Export::begin(&self.members, &self.prefix).await?;
        Ok(super::Export(super::Exported::Etcd(export)))
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let batch = batch.settled()?;
        let (members, prefix) = (Arc::clone(&self.members), self.prefix.clone());
        let (kinds, watchers) = (Arc::clone(&self.kinds), Arc::clone(&self.watchers));
        let written = self.commits.spawn(async move {
            let ask = |client: Client| {
                let transaction = prefix.transaction(&batch);
                async move { client.kv_client().txn(transaction).await }
            };
            let answer = if batch.writes.is_empty() {
                members.read(members.end(), ask).await?
            } else {
                members.write(ask).await?
            };
            if !answer.succeeded() {
                // etcd compared the records and told them at one moment, so that there is one that does not hold.
                let key = conflict(&batch.checks, &answer);
                return Err(key.map_or(CommitError::Unknown(StoreError::Stopped), CommitError::Conflict));
            }
            let at = at(answer.header());
            kinds.changed(batch.writes.iter().map(|write| (write.key().kind(), at)));
            watchers.wake(&batch.writes);
            Ok(at)
        });
        written.await.unwrap_or(Err(CommitError::Unknown(StoreError::Stopped)))
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        let watcher = self.watchers.watch(prefix);
        loop {
            let mut changed = std::pin::pin!(watcher.changed());
            // Registered before the look, so that a change right after it is not missed.
            changed.as_mut().enable();
            let revision = self.kinds.last(kind_of(prefix));
            if revision > since {
                return Ok(revision);
            }
            // What is told twice, as after a lost connection, wakes for nothing.
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
