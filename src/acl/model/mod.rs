//! Data model of the ACL server and its validation rules: pure values without clock, files or network.

pub mod azure_identity;
pub(crate) mod content_hash;
pub(crate) mod go_duration;
pub(crate) mod go_json;
pub mod id;
pub(crate) mod links;
pub mod names;
pub(crate) mod namespace;
pub(crate) mod policy;
pub(crate) mod resource_id;
pub mod rules;
pub mod authorize;
pub(crate) mod role;
pub(crate) mod secret;
pub mod timestamp;
pub(crate) mod templated;
pub mod token;
pub(crate) mod verified_claims;
pub(crate) mod selector;
pub mod jwks_url;
pub(crate) mod jwt_rules;
pub mod google_identity;
pub mod kubernetes_identity;
pub mod aws_identity;
pub(crate) mod oidc;
pub(crate) mod auth_method;
pub(crate) mod binding_rule;
pub mod snapshot;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

/// Name of the default namespace.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";
