//! A token's records: how they are made and how they are removed.

use crate::access::model::id::Id;
use crate::access::model::links::Links;
use crate::access::model::secret::PlainSecret;
use crate::access::model::timestamp::Timestamp;
use crate::access::model::token::{Birth, LoginOrigin, TokenRecord};
use crate::access::service::builtin::accessor_text;
use crate::access::service::caller::Live;
use crate::access::service::directory::{Directory, Home};
use crate::access::service::error::ServiceError;
use crate::access::service::records::{Changes, Stored};
use crate::access::service::rows::{self, Whereabouts};
use crate::access::store::Key;

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
    pub(in crate::access::service) async fn make_token(
        &self,
        home: &Home,
        new: NewToken,
        changes: Changes,
    ) -> Result<Live, ServiceError> {
        let birth = Birth {
            accessor_id: new.accessor,
            secret_hash: self.sealer.hash(&new.secret),
            sealed_secret: self.sealer.seal(new.accessor, &new.secret)?,
            namespace: home.name.clone(),
            local: new.local,
            create_time: new.create_time,
            expiration_time: new.expiration_time,
            login: new.login,
        };
        let token = TokenRecord::born(birth, new.description, new.links, new.roles);
        let rows = self.token_rows(&token);
        let place = |secret| Whereabouts { namespace: home.name.clone(), accessor: token.birth().accessor_id, secret };
        let mut changes = home
            .hold(changes)
            .absent(&rows.by_secret)
            .absent(&rows.by_accessor)
            .put(rows.token, &token)?
            .put(rows.by_secret, &place(true))?
            .put(rows.by_accessor, &place(false))?;
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
        self.records.commit(self.without_token(token, Changes::default())).await?;
        Ok(())
    }

    /// The removal of a token's records, at most [`TOKEN_ROWS`] of them.
    pub(in crate::access::service) fn without_token(&self, token: &TokenRecord, changes: Changes) -> Changes {
        let rows = self.token_rows(token);
        let keys = [rows.token, rows.by_secret, rows.by_accessor].into_iter().chain(rows.end).chain(rows.login);
        keys.fold(changes, Changes::delete)
    }

    fn token_rows(&self, token: &TokenRecord) -> TokenRows {
        let birth = token.birth();
        let accessor = birth.accessor_id;
        TokenRows {
            token: rows::token(&birth.namespace, accessor),
            by_secret: rows::token_id(&birth.secret_hash),
            by_accessor: rows::token_id(&self.sealer.hash(&accessor_text(accessor))),
            end: birth.expiration_time.map(|end| rows::token_end(end, accessor)),
            login: birth
                .login
                .as_ref()
                .and_then(|login| login.method_id)
                .map(|method| rows::token_login(method, accessor)),
        }
    }
}

/// Most records of one token.
pub(in crate::access::service) const TOKEN_ROWS: usize = 5;

/// The keys of one token's records.
struct TokenRows {
    token: Key,
    by_secret: Key,
    by_accessor: Key,
    end: Option<Key>,
    login: Option<Key>,
}
