//! Credentials of any kind: their encryption, the claims in them, the times of their renewals and retries, and the way from
//! their publisher to their readers.
//!
//! Nothing here knows a server: the agent and the gateway use the same hand-over for their tokens.
//!
//! A module imports only modules above it in this list.

// 0: bytes
pub mod aead;
pub mod jwt;

// 1: times
pub mod backoff;
pub mod token_bucket;
pub mod sliding_window;

// 2: from publisher to readers
pub mod demand;
pub mod credential_watch;
