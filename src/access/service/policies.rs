//! Policies by id and by name.

use std::sync::Arc;

use super::tokens::{ServiceError, decode, encode};
use crate::access::model::id::Id;
use crate::access::model::policy::PolicyRecord;
use crate::access::store::{Batch, Check, CommitError, Embedded, Key, Write};

/// The policies of the store.
#[derive(Debug, Clone)]
pub struct Policies {
    store: Arc<Embedded>,
}

impl Policies {
    /// Those of that store.
    pub fn new(store: Arc<Embedded>) -> Self {
        Self { store }
    }

    /// The id of the policy of that name. One that is not there is made, with no rules: it allows nothing until someone
    /// writes them, and whoever links it by id keeps the link when it is renamed.
    ///
    /// # Errors
    /// The store failed.
    pub async fn ensure(&self, namespace: &str, name: &str) -> Result<Id, ServiceError> {
        let by_name = by_name(namespace, name);
        loop {
            if let Some(found) = self.store.get(&by_name).await? {
                return decode(by_name.as_str(), &found.value);
            }
            let policy = PolicyRecord {
                id: Id::random(),
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                description: String::new(),
                rules: String::new(),
                datacenters: Vec::new(),
            };
            let batch = Batch {
                checks: vec![Check::Absent(by_name.clone()), Check::Absent(by_id(policy.id))],
                writes: vec![
                    Write::Put(by_name.clone(), encode(&policy.id)?),
                    Write::Put(by_id(policy.id), encode(&policy)?),
                ],
            };
            match self.store.commit(batch).await {
                Ok(_) => return Ok(policy.id),
                // Someone else made it in the meantime: look again.
                Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The policy's present name; `None` once it was deleted.
    ///
    /// # Errors
    /// The store failed.
    pub async fn name(&self, id: Id) -> Result<Option<String>, ServiceError> {
        let key = by_id(id);
        let Some(found) = self.store.get(&key).await? else { return Ok(None) };
        decode::<PolicyRecord>(key.as_str(), &found.value).map(|policy| Some(policy.name))
    }
}

fn by_id(id: Id) -> Key {
    Key::of(&["policy", &id.to_string()])
}

fn by_name(namespace: &str, name: &str) -> Key {
    Key::of(&["policy-name", namespace, name])
}
