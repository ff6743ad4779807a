//! Pages for a browser: what the agent does, what tokens of the ACL server may do and why, who calls the gateway, and the
//! history of the platform's API.
//!
//! Pages are rendered here, from the JSON that the other crates serve to their clients, called in this process. They work
//! without a script; with one, parts of a page are refreshed. The pages have no rights of their own: the agent's and the
//! gateway's open with the listener's key, the ACL server's with an ACL token.
//!
//! A module imports only modules above it in this list.

// 0: services that are shown, forms, and the checks of a request with its options
mod sources;
mod form;
mod guard;
mod browser_session;

// 1: responses and pages
mod response;
mod pages;

// 2: routing
mod request;
mod page_request;
mod acl_pages;
mod search;
mod router;

pub use guard::Options;
pub use router::service;
pub use sources::{Deps, Sources, StatusSource};
