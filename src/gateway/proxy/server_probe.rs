//! Detects product and release of the platform before the first call: one `GET /api/v2/ping` at the start, and one
//! after an outage, as the release may have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ACCEPT, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::body::CallerBody;
use super::upstream_call::UpstreamCall;
use super::{Gateway, Inner};
use crate::backoff::{Backoff, random_unit};
use crate::credential_watch::Availability;
use crate::gateway::availability::ServerInfo;
use crate::gateway::jsonapi_error::MEDIA_TYPE;
use crate::gateway::platform_token::PlatformToken;
use crate::http::server::Caller;

/// Reachability of the upstream at the last call.
#[derive(Debug, Default)]
pub(super) struct UpstreamHealth {
    failing: AtomicBool,
    /// Notified when calls begin to fail.
    failure_started: Notify,
}

impl UpstreamHealth {
    /// Records a response. Returns true if the call before had failed.
    pub(super) fn record_success(&self) -> bool {
        self.failing.swap(false, Ordering::Relaxed)
    }

    /// Records a failure. Returns true if the call before had succeeded.
    pub(super) fn record_failure(&self) -> bool {
        let first = !self.failing.swap(true, Ordering::Relaxed);
        if first {
            self.failure_started.notify_one();
        }
        first
    }

    fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }
}

/// Result of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PingResult {
    /// The platform has responded.
    Answered,
    /// The token was rejected, and the headers named no product.
    TokenRejected,
    /// No response, or none of the platform's own.
    NoAnswer,
}

impl Gateway {
    /// Pings the platform once there is a token, and again after an outage, until `stop`. Failed pings are retried with
    /// backoff of at most 5 minutes; callers are served meanwhile.
    ///
    /// Also reports a rejected or missing token.
    pub async fn probe_platform(&self, stop: CancellationToken) {
        let both = async { tokio::join!(self.0.probe_loop(), self.0.report_token()) };
        let _ = stop.run_until_cancelled(both).await;
        self.0.clear_metrics();
    }
}

impl Inner {
    async fn probe_loop(&self) {
        self.dependencies.status_registry.set_platform(Some(self.server().to_status(&self.origin)));
        let mut watch = self.dependencies.source.watch.clone();
        let mut backoff = Backoff::UPSTREAM;
        loop {
            let token = loop {
                if let Availability::Available(token) = watch.current().availability {
                    break token;
                }
                if watch.changed().await.is_err() {
                    return std::future::pending().await;
                }
            };
            match self.ping(&token).await {
                PingResult::Answered => {
                    backoff.reset();
                    self.wait_for_failure(&mut backoff).await;
                }
                PingResult::NoAnswer => self.dependencies.clock.sleep(backoff.next(random_unit())).await,
                // Another token is tried at once.
                PingResult::TokenRejected => tokio::select! {
                    () = self.dependencies.clock.sleep(backoff.next(random_unit())) => {}
                    changed = watch.changed() => if changed.is_err() { return std::future::pending().await },
                },
            }
        }
    }

    /// Returns when the platform has failed, and still fails after the first wait: any response in between tells what a
    /// ping would.
    async fn wait_for_failure(&self, backoff: &mut Backoff) {
        loop {
            self.upstream_health.failure_started.notified().await;
            self.dependencies.clock.sleep(backoff.next(random_unit())).await;
            if self.upstream_health.is_failing() {
                return;
            }
            backoff.reset();
        }
    }

    async fn ping(&self, token: &Arc<PlatformToken>) -> PingResult {
        let call = UpstreamCall::new(
            Caller::ourselves(),
            Method::GET,
            PathAndQuery::from_static("/api/v2/ping"),
            gateway_headers(),
        );
        let Ok(response) = self.send(&call, token, CallerBody::empty().into_request_body()).await else {
            return PingResult::NoAnswer;
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            // Only recorded: calls request the new token, not pings.
            self.record_rejection(token);
        }
        if *self.server() != ServerInfo::default() {
            return PingResult::Answered;
        }
        match response.status() {
            StatusCode::UNAUTHORIZED => PingResult::TokenRejected,
            StatusCode::TOO_MANY_REQUESTS => PingResult::NoAnswer,
            status if status.is_server_error() => PingResult::NoAnswer,
            _ => PingResult::Answered,
        }
    }
}

/// Headers of the gateway's own calls.
pub(super) fn gateway_headers() -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(MEDIA_TYPE)),
        (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
    ])
}
