//! What the platform is, asked before anyone calls: one `GET /api/v2/ping` when the gateway starts, and one when the platform is
//! back after it did not answer, perhaps as another release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ACCEPT, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::body::Asked;
use super::upstream_call::Call;
use super::{Gateway, Inner};
use crate::backoff::{Backoff, random_unit};
use crate::credential_watch::Availability;
use crate::gateway::availability::Server;
use crate::gateway::jsonapi_error::MEDIA_TYPE;
use crate::gateway::platform_token::PlatformToken;
use crate::http::server::Caller;

/// How the upstream was when it was last called.
#[derive(Debug, Default)]
pub(super) struct Reached {
    failing: AtomicBool,
    /// Rung when it begins to fail.
    fell: Notify,
}

impl Reached {
    /// It has answered. Says whether it did not before.
    pub(super) fn answered(&self) -> bool {
        self.failing.swap(false, Ordering::Relaxed)
    }

    /// It has not answered. Says whether it did before.
    pub(super) fn failed(&self) -> bool {
        let first = !self.failing.swap(true, Ordering::Relaxed);
        if first {
            self.fell.notify_one();
        }
        first
    }

    fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }
}

/// What became of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pinged {
    /// The platform has answered, and told what it tells.
    Told,
    /// The token was refused, and nothing was told.
    Refused,
    /// There was no answer, or none of the platform's own.
    Silent,
}

impl Gateway {
    /// Asks the platform what it is once there is a token, and again when it is back after a failure, until `stop`. Where
    /// nobody answers it asks again after a while, at the longest 5 minutes; callers are served meanwhile, and nothing is known.
    ///
    /// It also reports a token that the platform refuses, and one that is missing.
    pub async fn know_platform(&self, stop: CancellationToken) {
        let both = async { tokio::join!(self.0.pings(), self.0.report_token()) };
        let _ = stop.run_until_cancelled(both).await;
        self.0.forget_reports();
    }
}

impl Inner {
    async fn pings(&self) {
        self.parts.status_registry.set_platform(Some(self.server().shown(&self.origin)));
        let mut watch = self.parts.source.watch.clone();
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
                Pinged::Told => {
                    backoff.reset();
                    self.falls(&mut backoff).await;
                }
                Pinged::Silent => self.parts.clock.sleep(backoff.next(random_unit())).await,
                // Another token is tried at once.
                Pinged::Refused => tokio::select! {
                    () = self.parts.clock.sleep(backoff.next(random_unit())) => {}
                    changed = watch.changed() => if changed.is_err() { return std::future::pending().await },
                },
            }
        }
    }

    /// Returns when the platform has stopped answering, and has not begun again within the first wait: an answer to anyone
    /// tells what a ping would.
    async fn falls(&self, backoff: &mut Backoff) {
        loop {
            self.reached.fell.notified().await;
            self.parts.clock.sleep(backoff.next(random_unit())).await;
            if self.reached.is_failing() {
                return;
            }
            backoff.reset();
        }
    }

    async fn ping(&self, token: &Arc<PlatformToken>) -> Pinged {
        let call =
            Call::new(Caller::ourselves(), Method::GET, PathAndQuery::from_static("/api/v2/ping"), own_headers());
        let Ok(answer) = self.send(&call, token, Asked::empty().send()).await else { return Pinged::Silent };
        if answer.status() == StatusCode::UNAUTHORIZED {
            // It is replaced where callers meet it, and not for this.
            self.record_refusal(token);
        }
        if *self.server() != Server::default() {
            return Pinged::Told;
        }
        match answer.status() {
            StatusCode::UNAUTHORIZED => Pinged::Refused,
            StatusCode::TOO_MANY_REQUESTS => Pinged::Silent,
            status if status.is_server_error() => Pinged::Silent,
            _ => Pinged::Told,
        }
    }
}

/// The headers of a call of the gateway's own.
pub(super) fn own_headers() -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(MEDIA_TYPE)),
        (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
    ])
}
