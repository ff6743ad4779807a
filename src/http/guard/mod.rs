//! Who may call a local listener. Decides from the peer and the head of the request alone.
//!
//! A page in a browser on this machine can be made to send requests here, its own headers among them, once a name
//! that its author controls resolves to loopback; an application can be talked into fetching a URL; a forwarding proxy
//! can carry a stranger's request. The guard asks for what such requests cannot bring, and refuses what they do bring.

mod connection;
mod checks;
mod log_throttle;

pub use checks::is_allowed_host;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{Request, StatusCode};

use crate::http::server::{ListenerMetrics, Peer};
use crate::metrics;
use crate::secret;
pub use connection::is_end_to_end;
use log_throttle::LogThrottle;

/// How a listener is guarded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardOptions {
    /// Names that `Host` may carry besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
    /// Whom to let in.
    pub admit: AccessMode,
}

/// Whom a listener lets in.
#[derive(Debug, Clone, Default)]
pub enum AccessMode {
    /// Unix socket: peers of the agent's own uid, root, and members of the socket's group.
    #[default]
    SocketPeers,
    /// Whoever brings this key in `X-Keyward-Key`, or in `X-Vault-Token` or `Authorization: Bearer`.
    Key(secrecy::SecretString),
    /// Every user of this machine, said so in the configuration.
    AnyLocalUser,
}

impl PartialEq for AccessMode {
    /// Keys are compared in constant time.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SocketPeers, Self::SocketPeers) | (Self::AnyLocalUser, Self::AnyLocalUser) => true,
            (Self::Key(left), Self::Key(right)) => secret::same_or_none(Some(left), Some(right)),
            _ => false,
        }
    }
}

/// Who is calling, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCaller {
    /// The peer's user id at the time it connected; `None` over TCP.
    pub uid: Option<u32>,
    /// The peer's process id then; `None` over TCP.
    pub pid: Option<u32>,
    /// `X-Vault-Token` or `Authorization: Bearer` holds the listener's key, and so no token.
    pub key_as_token: bool,
}

/// Why a request was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRejection {
    /// The status to answer with.
    pub status: StatusCode,
    /// A short fixed word for metrics and logs.
    pub reason: &'static str,
    /// What was wrong and what would do, for the caller. Holds nothing that the caller sent.
    pub message: Cow<'static, str>,
}

/// Decides for one listener.
#[derive(Debug)]
pub struct Guard {
    rules: Rules,
    own_uid: u32,
    listener_metrics: Option<ListenerMetrics>,
    log_throttle: LogThrottle,
}

#[derive(Debug)]
enum Rules {
    /// Health and metrics: nothing to steal, so that probes with any `Host` are let in. Browsers are not.
    Probes,
    Local {
        admit: AccessMode,
        /// Lower case, without port.
        hosts: BTreeSet<String>,
        /// The same as most callers write them, whole: found without taking the value apart.
        common: Vec<Box<[u8]>>,
        port: Option<u16>,
        body_bytes: u64,
        chunked: bool,
        /// Whether `X-Vault-Request: true` must be there.
        request_header: bool,
    },
}

impl Guard {
    /// A guard for a listener bound to `address` (`None` for a unix socket). Takes request bodies of at most 64 KiB
    /// with a `Content-Length`; see [`Guard::with_bodies`].
    pub fn new(options: GuardOptions, address: Option<SocketAddr>, listener_metrics: Option<ListenerMetrics>) -> Self {
        let mut hosts: BTreeSet<String> = options.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        hosts.insert("localhost".to_owned());
        if let Some(address) = address {
            hosts.insert(Ipv4Addr::LOCALHOST.to_string());
            hosts.insert(format!("[{}]", Ipv6Addr::LOCALHOST));
            if address.ip().is_loopback() {
                hosts.insert(match address {
                    SocketAddr::V4(address) => address.ip().to_string(),
                    SocketAddr::V6(address) => format!("[{}]", address.ip()),
                });
            }
        }
        let port = address.map(|address| address.port());
        let with_port = |host: &String| port.map(|port| format!("{host}:{port}"));
        let common = hosts.iter().flat_map(|host| [Some(host.clone()), with_port(host)]).flatten();
        let common = common.map(|host| host.into_bytes().into_boxed_slice()).collect();
        let admit = options.admit;
        let rules =
            Rules::Local { admit, hosts, common, port, body_bytes: 64 * 1024, chunked: false, request_header: true };
        Self {
            rules,
            own_uid: rustix::process::geteuid().as_raw(),
            listener_metrics,
            log_throttle: LogThrottle::default(),
        }
    }

    /// Takes bodies of up to `bytes` by their `Content-Length`, and chunked ones too, whose size their reader limits.
    #[must_use]
    pub fn with_bodies(mut self, bytes: u64) -> Self {
        if let Rules::Local { body_bytes, chunked, .. } = &mut self.rules {
            *body_bytes = bytes;
            *chunked = true;
        }
        self
    }

    /// Lets in callers that do not send `X-Vault-Request: true`: programs of others, which speak another API. What keeps
    /// a page and a fetched URL out is then the credential that the API itself asks for in `Authorization`.
    #[must_use]
    pub fn without_request_header(mut self) -> Self {
        if let Rules::Local { request_header, .. } = &mut self.rules {
            *request_header = false;
        }
        self
    }

    /// A guard for a listener that serves health and metrics alone, on any address, to kubelets and scrapers.
    pub fn for_probes(listener_metrics: Option<ListenerMetrics>) -> Self {
        Self {
            rules: Rules::Probes,
            own_uid: rustix::process::geteuid().as_raw(),
            listener_metrics,
            log_throttle: LogThrottle::default(),
        }
    }

    /// Decides. A refusal is counted, and logged if not too many of its kind were; what a grant is for, its handler
    /// logs.
    ///
    /// # Errors
    /// The request is not to be served: why, and with which status.
    pub fn admit<B>(&self, peer: &Peer, request: &Request<B>) -> Result<LocalCaller, GuardRejection> {
        self.decide(peer, request).inspect_err(|refusal| self.count(peer, request, refusal))
    }

    fn count<B>(&self, peer: &Peer, request: &Request<B>, refusal: &GuardRejection) {
        let listener = self.listener_metrics.as_ref().map_or("", |listener_metrics| &listener_metrics.listener);
        if let Some(untold) = self.log_throttle.allow(refusal.reason) {
            tracing::warn!(
                event = "local.refused",
                listener,
                reason = refusal.reason,
                uid = peer.uid(),
                pid = peer.pid(),
                method = known(request.method()),
                status = refusal.status.as_u16(),
                untold = (untold > 0).then_some(untold),
                "{}",
                refusal.message
            );
        }
        if let Some(listener_metrics) = &self.listener_metrics {
            let label = metrics::RefusalLabels { listener: listener_metrics.listener.clone(), reason: refusal.reason };
            listener_metrics.metrics.local_refused.get_or_create(&label).inc();
        }
    }
}

/// A caller's own words do not go into the log.
fn known(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "CONNECT" => "CONNECT",
        "TRACE" => "TRACE",
        "LIST" => "LIST",
        _ => "other",
    }
}
