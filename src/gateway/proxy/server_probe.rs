//! What the platform is, asked before anyone calls: one `GET /api/v2/ping` when the gateway starts, and one when the platform is
//! back after it did not answer, perhaps as another release.

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

/// How the upstream was when it was last called.
#[derive(Debug, Default)]
pub(super) struct UpstreamHealth {
    failing: AtomicBool,
    /// Rung when it begins to fail.
    failure_started: Notify,
}

impl UpstreamHealth {
    /// It has answered. Says whether it did not before.
    pub(super) fn record_success(&self) -> bool {
        self.failing.swap(false, Ordering::Relaxed)
    }

    /// It has not answered. Says whether it did before.
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

/// What became of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PingResult {
    /// The platform has answered, and told what it tells.
    Answered,
    /// The token was refused, and nothing was told.
    TokenRejected,
    /// There was no answer, or none of the platform's own.
    NoAnswer,
}

impl Gateway {
    /// Asks the platform what it is once there is a token, and again when it is back after a failure, until `stop`. Where
    /// nobody answers it asks again after a while, at the longest 5 minutes; callers are served meanwhile, and nothing is known.
    ///
    /// It also reports a token that the platform refuses, and one that is missing.
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

    /// Returns when the platform has stopped answering, and has not begun again within the first wait: an answer to anyone
    /// tells what a ping would.
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
            // It is replaced where callers meet it, and not for this.
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

/// The headers of a call of the gateway's own.
pub(super) fn gateway_headers() -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(MEDIA_TYPE)),
        (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
    ])
}
