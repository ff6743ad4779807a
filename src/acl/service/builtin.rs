//! What every store has from the start.

use super::acl_service::Directory;
use super::active_keys::held;
use super::error::ServiceError;
use super::keys::{self, Whereabouts};
use super::repository::{Changes, retrying};
use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::NamespaceRecord;
use crate::acl::model::policy::{GLOBAL_MANAGEMENT, GLOBAL_READ_ONLY, PolicyRecord};
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::token::{ANONYMOUS, ANONYMOUS_SECRET, Birth, TokenRecord};
use crate::acl::store::Freshness;

const RESOURCES: [&str; 8] = ["agent", "event", "identity", "key", "node", "query", "service", "session"];

/// The rules of `global-management` (write) and of `builtin/global-read-only` (read): all of the server's own, and all in
/// every namespace. What is said in the token's own namespace is as close as what another policy says there, and `policy`
/// in a namespace block gives nothing of what is in the namespace: so each is said, and twice.
fn all(access: &str) -> String {
    let single = |name: &str| format!("{name} = \"{access}\"\n");
    let resource = |name: &str| {
        let intentions = if name == "service" { format!(" intentions = \"{access}\"") } else { String::new() };
        format!("{name}_prefix \"\" {{ policy = \"{access}\"{intentions} }}\n")
    };
    let resources = RESOURCES.map(resource).concat();
    let singles = ["operator", "keyring", "mesh", "peering"].map(single).concat();
    let (acl, policy) = (single("acl"), single("policy"));
    format!("{acl}{singles}{resources}namespace_prefix \"\" {{\n{policy}{acl}{resources}}}\n")
}

impl Directory {
    /// Makes what is built in where it is not there: the `default` namespace, two policies, the anonymous token.
    ///
    /// # Errors
    /// [`ServiceError::Restoring`] if it is being restored; the store failed.
    pub async fn prepare(&self) -> Result<(), ServiceError> {
        retrying(|| self.try_prepare()).await
    }

    async fn try_prepare(&self) -> Result<(), ServiceError> {
        self.epoch(Freshness::Linearizable).await?;
        let namespace = NamespaceName::default_one();
        // Another server on the same store may have been faster.
        if self.namespace(&namespace, Freshness::Linearizable).await?.is_some() {
            return Ok(());
        }
        let keys = self.keys_now().await?;
        let home = NamespaceRecord {
            name: namespace.clone(),
            description: "Builtin Default Namespace".to_owned(),
            defaults: None,
            meta: std::collections::BTreeMap::new(),
            deleted_at: None,
        };
        let key = keys::namespace(&namespace);
        let mut changes = held(&keys, Changes::default()).absent(&key).put(key, &home)?;
        for (id, name, description, access) in [
            (GLOBAL_MANAGEMENT, "global-management", "Builtin Policy that grants unlimited access", "write"),
            (
                GLOBAL_READ_ONLY,
                "builtin/global-read-only",
                "A policy that grants unlimited global read-only access to all components",
                "read",
            ),
        ] {
            let policy = PolicyRecord {
                id,
                name: name.to_owned(),
                namespace: namespace.clone(),
                description: description.to_owned(),
                rules: all(access),
                datacenters: Vec::new(),
            };
            changes =
                changes.put(keys::policy(&namespace, id), &policy)?.put(keys::policy_name(&namespace, name), &id)?;
        }
        let secret = PlainSecret::presented(ANONYMOUS_SECRET);
        let birth = Birth {
            accessor_id: ANONYMOUS,
            secret_hash: keys.current().hash(&secret),
            sealed_secret: keys.current().seal(ANONYMOUS, &secret)?,
            namespace: namespace.clone(),
            local: false,
            create_time: self.now(),
            expiration_time: None,
            login: None,
        };
        let by_secret = keys::token_id(&birth.secret_hash);
        let by_accessor = keys::token_id(&keys.current().hash(&accessor_text(ANONYMOUS)));
        let token = TokenRecord::born(birth, "Anonymous Token".to_owned(), Links::default(), Vec::new());
        let place = |secret| Whereabouts { namespace: namespace.clone(), accessor: ANONYMOUS, secret };
        changes = changes
            .put(keys::token(&namespace, ANONYMOUS), &token)?
            .put(by_secret, &place(true))?
            .put(by_accessor, &place(false))?;
        self.records.commit(changes).await?;
        Ok(())
    }
}

/// An accessor, to be hashed as secrets are: no token's accessor is another's secret.
pub(super) fn accessor_text(accessor: Id) -> PlainSecret {
    PlainSecret::presented(&accessor.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::acl::model::authorize::{Access, Carried, DefaultPolicy, Grants, Resource};
    use crate::acl::model::rules::Rules;

    #[test]
    fn the_built_in_policies_reach_everything_in_every_namespace() {
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
        // Another policy of the same token that gives less takes nothing away.
        let less = "acl = \"read\" operator = \"read\" key_prefix \"\" { policy = \"read\" }";
        for (access, writes) in [("read", false), ("write", true)] {
            let carried = |text: &str| Carried::new("default", Arc::new(Rules::parse(text).unwrap()));
            let grants = Grants {
                own_namespace: "default".into(),
                direct: vec![carried(&all(access)), carried(less)],
                defaults: Vec::new(),
                default_policy: DefaultPolicy::Deny,
            };
            for (resource, namespace) in resources.iter().flat_map(|it| [(it, "default"), (it, "team")]) {
                assert!(grants.decide(resource, Access::Read, namespace).is_allowed(), "{resource:?} {namespace}");
                let may_write = grants.decide(resource, Access::Write, namespace).is_allowed();
                assert_eq!(may_write, writes, "{resource:?} {namespace}");
            }
        }
    }
}
