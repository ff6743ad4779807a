//! The key that tokens are found and sealed with is changed while they are used.
//!
//! The store names the new key first, and from then on every new token is written with it. Then each token moves to it in
//! a batch of its own records, which checks that the token and the named keys are as they were read: whoever changes or
//! deletes a token meanwhile wins, and the move is looked at anew. When all have moved, the store names the new key alone.
//! What was left half done is taken up by the next call, at whatever server.

use std::sync::Arc;

use futures_util::future::join_all;

use super::acl_service::Directory;
use super::active_keys::held;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys::Whereabouts;
use super::repository::{Changes, PAGE, Stored, retrying, typed};
use super::seal::{self, Keys, Progress, Ring, SealError};
use super::tokens::TokenRows;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::token::TokenRecord;
use crate::acl::store::{Batch, CommitError, Freshness, Key, Page, Record, Revision};
use crate::error_chain::format_chain;

/// How far a change of the key came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// The key that tokens are written with.
    pub key_id: String,
    /// How many tokens this call moved to it.
    pub rewritten: usize,
    /// Whether all tokens are under it, so that the key file's other lines may go.
    pub done: bool,
    /// Tokens that cannot be moved, since they cannot be read: where they are in the store.
    pub unreadable: Vec<String>,
    /// Whether anything was written.
    pub changed: bool,
}

/// Tokens that move in one batch: five writes each.
const MOVES: usize = Batch::MAX_OPERATIONS / 5;

/// Bytes of values in a batch: half of what it takes, since keys and small records come to it.
const BYTES: usize = Batch::MAX_BYTES / 2;

/// Most tokens that are told of that cannot be read.
const TOLD: usize = 20;

impl Directory {
    /// Moves tokens to the first key of the key file, which is read again: those of so many pages of records. With
    /// `generate` a new key is made first and put before the others.
    ///
    /// # Errors
    /// The caller lacks `operator:write` in the `default` namespace; the file cannot be read or written; another call is
    /// under way; the store failed. What was moved stays so.
    pub async fn rekey(&self, caller: &Caller, generate: bool, pages: usize) -> Result<Rekeyed, ServiceError> {
        caller.require(Privilege::OperatorWrite, &NamespaceName::default_one())?;
        let Ok(mut progress) = self.sealer.moving.try_lock() else { return Err(crossed()) };
        let (keys, mut changed) = self.aim(generate).await?;
        let mut rewritten = 0;
        if keys.is_changing() {
            if progress.at != keys.at {
                *progress = Progress { at: keys.at, ..Progress::default() };
            }
            let mut through = false;
            for _ in 0..pages {
                let page = Page { after: progress.after.clone(), limit: PAGE };
                let listing = self.records.store().list("token/", page, Freshness::Linearizable).await?;
                let mut unreadable = Vec::new();
                rewritten += self.move_page(&keys, &listing.entries, &mut unreadable).await?;
                progress.unreadable.extend(unreadable);
                progress.after = listing.entries.last().map(|(key, _)| key.clone());
                if !listing.more {
                    through = true;
                    break;
                }
            }
            changed |= rewritten > 0;
            if through {
                let unreadable = std::mem::take(&mut *progress).unreadable;
                if unreadable.is_empty() {
                    self.name_keys(&keys, &keys.named.alone()).await?;
                    changed = true;
                }
                return Ok(told(&keys, rewritten, unreadable, changed));
            }
            return Ok(Rekeyed { done: false, ..told(&keys, rewritten, Vec::new(), changed) });
        }
        Ok(told(&keys, rewritten, Vec::new(), changed))
    }

    /// Makes the file's first key the one that tokens are written with.
    async fn aim(&self, generate: bool) -> Result<(Arc<Keys>, bool), ServiceError> {
        // Others would not know a key that is made here.
        if generate && self.records.store().last("").is_none() {
            let text = "Other servers may use the same store: put a new key into the key file of each, as its first \
                        line, and let none be made here";
            return Err(ServiceError::Invalid(text.to_owned()));
        }
        let told = self.key_record().await?;
        let keys = self.sealer.reread(&told, generate).await.map_err(|error| {
            let advice =
                if generate { ": put a new key before the others by hand, and let none be made here" } else { "" };
            ServiceError::Invalid(format!("{}{advice}", format_chain(&error)))
        })?;
        if keys.file.first.id() == keys.current().id() {
            return Ok((keys, false));
        }
        self.name_keys(&keys, &keys.aimed()).await?;
        Ok((self.keys_now().await?, true))
    }

