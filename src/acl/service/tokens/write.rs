//! A token's records: how they are made and how they are removed.

use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::model::token::{Birth, LoginOrigin, TokenRecord};
use crate::acl::service::acl_service::{Directory, Home};
use crate::acl::service::active_keys::held;
use crate::acl::service::builtin::accessor_text;
use crate::acl::service::caller::Live;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys::{self, Whereabouts};
use crate::acl::service::repository::{Changes, Stored, retrying};
use crate::acl::service::seal::{Keys, SealKey};
use crate::acl::store::{CommitError, Freshness, Key};

/// What a new token is to be, with everything judged.
#[derive(Debug)]
pub struct NewToken {
    /// Its accessor.
    pub accessor: Id,
    /// Its secret.
    pub secret: PlainSecret,
    /// Free text.
    pub description: String,
    /// What it may do.
    pub links: Links,
    /// The roles that it has.
    pub roles: Vec<Id>,
    /// Whether it counts in this datacenter only.
    pub local: bool,
    /// When it is made.
    pub create_time: Timestamp,
    /// When it ends; never if absent.
    pub expiration_time: Option<Timestamp>,
    /// The login that makes it.
    pub login: Option<LoginOrigin>,
}

impl Directory {
    /// Makes a token in a namespace, provided that what `changes` holds besides is so. It is on disk when this returns.
    ///
    /// # Errors
    /// The accessor or the secret is taken, by a token's secret or accessor; the store failed.
    pub(in crate::acl::service) async fn make_token(
        &self,
        home: &Home,
        new: NewToken,
        changes: Changes,
    ) -> Result<Live, ServiceError> {
        loop {
            let keys = self.sealer.keys();
            let outcome = self.try_make_token(&keys, home, &new, changes.clone()).await;
            // Keys that were changed meanwhile are no one's fault who asks for a token.
            let lost = matches!(outcome, Err(ServiceError::Commit(CommitError::Conflict(_))));
            if !lost || self.keys_now().await?.at == keys.at {
                return outcome;
            }
        }
    }

    async fn try_make_token(
        &self,
        keys: &Keys,
        home: &Home,
        new: &NewToken,
        changes: Changes,
    ) -> Result<Live, ServiceError> {
        let key = keys.current();
        let birth = Birth {
            accessor_id: new.accessor,
            secret_hash: key.hash(&new.secret),
            sealed_secret: key.seal(new.accessor, &new.secret)?,
            namespace: home.name.clone(),
            local: new.local,
            create_time: new.create_time,
            expiration_time: new.expiration_time,
            login: new.login.clone(),
        };
        let token = TokenRecord::born(birth, new.description.clone(), new.links.clone(), new.roles.clone());
        let rows = TokenRows::of(key, &token);
        let place = |secret| Whereabouts { namespace: home.name.clone(), accessor: token.birth().accessor_id, secret };
        let mut changes = held(keys, home.hold(changes));
        // Neither id may be taken, whatever key it is under.
        for id in [&new.secret, &accessor_text(new.accessor)] {
            changes = keys.hashes(id).iter().fold(changes, |changes, hash| changes.absent(&keys::token_id(hash)));
        }
        changes =
            changes.put(rows.token, &token)?.put(rows.by_secret, &place(true))?.put(rows.by_accessor, &place(false))?;
        for key in rows.end.into_iter().chain(rows.login) {
            changes = changes.put(key, &home.name)?;
        }
        let revision = self.records.commit(changes).await?;
        let read = token.birth().create_time;
        Ok(Live { token: Stored { value: token.into(), created: revision, modified: revision }, read })
    }

    /// Destroys a token; one that is gone already is no error.
    ///
    /// # Errors
    /// The store failed.
    pub async fn destroy_token(&self, token: &TokenRecord) -> Result<(), ServiceError> {
        retrying(|| self.try_destroy_token(token.birth())).await
    }

    async fn try_destroy_token(&self, birth: &Birth) -> Result<(), ServiceError> {
        let key = keys::token(&birth.namespace, birth.accessor_id);
        let found = self.records.get::<TokenRecord>(&key, Freshness::Linearizable).await?;
        // One that was made since then with the same accessor is another.
        if let Some(token) = found.filter(|token| token.value.birth().create_time == birth.create_time) {
            self.records.commit(self.without_token(&token, Changes::default()).await?).await?;
        }
        Ok(())
    }

    /// The removal of a token's records, at most [`TOKEN_ROWS`] of them, provided that it is as it was read: else its
    /// secret may be under another key by now, and a record would be left.
    pub(in crate::acl::service) async fn without_token(
        &self,
        token: &Stored<TokenRecord>,
        changes: Changes,
    ) -> Result<Changes, ServiceError> {
        let rows = TokenRows::of(&*self.key_of(&token.value).await?, &token.value);
        let changes = changes.unchanged(&rows.token, token.modified);
        let keys = [rows.token, rows.by_secret, rows.by_accessor].into_iter().chain(rows.end).chain(rows.login);
        Ok(keys.fold(changes, Changes::delete))
    }
}

/// Most records of one token.
pub(in crate::acl::service) const TOKEN_ROWS: usize = 5;

/// The keys of one token's records.
pub(in crate::acl::service) struct TokenRows {
    pub(in crate::acl::service) token: Key,
    pub(in crate::acl::service) by_secret: Key,
    pub(in crate::acl::service) by_accessor: Key,
    end: Option<Key>,
    login: Option<Key>,
}

impl TokenRows {
    /// Those of a token whose secret is under that key.
    pub(in crate::acl::service) fn of(key: &SealKey, token: &TokenRecord) -> Self {
        let birth = token.birth();
        let accessor = birth.accessor_id;
        Self {
            token: keys::token(&birth.namespace, accessor),
            by_secret: keys::token_id(&birth.secret_hash),
            by_accessor: keys::token_id(&key.hash(&accessor_text(accessor))),
            end: birth.expiration_time.map(|end| keys::token_end(end, accessor)),
            login: birth
                .login
                .as_ref()
                .and_then(|login| login.method_id)
                .map(|method| keys::token_login(method, accessor)),
        }
    }
}
