//! Policies.

use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::links::{BUILTIN, shortened};
use super::lists::Found;
use super::repository::{Changes, Stored, retrying};
use crate::acl::model::id::Id;
use crate::acl::model::names::{NamespaceName, is_name};
use crate::acl::model::policy::{GLOBAL_MANAGEMENT, GLOBAL_READ_ONLY, PolicyRecord};
use crate::acl::model::rules::Rules;
use crate::acl::store::Freshness;

/// What a policy is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyDraft {
    /// Its name.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Its rules, in HCL or JSON.
    pub rules: String,
    /// Where it counts; everywhere when empty.
    pub datacenters: Vec<String>,
}

impl Directory {
    /// Makes a policy.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, the draft cannot be a policy, or its name is taken.
    pub async fn create_policy(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_create_policy(namespace, draft)).await
    }

    async fn try_create_policy(
        &self,
        namespace: &NamespaceName,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        judged(draft)?;
        let by_name = keys::policy_name(namespace, &draft.name);
        self.free(&by_name, || taken(&draft.name)).await?;
        let policy = record(Id::random(), home.name.clone(), draft);
        let by_id = keys::policy(namespace, policy.id);
        let changes =
            Changes::default().absent(&by_name).absent(&by_id).put(by_id, &policy)?.put(by_name, &policy.id)?;
        self.make(&home, changes, policy).await
    }

    /// The id of the policy of that name in `default`. One that is not there is made, with no rules: it allows nothing until
    /// someone writes them, and whoever links it by id keeps the link when it is renamed.
    ///
    /// # Errors
    /// The store failed.
    pub async fn ensure_policy(&self, name: &str) -> Result<Id, ServiceError> {
        let namespace = NamespaceName::default_one();
        let by_name = keys::policy_name(&namespace, name);
        let draft = PolicyDraft { name: name.to_owned(), ..PolicyDraft::default() };
        for _ in 0..3 {
            if let Some(found) = self.records.get::<Id>(&by_name, Freshness::Linearizable).await? {
                return Ok(*found.value);
            }
            match retrying(|| self.try_create_policy(&namespace, &draft)).await {
                Ok(made) => return Ok(made.value.id),
                // Someone else made it in the meantime: look again.
                Err(ServiceError::Taken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ServiceError::Crowded)
    }

    /// The policy of that id; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn policy(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<PolicyRecord>>, ServiceError> {
        self.seen(caller, namespace, Some(keys::policy(namespace, id)), freshness).await
    }

    /// The policy of that name; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn policy_by_name(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<PolicyRecord>>, ServiceError> {
        let is_one = is_name(name.strip_prefix(BUILTIN).unwrap_or(name));
        let by_name = is_one.then(|| keys::policy_name(namespace, name));
        self.seen_by_name(caller, namespace, by_name, keys::policy, freshness).await
    }

    /// Policies of one namespace, or of all.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name.
    pub async fn policies(
        &self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<Found<PolicyRecord>, ServiceError> {
        self.found(caller, "policy", namespace, freshness).await
    }

    /// Replaces what a policy is; what the draft leaves out is cleared. Of a built-in one only name and description change.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, there is no such policy, the draft cannot be a policy, or its name is taken.
    pub async fn update_policy(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_update_policy(namespace, id, draft)).await
    }

    async fn try_update_policy(
        &self,
        namespace: &NamespaceName,
        id: Id,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let by_id = keys::policy(namespace, id);
        let before = self.to_change::<PolicyRecord>(&by_id, || format!("policy {id}")).await?;
        let old = &before.value;
        let mut draft = draft.clone();
        if built_in(id) {
            if draft.rules.is_empty() {
                draft.rules.clone_from(&old.rules);
            }
            if draft.rules != old.rules || !draft.datacenters.is_empty() {
                let text = format!(
                    "Changing the Rules or the Datacenters of the builtin {} policy is not permitted",
                    old.name
                );
                return Err(ServiceError::Invalid(text));
            }
        }
        if draft.name != old.name || !built_in(id) {
            judged(&draft)?;
        }
        let policy = record(id, home.name.clone(), &draft);
        let mut changes = Changes::default().unchanged(&by_id, before.modified).put(by_id, &policy)?;
        if policy.name != old.name {
            let by_name = keys::policy_name(namespace, &policy.name);
            self.free(&by_name, || taken(&policy.name)).await?;
            changes = changes.renamed(keys::policy_name(namespace, &old.name), by_name, &id)?;
        }
        self.change(&home, changes, &before, policy).await
    }

    /// Deletes a policy; false if there is none. Tokens and roles that link it live on without it.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, or the policy is built in.
    pub async fn delete_policy(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
    ) -> Result<bool, ServiceError> {
        let by_name = |policy: &PolicyRecord| {
            if built_in(id) {
                let text = format!("Delete operation not permitted on the builtin {} policy", policy.name);
                return Err(ServiceError::Forbidden(text));
            }
            Ok(Some(keys::policy_name(namespace, &policy.name)))
        };
        self.remove(caller, namespace, &keys::policy(namespace, id), by_name).await
    }
}

fn built_in(id: Id) -> bool {
    id == GLOBAL_MANAGEMENT || id == GLOBAL_READ_ONLY
}

fn taken(name: &str) -> String {
    format!("Invalid Policy: A Policy with Name {name:?} already exists")
}

fn record(id: Id, namespace: NamespaceName, draft: &PolicyDraft) -> PolicyRecord {
    PolicyRecord {
        id,
        name: draft.name.clone(),
        namespace,
        description: draft.description.clone(),
        rules: draft.rules.clone(),
        datacenters: draft.datacenters.clone(),
    }
}

fn judged(draft: &PolicyDraft) -> Result<(), ServiceError> {
    if draft.name.is_empty() {
        return Err(ServiceError::Invalid("Invalid Policy: no Name is set".to_owned()));
    }
    if !is_name(&draft.name) {
        let text = "Invalid Policy: invalid Name. Only alphanumeric characters, '-' and '_' are allowed";
        return Err(ServiceError::Invalid(format!("{text} ({:?})", shortened(&draft.name))));
    }
    Rules::parse(&draft.rules).map_err(ServiceError::invalid)?;
    Ok(())
}
