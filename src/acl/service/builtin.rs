//! Built-in records of every store.

use super::acl_service::AclService;
use super::error::ServiceError;
use super::record_keys::{self, TokenIndexEntry};
use super::seal::SealKeys;
use super::sealing_keys::require_same_keys;
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::namespace::NamespaceRecord;
use crate::model::policy::{GLOBAL_MANAGEMENT, GLOBAL_READ_ONLY, GLOBAL_READ_ONLY_NAME, PolicyRecord};
use crate::model::secret::PlainSecret;
use crate::model::token::{ANONYMOUS, ANONYMOUS_SECRET, ImmutableFields, TokenRecord};
use crate::store::Freshness;

const RESOURCES: [&str; 8] = ["agent", "event", "identity", "key", "node", "query", "service", "session"];

/// Rules of `global-management` (write) and `builtin/global-read-only` (read). Each resource is listed at the top level
/// and in `namespace_prefix ""`: a rule for the token's own namespace is as specific as that of another policy, and
/// `policy` in a namespace block grants nothing inside the namespace.
fn full_access_rules(access: &str) -> String {
    let single = |name: &str| format!("{name} = \"{access}\"\n");
    let resource = |name: &str| {
        let intentions = if name == "service" { format!(" intentions = \"{access}\"") } else { String::new() };
        format!("{name}_prefix \"\" {{ policy = \"{access}\"{intentions} }}\n")
    };
    let resources = RESOURCES.map(resource).concat();
    let singles = ["operator", "keyring", "mesh", "peering"].map(single).concat();
    let acl = single("acl");
    let policy = single("policy");
    format!("{acl}{singles}{resources}namespace_prefix \"\" {{\n{policy}{acl}{resources}}}\n")
}

impl AclService {
    /// Creates the built-in records if they are missing: namespace `default`, two policies, the anonymous token. The last
    /// is also created in a store that has lost it.
    pub(crate) async fn create_builtins(&self) -> Result<(), ServiceError> {
        retry_on_conflict(|| self.try_create_builtins()).await
    }

    async fn try_create_builtins(&self) -> Result<(), ServiceError> {
        self.epoch(Freshness::Linearizable).await?;
        let namespace = NamespaceName::default_namespace();
        // Another server on the same store may have created them first.
        if self.records.namespace(&namespace, Freshness::Linearizable).await?.is_some() {
            return self.try_recreate_anonymous_token(&namespace).await;
        }
        let keys = self.reload_keys().await?;
        let record = NamespaceRecord {
            name: namespace.clone(),
            description: "Builtin Default Namespace".to_owned(),
            defaults: None,
            meta: std::collections::BTreeMap::new(),
            deleted_at: None,
        };
        let key = record_keys::namespace(&namespace);
        let mut transaction =
            require_same_keys(&keys, Transaction::default()).require_absent(&key).put(key, &record)?;
        for (id, name, description, access) in [
            (GLOBAL_MANAGEMENT, "global-management", "Builtin Policy that grants unlimited access", "write"),
            (
                GLOBAL_READ_ONLY,
                GLOBAL_READ_ONLY_NAME,
                "A policy that grants unlimited global read-only access to all components",
                "read",
            ),
        ] {
            let policy = PolicyRecord {
                id,
                name: name.to_owned(),
                namespace: namespace.clone(),
                description: description.to_owned(),
                rules: full_access_rules(access),
                datacenters: Vec::new(),
            };
            transaction = transaction
                .put(record_keys::policy(&namespace, id), &policy)?
                .put(record_keys::policy_name(&namespace, name), &id)?;
        }
        self.typed_store.commit(self.put_anonymous_token(&keys, &namespace, transaction)?).await?;
        Ok(())
    }

    /// Creates the anonymous token in a store without it, where all requests without a token would be refused as unknown.
    pub(super) async fn recreate_anonymous_token(&self) -> Result<(), ServiceError> {
        let namespace = NamespaceName::default_namespace();
        retry_on_conflict(|| self.try_recreate_anonymous_token(&namespace)).await
    }

