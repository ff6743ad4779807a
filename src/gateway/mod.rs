//! The gateway: a listener in front of the provisioning platform's API that puts the current platform token on each
//! request, and knows the dated history of that API.
//!
//! A module names only modules above it in this list.
