//! Checks requests to a local listener before any handler. It looks at the peer and the request's head only.
//!
//! A web page can make a browser on this machine send requests here, with headers of its choice, once a name that its
//! author controls resolves to loopback (DNS rebinding). An application can be tricked into fetching a URL (SSRF), and
//! a forwarding proxy can carry a stranger's request. The guard requires what such requests cannot carry and rejects
//! what they do carry.

mod checks;
mod log_throttle;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{Request, StatusCode};
use keyward_machine::secret;
use keyward_telemetry::audit::AuditedRequest;

pub use checks::is_allowed_host;
pub(crate) use checks::is_end_to_end;
pub use log_throttle::LogThrottle;

use crate::server::{HttpMetrics, ListenerMetrics, Peer, RefusalLabels};

/// Options of a listener's guard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuardOptions {
    /// Names allowed in `Host` besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
    /// Access mode of the listener.
    pub admit: AccessMode,
}

/// Rule for the callers that a listener accepts.
#[derive(Debug, Clone, Default)]
pub enum AccessMode {
    /// Unix socket: accepts peers of the agent's own uid, root, and members of the socket's group.
    #[default]
    SocketPeers,
    /// Accepts callers that send this key in `X-Keyward-Key`, `X-Vault-Token` or `Authorization: Bearer`.
    Key(keyward_machine::secret_string::SecretString),
    /// Accepts every user of this machine; explicit in the configuration.
    AnyLocalUser,
    /// Accepts every local peer: the rules of callers decide, which identify each by the kernel.
    Callers,
}

impl PartialEq for AccessMode {
    /// Compares keys in constant time.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SocketPeers, Self::SocketPeers)
            | (Self::AnyLocalUser, Self::AnyLocalUser)
            | (Self::Callers, Self::Callers) => true,
            (Self::Key(left), Self::Key(right)) => secret::ct_eq_option(Some(left), Some(right)),
            _ => false,
        }
    }
}

/// Caller of a local listener, as identified by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCaller {
    /// User id of the peer when it connected; `None` over TCP.
    pub uid: Option<u32>,
    /// Process id of the peer when it connected; `None` over TCP.
    pub pid: Option<u32>,
    /// `X-Vault-Token` or `Authorization: Bearer` holds the listener's key instead of a token.
    pub key_as_token: bool,
}

/// Reason why a request was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRejection {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Reason from a fixed set, for metrics and logs.
    pub(crate) reason: &'static str,
    /// Message for the caller: the problem and the remedy. Holds nothing that the caller sent.
    pub message: Cow<'static, str>,
}

/// Guard of one listener.
#[derive(Debug)]
pub struct Guard {
    rules: GuardRules,
    own_uid: u32,
    listener_metrics: Option<ListenerMetrics>,
    log_throttle: LogThrottle,
}

#[derive(Debug)]
enum GuardRules {
    /// Health and metrics: no secrets, so probes with any `Host` are accepted. Requests from browsers are not.
    Probes,
    Local {
        admit: AccessMode,
        /// Allowed hosts in lower case, without port.
        hosts: BTreeSet<String>,
        /// The allowed hosts as most callers write them, for a comparison without parsing.
        common: Vec<Box<[u8]>>,
        port: Option<u16>,
        body_bytes: u64,
        chunked: bool,
        required: RequiredHeader,
    },
}

/// Header that a request must have because neither a web page nor a fetched URL can set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequiredHeader {
    /// `X-Vault-Request: true`.
    Request,
    /// A header of the clients of cloud identities, which may also hold the listener's key.
    Identity,
    /// None: the API itself requires a credential.
    None,
}

impl Guard {
    /// Creates a guard for a listener bound to `address` (`None` for a unix socket). It accepts request bodies of at
    /// most 64 KiB with a `Content-Length`; see [`Guard::with_bodies`].
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
        let rules = GuardRules::Local {
            admit,
            hosts,
            common,
            port,
            body_bytes: 64 * 1024,
            chunked: false,
            required: RequiredHeader::Request,
        };
        Self {
            rules,
            own_uid: rustix::process::geteuid().as_raw(),
            listener_metrics,
            log_throttle: LogThrottle::default(),
        }
    }

    /// Accepts bodies of up to `bytes` by their `Content-Length`, and chunked ones, whose size their reader limits.
    #[must_use]
    pub fn with_bodies(mut self, bytes: u64) -> Self {
        if let GuardRules::Local { body_bytes, chunked, .. } = &mut self.rules {
            *body_bytes = bytes;
            *chunked = true;
        }
        self
    }

    /// Accepts callers without `X-Vault-Request: true`, for clients of another API. Web pages and fetched URLs are then
    /// kept out by the credential that the API itself requires in `Authorization`.
    #[must_use]
    pub fn without_request_header(mut self) -> Self {
        if let GuardRules::Local { required, .. } = &mut self.rules {
            *required = RequiredHeader::None;
        }
        self
    }

    /// Accepts the clients of cloud identities: in place of `X-Vault-Request: true` they send `X-IDENTITY-HEADER` (App Service) or
    /// `Authorization` (AWS), each of which may hold the listener's key as it is.
    #[must_use]
    pub fn for_identity_clients(mut self) -> Self {
        if let GuardRules::Local { required, .. } = &mut self.rules {
            *required = RequiredHeader::Identity;
        }
        self
    }

    /// Creates a guard for a listener that serves only health and metrics, on any address, to kubelets and scrapers.
    pub fn for_probes(listener_metrics: Option<ListenerMetrics>) -> Self {
        Self {
            rules: GuardRules::Probes,
            own_uid: rustix::process::geteuid().as_raw(),
            listener_metrics,
            log_throttle: LogThrottle::default(),
        }
    }

    /// Checks a request. A rejection is counted, and logged at a limited rate.
    pub fn admit<B>(&self, peer: &Peer, request: &Request<B>) -> Result<LocalCaller, GuardRejection> {
        self.decide(peer, request).inspect_err(|refusal| {
            self.count(peer, request, refusal);
            if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
                audited.refuse(refusal.reason);
            }
        })
    }

    fn count<B>(&self, peer: &Peer, request: &Request<B>, refusal: &GuardRejection) {
        let listener = self.listener_metrics.as_ref().map_or("", |listener_metrics| &listener_metrics.listener);
        if let Some(suppressed) = self.log_throttle.allow(refusal.reason) {
            tracing::warn!(
                event = "local.refused",
                listener,
                reason = refusal.reason,
                uid = peer.uid(),
                pid = peer.pid(),
                method = method_label(request.method()),
                status = refusal.status.as_u16(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{}",
                refusal.message
            );
        }
        if let Some(listener_metrics) = &self.listener_metrics {
            let label = RefusalLabels { listener: listener_metrics.listener.clone(), reason: refusal.reason };
            listener_metrics.metrics.get::<HttpMetrics>().refused.get_or_create(&label).inc();
        }
    }
}

/// Maps a method to a fixed set, so that no text of the caller reaches the log.
fn method_label(method: &http::Method) -> &'static str {
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
