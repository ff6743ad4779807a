//! The keys of the store's records.
//!
//! | key | record |
//! |---|---|
//! | `namespace/NAME` | a namespace |
//! | `policy/NAMESPACE/ID`, `policy-name/NAMESPACE/NAME` | a policy, and its id by name |
//! | `role/NAMESPACE/ID`, `role-name/NAMESPACE/NAME` | a role, and its id by name |
//! | `token/NAMESPACE/ACCESSOR` | a token |
//! | `token-id/HASH` | where the token with that secret, or that accessor, is |
//! | `token-end/TIME/ACCESSOR` | the token that ends then |
//! | `token-login/METHOD-ID/ACCESSOR` | a token that a login by that method made |
//! | `auth-method/NAMESPACE/NAME` | an auth method |
//! | `binding-rule/NAMESPACE/ID` | a binding rule |
//! | `removal/KIND/NAME` | something that is being removed in pieces |
//! | `seal/key` | which of the server's keys tokens are under |
//! | `seal/begun` | a new store, until `seal/key` is there |
//! | `bootstrap/done` | that the first token was made |
//! | `restore/mark`, `restore/last` | the store is being restored from a snapshot, and by whom; when that was begun last |
//!
//! Names of namespaces are in lower case, times sort as texts, and a hash is keyed: without the server's key it tells
//! nothing of the secret.

use serde::{Deserialize, Serialize};

use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::SecretHash;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::store::Key;

/// What `token-id/HASH` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The token's namespace.
    pub namespace: NamespaceName,
    /// The token's accessor.
    pub accessor: Id,
    /// Whether what was hashed is the secret; else it is the accessor, which opens nothing.
    pub secret: bool,
}

/// A namespace.
pub fn namespace(name: &NamespaceName) -> Key {
    Key::of(&["namespace", &name.key()])
}

/// A policy.
pub fn policy(namespace: &NamespaceName, id: Id) -> Key {
    Key::of(&["policy", &namespace.key(), &id.to_string()])
}

/// A policy's id by its name.
pub fn policy_name(namespace: &NamespaceName, name: &str) -> Key {
    Key::of(&["policy-name", &namespace.key(), name])
}

/// A role.
pub fn role(namespace: &NamespaceName, id: Id) -> Key {
    Key::of(&["role", &namespace.key(), &id.to_string()])
}

/// A role's id by its name.
pub fn role_name(namespace: &NamespaceName, name: &str) -> Key {
    Key::of(&["role-name", &namespace.key(), name])
}

/// A token.
pub fn token(namespace: &NamespaceName, accessor: Id) -> Key {
    Key::of(&["token", &namespace.key(), &accessor.to_string()])
}

/// Where the token with that secret or accessor is.
pub fn token_id(hash: &SecretHash) -> Key {
    Key::of(&["token-id", &hash.to_hex()])
}

/// The token that ends at a time.
pub fn token_end(end: Timestamp, accessor: Id) -> Key {
    Key::of(&["token-end", &end.sort_key(), &accessor.to_string()])
}

/// A token that a login made.
pub fn token_login(method: Id, accessor: Id) -> Key {
    Key::of(&["token-login", &method.to_string(), &accessor.to_string()])
}

/// An auth method.
pub fn auth_method(namespace: &NamespaceName, name: &str) -> Key {
    Key::of(&["auth-method", &namespace.key(), name])
}

/// A binding rule.
pub fn binding_rule(namespace: &NamespaceName, id: Id) -> Key {
    Key::of(&["binding-rule", &namespace.key(), &id.to_string()])
}

/// Something that is being removed in pieces.
pub fn removal(kind: &str, name: &str) -> Key {
    Key::of(&["removal", kind, name])
}

/// The kind of the records that tell of restores, and the start of their keys.
pub const RESTORE: &str = "restore";
pub(super) const RESTORES: &str = "restore/";

/// That the store is being restored.
pub fn restore_mark() -> Key {
    Key::of(&[RESTORE, "mark"])
}

/// When the last restore began.
pub fn restore_last() -> Key {
    Key::of(&[RESTORE, "last"])
}

/// Where the records of a kind in a namespace start; those of every namespace if none is given.
pub fn within(kind: &str, namespace: Option<&NamespaceName>) -> String {
    match namespace {
        Some(namespace) => format!("{kind}/{}/", namespace.key()),
        None => format!("{kind}/"),
    }
}
