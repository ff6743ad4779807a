//! The emulated cloud: metadata service, identity endpoints, token endpoint, signing keys.
