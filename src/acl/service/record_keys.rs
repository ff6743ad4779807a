//! Store keys of all records.
//!
//! | key | record |
//! |---|---|
//! | `namespace/NAME` | namespace |
//! | `policy/NAMESPACE/ID`, `policy-name/NAMESPACE/NAME` | policy, and its id by name |
//! | `login-policy/NAME` | id of the policy that has the name, or had it last, for login roles of the configuration |
//! | `role/NAMESPACE/ID`, `role-name/NAMESPACE/NAME` | role, and its id by name |
//! | `token/NAMESPACE/ACCESSOR` | token |
//! | `token-id/HASH` | location of the token with that secret or accessor |
//! | `token-end/TIME/ACCESSOR` | index of tokens by expiration |
//! | `token-login/METHOD-ID/ACCESSOR` | index of tokens by auth method |
//! | `auth-method/NAMESPACE/NAME` | auth method |
//! | `binding-rule/NAMESPACE/ID` | binding rule |
//! | `removal/KIND/NAME` | pending removal of dependents |
//! | `seal/key` | ids of the active sealing keys |
//! | `seal/begun` | marker of a new store until `seal/key` exists |
//! | `bootstrap/done` | the bootstrap was done |
//! | `restore/mark`, `restore/last` | marker of a restore in progress; start of the last restore |
//!
//! Namespace names are in lower case, times sort as text, and hashes are keyed: without the server's key they reveal
//! nothing of the secret.

use serde::{Deserialize, Serialize};

use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;
use crate::store::Key;

/// Value of `token-id/HASH`: location of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenIndexEntry {
    /// Namespace of the token.
    pub namespace: NamespaceName,
    /// Accessor of the token.
    pub accessor: Id,
    /// True if the key is the hash of the secret; false for the accessor, which does not authenticate.
    pub secret: bool,
}

/// Key of a namespace.
pub(crate) fn namespace(name: &NamespaceName) -> Key {
    Key::new(&["namespace", &name.key()])
}

/// Key of a policy.
pub(crate) fn policy(namespace: &NamespaceName, id: Id) -> Key {
    Key::new(&["policy", &namespace.key(), &id.to_string()])
}

/// Key of a policy's name index.
pub(crate) fn policy_name(namespace: &NamespaceName, name: &str) -> Key {
    Key::new(&["policy-name", &namespace.key(), name])
}

/// Key of the id of the policy that login roles of the configuration name.
pub(crate) fn login_policy(name: &str) -> Key {
    Key::new(&["login-policy", name])
}

/// Key of a role.
pub(crate) fn role(namespace: &NamespaceName, id: Id) -> Key {
    Key::new(&["role", &namespace.key(), &id.to_string()])
}

/// Key of a role's name index.
pub(crate) fn role_name(namespace: &NamespaceName, name: &str) -> Key {
    Key::new(&["role-name", &namespace.key(), name])
}

/// Key of a token.
pub(crate) fn token(namespace: &NamespaceName, accessor: Id) -> Key {
    Key::new(&["token", &namespace.key(), &accessor.to_string()])
}

/// Key of the index entry of a token's secret or accessor.
pub(crate) fn token_id(hash: &SecretHash) -> Key {
    Key::new(&["token-id", &hash.to_hex()])
}

/// Key of a token's entry in the expiration index.
pub(crate) fn token_end(end: Timestamp, accessor: Id) -> Key {
    Key::new(&["token-end", &end.sort_key(), &accessor.to_string()])
}

/// Key of a token's entry in the index by auth method.
pub(crate) fn token_login(method: Id, accessor: Id) -> Key {
    Key::new(&["token-login", &method.to_string(), &accessor.to_string()])
}

/// Key of an auth method.
pub(crate) fn auth_method(namespace: &NamespaceName, name: &str) -> Key {
    Key::new(&["auth-method", &namespace.key(), name])
}

/// Key of a binding rule.
pub(crate) fn binding_rule(namespace: &NamespaceName, id: Id) -> Key {
    Key::new(&["binding-rule", &namespace.key(), &id.to_string()])
}

/// Key of a pending removal.
pub(crate) fn removal(kind: &str, name: &str) -> Key {
    Key::new(&["removal", kind, name])
}

/// Kind and key prefix of the restore records.
pub(crate) const RESTORE: &str = "restore";
pub(super) const RESTORES: &str = "restore/";

/// Key of the marker of a restore in progress.
pub(crate) fn restore_marker() -> Key {
    Key::new(&[RESTORE, "mark"])
}

/// Key of the start time of the last restore.
pub(crate) fn restore_last() -> Key {
    Key::new(&[RESTORE, "last"])
}

/// Returns the key prefix of a kind in a namespace, or in all namespaces.
pub(crate) fn kind_prefix(kind: &str, namespace: Option<&NamespaceName>) -> String {
    match namespace {
        Some(namespace) => format!("{kind}/{}/", namespace.key()),
        None => format!("{kind}/"),
    }
}
