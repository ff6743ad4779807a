//! Serves axum routers by keyward's own HTTP server, with a time limit for request bodies.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use keyward_http::server::{IncomingBody, IncomingBodyError, Peer};
use tokio::time::Sleep;
use tower::ServiceExt as _;

/// Converts an axum router to a service. Each request carries its [`Peer`] as an extension, and its body must arrive
/// within half a minute after a handler begins to wait for it.
pub fn axum_service(router: Router) -> impl Fn(Peer, Request<IncomingBody>) -> RouterResponse + Clone + Send + 'static {
    move |peer, mut request: Request<IncomingBody>| {
        request.extensions_mut().insert(peer);
        let router = router.clone();
        Box::pin(async move {
            let request = request.map(|body| TimedBody::new(body, BODY_TIMEOUT));
            let Ok(response) = router.oneshot(request).await;
            response
        })
    }
}

/// Response future of [`axum_service`]'s service.
type RouterResponse = Pin<Box<dyn Future<Output = Response<axum::body::Body>> + Send + 'static>>;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Request body with a time limit that starts when its reader first waits.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: IncomingBody,
    within: Duration,
    end: Option<Pin<Box<Sleep>>>,
}

/// Reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body did not arrive within {}", keyward_telemetry::time_format::format_duration(*.0))]
    Late(Duration),
    #[error("the body did not arrive completely")]
    Broken(#[source] IncomingBodyError),
}

impl TimedBody {
    pub(super) const fn new(body: IncomingBody, within: Duration) -> Self {
        Self { body, within, end: None }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let within = this.within;
        let end = this.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        end.as_mut().poll(cx).map(|()| Some(Err(BodyError::Late(within))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
