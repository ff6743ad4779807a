//! What operators read: errors with their codes, numbers and times as text, health, status, metrics, log events and the audit.
//!
//! A module imports only modules above it in this list.

// 0: texts
pub mod time_format;
pub mod hex;
pub mod wording;

// 1: errors
pub mod error_chain;
pub mod error_code;
pub mod outage;

// 2: the state of components
pub mod health;
pub mod status;
pub mod metrics;
pub mod recent_events;

// 3: the record of requests
pub mod audit;