    /// Lets the store name other keys, unless someone else wants others.
    async fn name_keys(&self, keys: &Keys, wanted: &Ring) -> Result<(), ServiceError> {
        let changes = held(keys, Changes::default()).write(seal::naming(wanted));
        let outcome = self.records.commit(changes).await;
        let now = self.keys_now().await?;
        let there = now.current().id() == wanted.first.id() && (now.named.ids() == wanted.ids() || !now.is_changing());
        match outcome {
            // Another server, at the same change, may have been faster.
            Err(ServiceError::Commit(CommitError::Conflict(_))) if there => Ok(()),
            Err(ServiceError::Commit(CommitError::Conflict(_))) => Err(crossed()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Moves the tokens of a page that are under another key, and says how many there were.
    async fn move_page(
        &self,
        keys: &Keys,
        entries: &[(Key, Record)],
        unreadable: &mut Vec<Key>,
    ) -> Result<usize, ServiceError> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (key, record) in entries {
            let moved = match typed::<TokenRecord>(key, record) {
                Ok(token) if token.value.birth().sealed_secret.key_id == keys.current().id() => continue,
                Ok(token) => Move::of(keys, key, &token),
                Err(error) => Err(error),
            };
            let Ok(moved) = moved else {
                unreadable.push(key.clone());
                continue;
            };
            let bytes = record.value.len();
            let fits = |piece: &Piece| piece.tokens.len() < MOVES && piece.bytes + bytes <= BYTES;
            let mut piece = pieces.pop_if(|piece| fits(piece)).unwrap_or_else(|| Piece::new(keys));
            piece.changes = moved.add_to(piece.changes)?;
            piece.tokens.push(key.clone());
            piece.bytes += bytes;
            pieces.push(piece);
        }
        // At once, so that the store can sync them together.
        let moves = pieces.into_iter().map(|piece| self.move_piece(keys, piece));
        join_all(moves).await.into_iter().sum()
    }

    async fn move_piece(&self, keys: &Keys, piece: Piece) -> Result<usize, ServiceError> {
        match self.records.commit(piece.changes).await {
            Ok(_) => Ok(piece.tokens.len()),
            // One of them was changed or deleted meanwhile: each for itself.
            Err(ServiceError::Commit(CommitError::Conflict(_))) => {
                let mut rewritten = 0;
                for key in &piece.tokens {
                    rewritten += retrying(|| self.move_one(keys, key)).await?;
                }
                Ok(rewritten)
            }
            Err(error) => Err(error),
        }
    }

    async fn move_one(&self, keys: &Keys, key: &Key) -> Result<usize, ServiceError> {
        let Some(token) = self.records.get::<TokenRecord>(key, Freshness::Linearizable).await? else { return Ok(0) };
        if token.value.birth().sealed_secret.key_id == keys.current().id() {
            return Ok(0);
        }
        let changes = Move::of(keys, key, &token)?.add_to(held(keys, Changes::default()))?;
        match self.records.commit(changes).await {
            Ok(_) => Ok(1),
            Err(error) if self.keys_now().await?.at == keys.at => Err(error),
            Err(_) => Err(crossed()),
        }
    }
}

/// Tokens that move in one batch.
struct Piece {
    tokens: Vec<Key>,
    changes: Changes,
    bytes: usize,
}

impl Piece {
    fn new(keys: &Keys) -> Self {
        Self { tokens: Vec::new(), changes: held(keys, Changes::default()), bytes: 0 }
    }
}

/// A token on its way to the current key.
struct Move {
    key: Key,
    at: Revision,
    before: TokenRows,
    token: TokenRecord,
    after: TokenRows,
}

impl Move {
    fn of(keys: &Keys, key: &Key, token: &Stored<TokenRecord>) -> Result<Self, ServiceError> {
        let birth = token.value.birth();
        let old = keys.file.find(&birth.sealed_secret.key_id).ok_or(SealError)?;
        let secret = old.unseal(birth.accessor_id, &birth.sealed_secret)?;
        if old.hash(&secret) != birth.secret_hash {
            return Err(SealError.into());
        }
        let before = TokenRows::of(old, &token.value);
        let new = keys.current();
        let sealed = new.seal(birth.accessor_id, &secret)?;
        let resealed = TokenRecord::clone(&token.value).resealed(new.hash(&secret), sealed);
        let after = TokenRows::of(new, &resealed);
        Ok(Self { key: key.clone(), at: token.modified, before, token: resealed, after })
    }

    /// Moves it, if it is still as it was read.
    fn add_to(self, changes: Changes) -> Result<Changes, ServiceError> {
        let birth = self.token.birth();
        let place = |secret| Whereabouts { namespace: birth.namespace.clone(), accessor: birth.accessor_id, secret };
        changes
            .unchanged(&self.key, self.at)
            .delete(self.before.by_secret)
            .delete(self.before.by_accessor)
            .put(self.after.by_secret, &place(true))?
            .put(self.after.by_accessor, &place(false))?
            .put(self.key, &self.token)
    }
}

fn told(keys: &Keys, rewritten: usize, unreadable: Vec<Key>, changed: bool) -> Rekeyed {
    let done = unreadable.is_empty();
    let unreadable = unreadable.into_iter().take(TOLD).map(|key| key.as_str().to_owned()).collect();
    Rekeyed { key_id: keys.current().id().to_owned(), rewritten, done, unreadable, changed }
}

fn crossed() -> ServiceError {
    ServiceError::NotNow("another call changes the key that tokens are under: try again later".to_owned())
}
