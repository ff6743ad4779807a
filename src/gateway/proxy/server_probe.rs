//! Detects product and release of the platform before the first call: one `GET /api/v2/ping` at the start, and one
//! after an outage, as the release may have changed.

use std::sync::Arc;

use http::StatusCode;
use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::Availability;
use keyward_http::reverse_proxy::RequestBody;
use keyward_machine::clock::Clock;

use super::platform_info::PlatformInfo;
use super::token_state::TokenState;
use super::upstream::Upstream;
use super::upstream_call::UpstreamCall;
use crate::availability::ServerInfo;
use crate::platform_token::PlatformToken;

/// Pings the platform.
#[derive(Debug)]
pub(super) struct ServerProbe {
    upstream: Arc<Upstream>,
    tokens: Arc<TokenState>,
    platform: Arc<PlatformInfo>,
    clock: Clock,
}

/// Result of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PingResult {
    /// The platform has responded.
    Answered,
    /// The token was rejected, and the headers named no product.
    TokenRejected,
    /// No response, or none of the platform's own.
    NoResponse,
}

impl ServerProbe {
    pub(super) const fn new(
        upstream: Arc<Upstream>,
        tokens: Arc<TokenState>,
        platform: Arc<PlatformInfo>,
        clock: Clock,
    ) -> Self {
        Self { upstream, tokens, platform, clock }
    }

    /// Pings once there is a token, and again after an outage. Never returns.
    pub(super) async fn run(&self) {
        self.platform.publish();
        let mut watch = self.tokens.source.watch.clone();
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
                PingResult::NoResponse => self.clock.sleep(backoff.next(random_unit())).await,
                // Another token is tried at once.
                PingResult::TokenRejected => tokio::select! {
                    () = self.clock.sleep(backoff.next(random_unit())) => {}
                    changed = watch.changed() => if changed.is_err() { return std::future::pending().await },
                },
            }
        }
    }

    /// Returns when the platform has failed, and still fails after the first wait: any response in between tells what a
    /// ping would.
    async fn wait_for_failure(&self, backoff: &mut Backoff) {
        loop {
            self.upstream.health.wait_for_failure().await;
            self.clock.sleep(backoff.next(random_unit())).await;
            if self.upstream.health.is_failing() {
                return;
            }
            backoff.reset();
        }
    }

    async fn ping(&self, token: &Arc<PlatformToken>) -> PingResult {
        let call = UpstreamCall::own("/api/v2/ping");
        let Ok(response) = self.upstream.send(&call, token, RequestBody::empty()).await else {
            return PingResult::NoResponse;
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            // Only recorded: calls request the new token, not pings.
            self.tokens.record_rejection(token);
        }
        if *self.platform.server() != ServerInfo::default() {
            return PingResult::Answered;
        }
        match response.status() {
            StatusCode::UNAUTHORIZED => PingResult::TokenRejected,
            StatusCode::TOO_MANY_REQUESTS => PingResult::NoResponse,
            status if status.is_server_error() => PingResult::NoResponse,
            _ => PingResult::Answered,
        }
    }
}
