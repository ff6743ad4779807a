//! Emulated HCP Terraform or Terraform Enterprise: the API for workspaces, states, modules and tokens, with
//! the changelog's statements about them.
//!
//! Built from public documentation; keeps everything in memory, and marks every response as emulated (`Server`). For
//! trials and tests. Runs, plans, policies and version control are not emulated.

mod account;
mod request;
mod blobs;
mod faults;
mod faults_api;
mod edition;
mod middleware;
mod ids;
mod limits;
mod lists;
mod lists_table;
mod modules;
mod page;
mod call_log;
mod registry_protocol;
mod reply;
mod routes;
mod state;
mod state_versions;
mod resources;
mod token_routes;
mod tokens;
mod workspace_attributes;
mod workspaces;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keyward_http::server::ListenerLimits;
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;

use crate::{axum_service, control_listener};

pub(crate) use crate::control_listener::BindError;
pub use crate::control_listener::FaultListener;
pub use call_log::{PresentedToken, RecordedCall};
pub use edition::Edition;
pub(crate) use faults::FaultInjector;
pub use faults::{MintedToken, NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES};
pub use faults_api::Fault;
pub use page::Paging;

/// Settings of an emulated platform.
#[derive(Debug, Clone)]
pub struct PlatformOptions {
    /// Address; port 0 picks a free one.
    pub address: SocketAddr,
    /// TLS configuration; `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clock of tokens and rate limits.
    pub clock: Clock,
    /// Organizations that exist from the start.
    pub organizations: Vec<String>,
    /// Fault injection over HTTP; `None` for in-process use only.
    pub faults: Option<FaultListener>,
}

impl Default for PlatformOptions {
    /// Creates settings for a free loopback port, with one organization, `example`.
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            clock: Clock::System,
            organizations: vec!["example".to_owned()],
            faults: None,
        }
    }
}

/// State shared by all request handlers.
#[derive(Debug, Clone)]
struct EmulatorState {
    faults: FaultInjector,
    /// The platform's own URL, for links.
    url: Arc<String>,
}

/// A running emulated platform. It stops with its task group.
#[derive(Debug, Clone)]
pub struct Platform {
    url: String,
    faults_url: Option<String>,
    faults: FaultInjector,
}

impl Platform {
    /// Binds the addresses and serves in `tasks`. Must be called inside a runtime. [`FaultInjector::mint`]
    /// returns the first token.
    pub fn start(options: PlatformOptions, tasks: &mut TaskGroup) -> Result<Self, BindError> {
        let (listener, address) = control_listener::bind_loopback(options.address)?;
        let url = format!("{}://{address}", if options.tls.is_some() { "https" } else { "http" });
        let stop = tasks.stop_token();
        let faults = FaultInjector::new(state::State::new(&options.organizations), options.clock);
        let serve_faults = |listener| {
            control_listener::serve_faults(listener, faults.clone(), "fault injection of the emulated platform", tasks)
        };
        let faults_url = options.faults.map(serve_faults).transpose()?;
        let routes = middleware::router(EmulatorState { faults: faults.clone(), url: Arc::new(url.clone()) });
        let limits = ListenerLimits {
            drain: Duration::from_secs(1),
            tls: options.tls.map(Into::into),
            ..ListenerLimits::default()
        };
        tasks.start("emulated platform", async move {
            listener.serve(axum_service(routes), limits, stop).await;
            Ok(())
        });
        Ok(Self { url, faults_url, faults })
    }

    /// Base URL, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL of the fault injection over HTTP, if enabled.
    pub fn faults_url(&self) -> Option<&str> {
        self.faults_url.as_deref()
    }

    /// Handle for injecting faults and reading the request log.
    pub const fn faults(&self) -> &FaultInjector {
        &self.faults
    }
}
