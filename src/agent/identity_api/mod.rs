//! Endpoints at which tools of clouds find the machine's identity, each in the form that their SDKs know.
//!
//! A request names an identity and a form: `/identity/v1/IDENTITY/FORM`. Whoever may connect needs the listener's key or the rules of
//! callers, and gets tokens of listed resources only. To add a form: its file, and a row in `form.rs`.

// 0: what all forms share
mod metrics;
mod request;

// 1: the forms, which do not import each other
mod app_service;
mod aws;
mod oauth;
mod token;

// 2: their table, and the listener
mod form;
mod route;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use keyward_http::guard;
use keyward_telemetry::metrics::Metrics;

use crate::callers::CallerGate;
use crate::identity_tokens::IdentityTokens;

pub use form::{audited_route, endpoint_path};
pub use metrics::IdentityApiMetrics;
pub use route::service;

/// Options of one listener.
#[derive(Debug, Clone)]
pub struct IdentityApiOptions {
    /// The listener's name.
    pub name: String,
    /// Identities that it serves, by name.
    pub identities: BTreeMap<String, IdentityTokens>,
}

/// Collaborators of a listener's service.
#[derive(Debug, Clone)]
pub struct IdentityApiDeps {
    /// Counts requests and refusals.
    pub metrics: Metrics,
    /// Rights of callers; the default lets every admitted request pass.
    pub callers: CallerGate,
    /// Callers to admit.
    pub guard: guard::GuardOptions,
    /// Address that the listener is bound to.
    pub address: Option<SocketAddr>,
}
