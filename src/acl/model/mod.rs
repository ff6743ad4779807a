//! Data model of the ACL server and its validation rules: pure values without clock, files or network.

pub mod azure_identity;
pub mod content_hash;
pub mod go_duration;
pub mod id;
pub mod links;
pub mod names;
pub mod namespace;
pub mod policy;
pub mod resource_id;
pub mod rules;
pub mod authorize;
pub mod role;
pub mod secret;
pub mod timestamp;
pub mod templated;
pub mod token;
pub mod verified_claims;
pub mod selector;
pub mod jwks_url;
pub mod jwt_claims;
pub mod auth_method;
pub mod binding_rule;
pub mod snapshot;

/// Name of the default namespace.
pub const DEFAULT_NAMESPACE: &str = "default";
