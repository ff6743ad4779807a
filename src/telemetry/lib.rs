//! Texts and numbers for operators: errors with their codes, health, status, metrics, log events and the audit.
//!
//! The other crates report to it: they register a component in `health`, a set of counters in `metrics`, a section in `status`,
//! and note the facts of a request for `audit`. It knows none of them.
//!
//! A module imports only modules above it in this list.

// 0: texts: times, digits and words
pub mod time_format;
pub mod hex;
pub mod wording;

// 1: errors
pub mod error_chain;
pub mod error_code;
pub mod outage;

// 2: the state of components
pub mod status;
pub mod health;
pub mod status_registry;
pub mod metrics;
pub mod recent_events;

// 3: the record of requests
pub mod audit;
