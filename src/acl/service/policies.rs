//! Operations on policies.

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::links::truncate;
use super::lists::RecordList;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::rejection::{Conflict, Forbidden, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::Stored;
use crate::model::id::Id;
use crate::model::names::{NamespaceName, is_policy_name, is_policy_or_builtin_name};
use crate::model::policy::{GLOBAL_MANAGEMENT, GLOBAL_READ_ONLY, GLOBAL_READ_ONLY_NAME, PolicyRecord};
use crate::model::rules::Rules;
use crate::store::{Freshness, Key};

/// Fields of a policy as a request gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PolicyDraft {
    /// Name, unique within the namespace.
    pub name: String,
    /// Description.
    pub description: String,
    /// Rules, in HCL or JSON.
    pub rules: String,
    /// Datacenters in which it applies; all if empty.
    pub datacenters: Vec<String>,
}

/// Operations on policies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policies<'a> {
    records: &'a NamespacedRecords,
}

impl AclService {
    /// Returns the operations on policies.
    pub(crate) fn policies(&self) -> Policies<'_> {
        Policies { records: &self.records }
    }
}

impl Policies<'_> {
    /// Creates a policy. Needs `acl:write`.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_create(namespace, draft, None)).await
    }

    /// Creates a policy; `remembered_as` is the key of the entry that remembers its id for login roles.
    async fn try_create(
        self,
        namespace: &NamespaceName,
        draft: &PolicyDraft,
        remembered_as: Option<Key>,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        validate_draft(draft)?;
        let by_name = record_keys::policy_name(namespace, &draft.name);
        self.records.require_absent(&by_name, || name_taken(&draft.name)).await?;
        let policy = to_record(Id::random(), target.name.clone(), draft);
        let by_id = record_keys::policy(namespace, policy.id);
        let mut transaction = Transaction::default()
            .require_absent(&by_name)
            .require_absent(&by_id)
            .put(by_id, &policy)?
            .put(by_name, &policy.id)?;
        if let Some(key) = remembered_as {
            transaction = transaction.put(key, &policy.id)?;
        }
        self.records.commit_new(&target, transaction, policy).await
    }

    /// Returns the id of the policy in `default` that login roles name, and remembers it: a renamed policy stays linked.
    /// A missing policy is created without rules: it grants nothing until rules are written.
    pub(crate) async fn ensure(self, name: &str) -> Result<Id, ServiceError> {
        let namespace = NamespaceName::default_namespace();
        let draft = PolicyDraft { name: name.to_owned(), ..PolicyDraft::default() };
        for _ in 0..3 {
            if let Some(id) = self.find_login_policy(&namespace, name).await? {
                return Ok(id);
            }
            match retry_on_conflict(|| self.try_create(&namespace, &draft, Some(record_keys::login_policy(name)))).await
            {
                Ok(made) => {
                    tracing::warn!(
                        event = "acl.login.policy_created",
                        policy = name,
                        "a login role names a policy that does not exist; created it without rules"
                    );
                    return Ok(made.value.id);
                }
                // Another writer created it; read again.
                Err(ServiceError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ServiceError::Contention)
    }

    /// Returns the id of the policy with that name, or else of the one that had it last; `None` if neither exists.
    async fn find_login_policy(self, namespace: &NamespaceName, name: &str) -> Result<Option<Id>, ServiceError> {
        let typed_store = &self.records.typed_store;
        let key = record_keys::login_policy(name);
        let named = typed_store.get::<Id>(&record_keys::policy_name(namespace, name), Freshness::Linearizable).await?;
        let remembered = match typed_store.get::<Id>(&key, Freshness::Linearizable).await {
            // A damaged entry must not block logins; the next write replaces it.
            Err(error) if typed_store.skip_unreadable(&error) => None,
            entry => entry?.map(|entry| *entry.value),
        };
        match (named, remembered) {
            (Some(named), remembered) => {
                let id = *named.value;
                if remembered != Some(id) {
                    typed_store.commit(Transaction::default().put(key, &id)?).await?;
                }
                Ok(Some(id))
            }
            (None, Some(id)) => {
                let policy =
                    typed_store.store().get(&record_keys::policy(namespace, id), Freshness::Linearizable).await?;
                Ok(policy.map(|_| id))
            }
            (None, None) => Ok(None),
        }
    }

    /// Returns the policy by id; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<PolicyRecord>>, ServiceError> {
        self.records.get_record(caller, namespace, Some(record_keys::policy(namespace, id)), freshness).await
    }

    /// Returns the policy by name; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get_by_name(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<PolicyRecord>>, ServiceError> {
        let by_name = is_policy_or_builtin_name(name).then(|| record_keys::policy_name(namespace, name));
        self.records.get_record_by_name(caller, namespace, by_name, record_keys::policy, freshness).await
    }

    /// Lists the policies of one namespace, or of all. Needs `acl:read` in the given namespace.
    pub(crate) async fn list(
        self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        freshness: Freshness,
    ) -> Result<RecordList<PolicyRecord>, ServiceError> {
        self.records.list_records(caller, "policy", namespace, freshness).await
    }

    /// Replaces a policy; fields missing in the draft are cleared. Only name and description of built-in policies can
    /// change. Needs `acl:write`.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, id, draft)).await
    }

    async fn try_update(
        self,
        namespace: &NamespaceName,
        id: Id,
        draft: &PolicyDraft,
    ) -> Result<Stored<PolicyRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        let by_id = record_keys::policy(namespace, id);
        let previous = self.records.load_for_update::<PolicyRecord>(&by_id, || format!("policy {id}")).await?;
        let old = &previous.value;
        let mut draft = draft.clone();
        if is_built_in(id) {
            if draft.rules.is_empty() {
                draft.rules.clone_from(&old.rules);
            }
            if draft.rules != old.rules || !draft.datacenters.is_empty() {
                return Err(InvalidRequest::BuiltinPolicy(old.name.clone()).into());
            }
        }
        // The names of built-in policies are reserved for them.
        let is_reserved_name =
            is_built_in(id) && draft.name == old.name || id == GLOBAL_READ_ONLY && draft.name == GLOBAL_READ_ONLY_NAME;
        if !is_reserved_name {
            validate_draft(&draft)?;
        }
        let policy = to_record(id, target.name.clone(), &draft);
        let mut transaction =
            Transaction::default().require_unchanged(&by_id, previous.modified).put(by_id, &policy)?;
        if policy.name != old.name {
            let by_name = record_keys::policy_name(namespace, &policy.name);
            self.records.require_absent(&by_name, || name_taken(&policy.name)).await?;
            transaction = transaction.move_name_entry(record_keys::policy_name(namespace, &old.name), by_name, &id)?;
        }
        self.records.commit_update(&target, transaction, &previous, policy).await
    }

    /// Deletes a policy; returns false if it does not exist. Tokens and roles that link it remain. Needs `acl:write`.
    /// Built-in policies cannot be deleted.
    pub(crate) async fn delete(self, caller: &Caller, namespace: &NamespaceName, id: Id) -> Result<bool, ServiceError> {
        let by_name = |policy: &PolicyRecord| {
            if is_built_in(id) {
                return Err(Forbidden::BuiltinPolicy(policy.name.clone()).into());
            }
            Ok(Some(record_keys::policy_name(namespace, &policy.name)))
        };
        self.records.delete_record(caller, namespace, &record_keys::policy(namespace, id), by_name).await
    }
}

fn is_built_in(id: Id) -> bool {
    id == GLOBAL_MANAGEMENT || id == GLOBAL_READ_ONLY
}

fn name_taken(name: &str) -> Conflict {
    Conflict::PolicyName(name.to_owned())
}

fn to_record(id: Id, namespace: NamespaceName, draft: &PolicyDraft) -> PolicyRecord {
    PolicyRecord {
        id,
        name: draft.name.clone(),
        namespace,
        description: draft.description.clone(),
        rules: draft.rules.clone(),
        datacenters: draft.datacenters.clone(),
    }
}

fn validate_draft(draft: &PolicyDraft) -> Result<(), InvalidRequest> {
    if draft.name.is_empty() {
        return Err(InvalidRequest::PolicyNameMissing);
    }
    if !is_policy_name(&draft.name) {
        return Err(InvalidRequest::PolicyName(truncate(&draft.name)));
    }
    Rules::parse(&draft.rules).map_err(|error| InvalidRequest::Rules(error.to_string()))?;
    Ok(())
}
