//! A snapshot takes the place of all that is in the store.
//!
//! It is judged first, as a whole. Then the mark is put, which shuts the store for everyone else ([`Mark`]); what is under
//! way is given time to end; records are replaced in batches; and the namespaces, without which nothing can be reached,
//! come back last, with the mark's end. A restore that broke off leaves the mark, and the next one begins anew.

use std::collections::VecDeque;
use std::time::Duration;

use super::restore_writes::Writes;
use super::spool::{Pieces, Spool, invalid};
use super::{Restored, in_a_restore, permitted};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::snapshot::{Header, Piece, SnapshotError};
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::restore_lock::Mark;
use crate::acl::service::seal;
use crate::acl::store::{Batch, Check, CommitError, Export, Freshness, Key, Page, Revision, Write};
use crate::error_chain::format_chain;

/// Who may restore.
#[derive(Debug)]
pub struct Restorer {
    accessor: Option<Id>,
    /// The mark that was there already.
    mark: Option<Revision>,
}

/// After the mark was put, before anything is changed: who came in before it has its answer by then.
const DRAIN: Duration = Duration::from_secs(1);

/// Records and keys that are read at once.
const RECORDS: usize = 64;

const NAMESPACES: &str = "namespace/";

impl Directory {
    /// Who presents that secret, to restore: who has the privileges, or, where a restore has not ended, who began it.
    ///
    /// # Errors
    /// It is someone else; the store failed.
    pub async fn restorer(&self, presented: Option<&PlainSecret>) -> Result<Restorer, ServiceError> {
        let seen = self.gate.look(&self.records, Freshness::Linearizable).await?;
        let Some(mark) = seen.mark else {
            let caller = self.caller(presented, Freshness::Linearizable).await?;
            permitted(&caller)?;
            return Ok(Restorer { accessor: caller.accessor(), mark: None });
        };
        let same = match (&mark.value.by, presented) {
            // The record that names the keys may be of before or of the snapshot: each of the file's counts.
            (Some(by), Some(secret)) => self.sealer.keys().file.all().any(|key| key.hash(secret) == *by),
            (None, None) => true,
            _ => false,
        };
        if same {
            Ok(Restorer { accessor: mark.value.accessor, mark: Some(mark.modified) })
        } else {
            let text = "Permission denied: a restore has not ended, and the token that began it alone may restore now";
            Err(ServiceError::Forbidden(text.to_owned()))
        }
    }

    /// Judges what came, and puts it in the place of everything.
    pub(super) async fn restore(
        &self,
        presented: Option<&PlainSecret>,
        mut spool: Spool,
    ) -> Result<Restored, ServiceError> {
        let records = self.judge(&mut spool.pieces().await?).await?;
        // All that came may have taken a while.
        let restorer = self.restorer(presented).await?;
        let mark = self.shut(&restorer, presented).await?;
        tracing::warn!(event = "acl.restore.started", records, "the store is shut until it is restored");
        tokio::time::sleep(DRAIN).await;
        let revision = self.replace(&mut spool, mark).await?;
        self.gate.look(&self.records, Freshness::Linearizable).await?;
        Ok(Restored { records, revision, by: restorer.accessor })
    }

    /// Refuses what this server could not use, and says how many records there are.
    async fn judge(&self, pieces: &mut Pieces<'_>) -> Result<u64, ServiceError> {
        let home = keys::namespace(&NamespaceName::default_one());
        let mut has_home = false;
        while let Some(piece) = pieces.next().await? {
            match piece {
                Piece::Header(header) => self.fits(&header).await?,
                Piece::Record(key, value) => {
                    if in_a_restore(&key) || key.len() + value.len() > Batch::MAX_BYTES {
                        return Err(ServiceError::Invalid(format!("Invalid snapshot: no record is like {key}")));
                    }
                    has_home |= key == home.as_str();
                    if key == seal::record().as_str() {
                        self.opens(&String::from_utf8_lossy(&value))?;
                    }
                }
                Piece::End(_) if !has_home => {
                    return Err(ServiceError::Invalid("Invalid snapshot: it has no default namespace".to_owned()));
                }
                Piece::End(records) => {
                    // Nothing may come after it.
                    return match pieces.next().await? {
                        None => Ok(records),
                        Some(_) => Err(invalid(&SnapshotError::Longer)),
                    };
                }
            }
        }
        Err(invalid(&SnapshotError::CutOff))
    }

