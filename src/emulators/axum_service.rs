//! Serves axum routers by keyward's own HTTP server.

use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use keyward_http::server::Peer;
use tower::ServiceExt as _;

use super::timed_body::TimedBody;

/// Converts an axum router to a service. Each request carries its [`Peer`] as an extension, and its body must arrive
/// within half a minute after a handler begins to wait for it.
pub fn axum_service(router: Router) -> impl Fn(Peer, Request<Incoming>) -> RouterResponse + Clone + Send + 'static {
    move |peer, mut request: Request<Incoming>| {
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
type RouterResponse = Pin<Box<dyn Future<Output = Response<Body>> + Send + 'static>>;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
