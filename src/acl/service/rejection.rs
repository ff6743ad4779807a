//! Reasons why an operation is rejected, with their texts: one line each, in the wording that clients of Consul match
//! on. `api/error.rs` maps each kind to its status.
#![allow(missing_docs, reason = "the text of each variant says it")]

use crate::model::id::Id;

/// The request is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRequest {
    // Auth methods
    #[error("Invalid Auth Method: no Name is set")]
    MethodNameMissing,
    #[error("Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed ({0:?})")]
    MethodName(String),
    #[error("Invalid Auth Method: no Type is set: it is \"cloud\", \"jwt\" or \"oidc\"")]
    MethodTypeMissing,
    #[error("Invalid Auth Method: Type {0:?} is unknown: it is \"cloud\", \"jwt\" or \"oidc\"")]
    MethodType(String),
    #[error("Changing an Auth Method's Type is not permitted")]
    MethodTypeChanged,
    #[error("Invalid Auth Method: TokenLocality {0:?} is neither \"local\" nor \"global\"")]
    TokenLocality(String),
    #[error("Invalid Auth Method: NamespaceRules[{index}]: {reason}")]
    NamespaceRule { index: usize, reason: String },
    #[error("Invalid Auth Method: invalid TokenNameFormat: {0}")]
    TokenNameFormat(String),
    #[error("Invalid Auth Method: {0}")]
    MethodConfig(String),
    #[error("Invalid Auth Method: Config JWTValidationPubKeys[{index}] {reason}")]
    ValidationKey { index: usize, reason: String },

    // Binding rules
    #[error("Invalid Binding Rule: no AuthMethod is set")]
    RuleMethodMissing,
    #[error("Invalid Binding Rule: cannot find auth method with name {0:?}: not found")]
    RuleMethod(String),
    #[error("Invalid Binding Rule: the AuthMethod of a binding rule is immutable")]
    RuleMethodChanged,
    #[error("Invalid Binding Rule: its auth method cannot be used: {0}")]
    RuleMethodConfig(String),
    #[error("Invalid Binding Rule: unknown BindType {0:?}")]
    BindType(String),
    #[error("Invalid Binding Rule: no BindName is set")]
    BindNameMissing,
    #[error("Invalid Binding Rule: invalid BindName or BindVars: {0}")]
    BindName(String),
    #[error("Invalid Binding Rule: invalid Selector: {0}")]
    Selector(String),

    // Links of tokens, roles and namespaces
    #[error("{0}")]
    Identity(String),
    #[error("A link to an ACL {kind} has neither an ID nor a Name")]
    EmptyLink { kind: &'static str },
    #[error("No such ACL {kind} with ID {id:?}")]
    LinkId { kind: &'static str, id: String },
    #[error("No such ACL {kind} with name {name:?}")]
    LinkName { kind: &'static str, name: String },
    #[error("The link to ACL {kind} {id} names it {name:?}, and its name is {actual:?}: give only the ID or the Name")]
    LinkNames { kind: &'static str, id: String, name: String, actual: String },

    // Namespaces
    #[error("Must specify a Name for Namespace creation")]
    NamespaceNameMissing,
    #[error("Invalid Namespace: invalid Name {name:?}: {reason}")]
    NamespaceName { name: String, reason: String },
    #[error("Invalid Namespace: {0}")]
    NamespaceMeta(String),
    #[error("Delete operation not permitted on the default namespace")]
    DefaultNamespace,

    // Policies and roles
    #[error("Invalid Policy: no Name is set")]
    PolicyNameMissing,
    #[error(
        "Invalid Policy: invalid Name. Only alphanumeric characters, a single '/', '-' and '_' are allowed ({0:?})"
    )]
    PolicyName(String),
    #[error("{0}")]
    Rules(String),
    #[error("Changing the Rules or the Datacenters of the builtin {0} policy is not permitted")]
    BuiltinPolicy(String),
    #[error("Invalid Role: no Name is set")]
    RoleNameMissing,
    #[error("Invalid Role: invalid Name. Only alphanumeric characters, '-' and '_' are allowed ({0:?})")]
    RoleName(String),

    // Tokens
    #[error("Invalid Token: {field} - not a valid UUID")]
    TokenId { field: &'static str },
    #[error("Invalid Token: {field} - UUIDs with the prefix \"00000000-0000-0000-0000-0000000000\" are reserved")]
    ReservedId { field: &'static str },
    #[error("AuthMethod field is disallowed outside of login")]
    TokenMethod,
    #[error("Token Expiration TTL '{0}' should be > 0")]
    TokenTtl(String),
    #[error("Token Expiration TTL and Expiration Time cannot both be set")]
    TokenTtlAndTime,
    #[error("ExpirationTime cannot be before CreateTime")]
    PastExpiration,
    #[error("ExpirationTime cannot be {comparison} than {bound} in the future (was {lifetime})")]
    ExpirationBound { comparison: &'static str, bound: String, lifetime: String },
    #[error("Changing a token's SecretID is not permitted")]
    SecretChanged,
    #[error("Cannot toggle local mode of {0}")]
    LocalChanged(Id),
    #[error("Cannot change AuthMethod of {0}")]
    TokenMethodChanged(Id),
    #[error("Cannot change expiration time of {0}")]
    ExpirationChanged(Id),
    #[error("Cannot clone a token created from an auth method")]
    LoginTokenCloned,
    #[error("Delete operation not permitted on the anonymous token")]
    AnonymousToken,
    #[error("Deletion of the request's authorization token is not permitted")]
    OwnToken,

    // Sealing keys and snapshots
    #[error(
        "Other servers may use this store: add the new key as the first line of every key file, and call without Generate"
    )]
    SharedStore,
    #[error("{0}")]
    KeyFile(String),
    #[error("Invalid snapshot: {0}")]
    Snapshot(String),
    #[error("Invalid snapshot: unexpected record {0}")]
    SnapshotRecord(String),
    #[error("Invalid snapshot: it has no default namespace")]
    SnapshotNamespace,
    #[error("Invalid snapshot: it belongs to datacenter {found:?}, but this server to {expected:?}")]
    SnapshotDatacenter { found: String, expected: String },
    #[error("Invalid snapshot: its secrets are encrypted with the key {0:?}, which is not in this server's key file")]
    SnapshotKey(String),
}

/// The object does not exist.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    #[error("cannot find {0}")]
    Record(String),
    #[error("Namespace {0:?} does not exist")]
    Namespace(String),
    #[error("auth method {0:?} was deleted")]
    DeletedMethod(String),
    #[error("Cannot find token \"{0}\"")]
    Token(Id),
    #[error("Requested token does not exist: ACL not found")]
    ClonedToken,
}

/// The name or id is taken, or another operation has priority.
#[derive(Debug, thiserror::Error)]
pub enum Conflict {
    #[error("Invalid Auth Method: An auth method with Name {0:?} already exists")]
    MethodName(String),
    #[error("Invalid Policy: A Policy with Name {0:?} already exists")]
    PolicyName(String),
    #[error("Invalid Role: A Role with Name {0:?} already exists")]
    RoleName(String),
    // Consul words it differently for an update.
    #[error("Invalid Role: A role with name {0:?} already exists")]
    RoleRenamed(String),
    #[error("Invalid Namespace: A Namespace with Name {0:?} already exists")]
    NamespaceName(String),
    #[error("Namespace {0:?} is marked for deletion")]
    NamespaceMarked(String),
    #[error("Invalid Token: {field} is already in use")]
    TokenId { field: &'static str },
    #[error("another restore is running on this server")]
    RestoreRunning,
    #[error("another restore has just started")]
    RestoreStarted,
    #[error("another restore took over from this one")]
    RestoreSuperseded,
}

/// The request is forbidden for another reason than a missing privilege.
#[derive(Debug, thiserror::Error)]
pub enum Forbidden {
    #[error("Permission denied: ACL bootstrap no longer allowed (reset index: {0})")]
    Bootstrap(u64),
    #[error("Permission denied: token wasn't created via login")]
    Logout,
    #[error("Delete operation not permitted on the builtin {0} policy")]
    BuiltinPolicy(String),
    #[error("Permission denied: a restore was interrupted, and only the token that started it may restore now")]
    Restore,
}

/// The operation is temporarily impossible.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("this server's key file lacks a key that the store's tokens are encrypted with")]
    SealKey,
    #[error("another rekey is running: try again later")]
    Rekey,
}
