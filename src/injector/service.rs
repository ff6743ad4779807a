//! The webhook's service: receives reviews of the API server, and answers them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use keyward_http::body_buffer::{FillError, collect};
use keyward_http::server::{IncomingBody, Peer, ResponseFuture};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::metrics::Metrics;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::admission::{Outcome, review};
use super::metrics::{InjectorMetrics, ReviewLabels};
use super::options::InjectorOptions;

/// Path of the webhook.
pub const PATH: &str = "/inject";

/// Largest review in bytes: the API server takes requests of at most 3 MiB.
const MAX_REVIEW: usize = 3 * 1024 * 1024;

/// Reviews in memory at once; others wait. They take milliseconds.
const REVIEWS: usize = 8;

/// Time within which a review must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The webhook's service. Clones share it.
#[derive(Debug, Clone)]
pub struct InjectorService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: InjectorOptions,
    metrics: InjectorMetrics,
    slots: Semaphore,
}

impl InjectorService {
    /// Creates the service.
    pub fn new(options: InjectorOptions, metrics: &Metrics) -> Self {
        let metrics: InjectorMetrics = metrics.get();
        for outcome in [INJECTED, UNCHANGED, REFUSED, INVALID] {
            // A counter that appears with its first event has no increase that an alert could see.
            drop(metrics.reviews.get_or_create(&ReviewLabels { outcome }));
        }
        Self(Arc::new(Inner { options, metrics, slots: Semaphore::new(REVIEWS) }))
    }

    /// Returns the request handler of a listener.
    pub fn handler(
        self,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<Full<Bytes>> + Clone + Send + Sync + 'static {
        move |_: Peer, request: Request<IncomingBody>| {
            let service = self.clone();
            ResponseFuture::waiting(async move { service.serve(request).await })
        }
    }

    async fn serve(&self, request: Request<IncomingBody>) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, format!("the webhook's path is {PATH}"));
        }
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are posted".to_owned());
        }
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is application/json".to_owned());
        }
        // Never closed.
        let _slot = self.0.slots.acquire().await;
        match tokio::time::timeout(BODY_TIMEOUT, collect(request.into_body(), MAX_REVIEW)).await {
            Ok(Ok(body)) => self.answer(&body.into_vec()).await,
            Ok(Err(FillError::Full(..))) => {
                text(StatusCode::PAYLOAD_TOO_LARGE, format!("a review has at most {MAX_REVIEW} bytes"))
            }
            Ok(Err(FillError::Broken(_))) | Err(_) => {
                text(StatusCode::REQUEST_TIMEOUT, "the review did not arrive".to_owned())
            }
        }
    }

    async fn answer(&self, body: &[u8]) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let Inner { options, metrics, .. } = &*self.0;
        let count = |outcome: &'static str| {
            metrics.reviews.get_or_create(&ReviewLabels { outcome }).inc();
            metrics.review_seconds.observe(begun.elapsed().as_secs_f64());
        };
        // Read for each pod: a renewed CA is that of the next pod.
        let ca = match &options.server.ca_file {
            None => None,
            Some(path) => match tokio::fs::read_to_string(path).await {
                Ok(ca) => Some(ca),
                Err(error) => {
                    let code = ErrorCode::InjectionRefused.as_str();
                    let path = path.display().to_string();
                    tracing::error!(
                        event = "injector.ca.unreadable",
                        code,
                        error = format_chain(&error),
                        path,
                        "cannot read the CA bundle of the server"
                    );
                    count(INVALID);
                    return text(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        format!("cannot read the CA bundle {path}: {error}"),
                    );
                }
            },
        };
        let reviewed = match review(body, options, ca.as_deref()) {
            Ok(reviewed) => reviewed,
            Err(error) => {
                tracing::warn!(
                    event = "injector.review.invalid",
                    error = format_chain(&error),
                    "a request is no review"
                );
                count(INVALID);
                return text(StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        let (namespace, pod) = (&reviewed.namespace, &reviewed.pod);
        match &reviewed.outcome {
            Outcome::Injected => {
                tracing::info!(event = "injector.pod.injected", namespace, pod, "added keyward to a pod");
                count(INJECTED);
            }
            Outcome::Unchanged => {
                tracing::debug!(event = "injector.pod.unchanged", namespace, pod, "left a pod as it is");
                count(UNCHANGED);
            }
            Outcome::Refused(why) => {
                let code = ErrorCode::InjectionRefused.as_str();
                tracing::warn!(event = "injector.pod.refused", code, error = why, namespace, pod, "refused a pod");
                count(REFUSED);
            }
        }
        respond(StatusCode::OK, "application/json", reviewed.response)
    }
}

const INJECTED: &str = "injected";
const UNCHANGED: &str = "unchanged";
const REFUSED: &str = "refused";
const INVALID: &str = "invalid";

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", (text + "\n").into_bytes())
}

fn respond(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