    async fn try_recreate_anonymous_token(&self, namespace: &NamespaceName) -> Result<(), ServiceError> {
        let key = record_keys::token(namespace, ANONYMOUS);
        match self.typed_store.store().get(&key, Freshness::Linearizable).await.map_err(ServiceError::from) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(()),
            // A damaged record is not missing: its links may come back with a restore.
            Err(error) if self.typed_store.skip_unreadable(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        let keys = self.reload_keys().await?;
        let transaction = require_same_keys(&keys, Transaction::default()).require_absent(&key);
        self.typed_store.commit(self.put_anonymous_token(&keys, namespace, transaction)?).await?;
        tracing::warn!(
            event = "acl.token.recreated",
            accessor = ANONYMOUS.to_string(),
            "created the missing anonymous token again, without policies"
        );
        Ok(())
    }

    /// Adds the records of a new anonymous token.
    fn put_anonymous_token(
        &self,
        keys: &SealKeys,
        namespace: &NamespaceName,
        transaction: Transaction,
    ) -> Result<Transaction, ServiceError> {
        let secret = PlainSecret::from_presented(ANONYMOUS_SECRET);
        let immutable = ImmutableFields {
            accessor_id: ANONYMOUS,
            secret_hash: keys.current().hash(&secret),
            sealed_secret: keys.current().seal(ANONYMOUS, &secret)?,
            namespace: namespace.clone(),
            local: false,
            create_time: self.now(),
            expiration_time: None,
            login: None,
        };
        let by_secret = record_keys::token_id(&immutable.secret_hash);
        let by_accessor = record_keys::token_id(&keys.current().hash(&accessor_as_secret(ANONYMOUS)));
        let token = TokenRecord::new(immutable, "Anonymous Token".to_owned(), Links::default(), Vec::new());
        let index_entry = |secret| TokenIndexEntry { namespace: namespace.clone(), accessor: ANONYMOUS, secret };
        transaction
            .put(record_keys::token(namespace, ANONYMOUS), &token)?
            .put(by_secret, &index_entry(true))?
            .put(by_accessor, &index_entry(false))
    }
}

/// Converts an accessor for hashing like a secret, so that no accessor equals another token's secret.
pub(super) fn accessor_as_secret(accessor: Id) -> PlainSecret {
    PlainSecret::from_presented(&accessor.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keyward_machine::clock::Clock;

    use super::*;
    use crate::model::authorize::{Access, DefaultPolicy, Grants, PolicyId, PolicyInScope, Resource};
    use crate::model::rules::Rules;
    use crate::service::restore_lock::RestoreMarker;
    use crate::service::seal::Sealer;
    use crate::store::{Batch, Embedded, Store as _, Write};

    #[test]
    fn the_built_in_policies_cover_everything_in_every_namespace() {
        let resources = [
            Resource::Acl,
            Resource::Operator,
            Resource::Keyring,
            Resource::Mesh,
            Resource::Peering,
            Resource::Namespace,
            Resource::Agent("a"),
            Resource::Event("a"),
            Resource::Identity("a"),
            Resource::Intention("a"),
            Resource::Key("a"),
            Resource::Node("a"),
            Resource::Query("a"),
            Resource::Service("a"),
            Resource::Session("a"),
        ];
        // A less permissive policy of the same token does not restrict them.
        let less = "acl = \"read\" operator = \"read\" key_prefix \"\" { policy = \"read\" }";
        for (access, writes) in [("read", false), ("write", true)] {
            let carried = |text: &str| {
                let id = PolicyId::Stored(Id::reserved(1));
                PolicyInScope::new("default", id, Arc::new(Rules::parse(text).unwrap()))
            };
            let grants = Grants {
                own_namespace: "default".into(),
                direct: vec![carried(&full_access_rules(access)), carried(less)],
                defaults: Vec::new(),
                default_policy: DefaultPolicy::Deny,
            };
            for (resource, namespace) in
                resources.iter().flat_map(|resource| [(resource, "default"), (resource, "team")])
            {
                assert!(grants.decide(resource, Access::Read, namespace).is_allowed(), "{resource:?} {namespace}");
                let may_write = grants.decide(resource, Access::Write, namespace).is_allowed();
                assert_eq!(may_write, writes, "{resource:?} {namespace}");
            }
        }
    }

    #[tokio::test]
    async fn the_server_itself_writes_nothing_while_a_restore_is_in_progress() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
        let sealer = Sealer::open(&folder.path().join("seal.key"), &*store).await.unwrap();
        let shared = Arc::clone(&store);
        let service = AclService::new(shared, sealer, "dc1".to_owned(), DefaultPolicy::Deny, Clock::System);
        service.create_builtins().await.unwrap();
        let before = service.epoch(Freshness::Linearizable).await.unwrap();
        assert_eq!(service.token_sweeper().sweep().await.unwrap(), 0);

        let marker =
            serde_json::to_vec(&RestoreMarker { by: None, accessor: None, started_at: service.now() }).unwrap();
        let last = Write::Put(record_keys::restore_last(), b"null".to_vec());
        let writes = vec![Write::Put(record_keys::restore_marker(), marker), last];
        store.commit(Batch { checks: vec![], writes }).await.unwrap();
        for refused in [service.token_sweeper().sweep().await.map(drop), service.create_builtins().await] {
            assert!(matches!(refused, Err(ServiceError::Restoring)), "{refused:?}");
        }
        store
            .commit(Batch { checks: vec![], writes: vec![Write::Delete(record_keys::restore_marker())] })
            .await
            .unwrap();
        assert!(!service.epoch(Freshness::Linearizable).await.unwrap().is(before), "another epoch");
        service.create_builtins().await.unwrap();
    }
}