    async fn fits(&self, header: &Header) -> Result<(), ServiceError> {
        if header.datacenter != self.datacenter {
            return Err(ServiceError::Invalid(format!(
                "Invalid snapshot: it is of datacenter {:?}, and this server is of {:?}",
                header.datacenter, self.datacenter
            )));
        }
        let named = header.key_ids.join(" ");
        if self.opens(&named).is_err() {
            // The key may have been put into the file for this.
            let reread = self.sealer.reread(&self.key_record().await?, false).await;
            reread.map_err(|error| ServiceError::Invalid(format!("Invalid snapshot: {}", format_chain(&error))))?;
        }
        self.opens(&named)
    }

    /// Refuses what is sealed with keys of which this server lacks one.
    fn opens(&self, key_ids: &str) -> Result<(), ServiceError> {
        let keys = self.sealer.keys();
        match key_ids.split_whitespace().find(|id| keys.file.find(id).is_none()) {
            Some(id) => Err(ServiceError::Invalid(format!(
                "Invalid snapshot: its secrets are sealed with the key {id:?}, which is not in this server's key file"
            ))),
            None => Ok(()),
        }
    }

    /// Puts the mark, or takes over the one that is there.
    async fn shut(&self, restorer: &Restorer, presented: Option<&PlainSecret>) -> Result<Revision, ServiceError> {
        let key = keys::restore_mark();
        let keys = self.keys_now().await?;
        let by = presented.map(|secret| keys.current().hash(secret));
        let mark = Mark { by, accessor: restorer.accessor, began: self.now() };
        let value = serde_json::to_vec(&mark).map_err(ServiceError::Encode)?;
        let check = match restorer.mark {
            Some(at) => Check::Unchanged(key.clone(), at),
            None => Check::Absent(key.clone()),
        };
        let began = serde_json::to_vec(&mark.began).map_err(ServiceError::Encode)?;
        let writes = vec![Write::Put(key, value), Write::Put(keys::restore_last(), began)];
        let put = self.records.store().commit(Batch { checks: vec![check], writes }).await;
        let at = put.map_err(|error| match error {
            CommitError::Conflict(_) => ServiceError::Taken("another restore has just begun".to_owned()),
            other => other.into(),
        })?;
        self.gate.look(&self.records, Freshness::Linearizable).await?;
        Ok(at)
    }

    /// Replaces all records; what is the same is written too, so that everyone who waits is woken.
    async fn replace(&self, spool: &mut Spool, mark: Revision) -> Result<Revision, ServiceError> {
        let store = self.records.store();
        let mut writes = Writes::new(store, mark);
        let mut after = None;
        loop {
            let page = Page { after, limit: RECORDS };
            let listing = store.list(NAMESPACES, page, Freshness::Linearizable).await?;
            after = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
            for (key, _) in listing.entries {
                writes.add(Write::Delete(key)).await?;
            }
            if after.is_none() {
                break;
            }
        }
        writes.settle().await?;

        let mut there = Keys { export: store.export().await?, read: VecDeque::new() };
        let mut old = there.next().await?;
        let mut pieces = spool.pieces().await?;
        while let Some((key, value)) = pieces.record().await? {
            let key = Key::from(key);
            while let Some(gone) = old.take_if(|old| *old < key) {
                writes.add(Write::Delete(gone)).await?;
                old = there.next().await?;
            }
            if old.as_ref() == Some(&key) {
                old = there.next().await?;
            }
            if !key.as_str().starts_with(NAMESPACES) {
                writes.add(Write::Put(key, value)).await?;
            }
        }
        while let Some(gone) = old {
            writes.add(Write::Delete(gone)).await?;
            old = there.next().await?;
        }
        drop(there);
        writes.settle().await?;

        let mut pieces = spool.pieces().await?;
        while let Some((key, value)) = pieces.record().await? {
            if key.starts_with(NAMESPACES) {
                writes.add(Write::Put(Key::from(key), value)).await?;
            } else if key.as_str() > NAMESPACES {
                break;
            }
        }
        writes.end().await
    }
}

/// The keys of what was there, in their order, but for those of the restore itself.
struct Keys {
    export: Export,
    read: VecDeque<Key>,
}

impl Keys {
    async fn next(&mut self) -> Result<Option<Key>, ServiceError> {
        while self.read.is_empty() {
            let records = self.export.next(RECORDS).await?;
            if records.is_empty() {
                return Ok(None);
            }
            let keys = records.into_iter().map(|(key, _)| key);
            self.read.extend(keys.filter(|key| !in_a_restore(key.as_str())));
        }
        Ok(self.read.pop_front())
    }
}
