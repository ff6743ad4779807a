//! What the service knows, and the rules that judge it: plain values, no clock, no files, no network.

pub mod cloud;
pub mod content_hash;
pub mod id;
pub mod policy;
pub mod resource_id;
pub mod secret;
pub mod timestamp;
pub mod token;

/// The namespace that everything lives in unless it is said otherwise.
pub const DEFAULT_NAMESPACE: &str = "default";
