//! A server on a socket of this process whose responses a test scripts, and that records its requests: the upstream of
//! a proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::request;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use keyward_http::server::{Endpoint, IncomingBody, IncomingBodyError, Listener, ListenerLimits, Peer};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// A header's value; empty where it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The token in Vault's header.
    #[cfg(feature = "dev")]
    pub(crate) fn token(&self) -> &str {
        self.header("x-vault-token")
    }

    /// The token of `Authorization: Bearer`.
    pub(crate) fn bearer(&self) -> &str {
        bearer(&self.headers)
    }
}

/// The token of `Authorization: Bearer`; empty where there is none.
pub(crate) fn bearer(headers: &HeaderMap) -> &str {
    let value = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.strip_prefix("Bearer ").unwrap_or_default()
}

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, IncomingBodyError>>;
pub(crate) type Script = Arc<dyn Fn(&Seen) -> Response<Bytes> + Send + Sync>;

/// Received requests, and scripted responses that replace the usual ones. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    requests: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Mutex<Option<Script>>>,
}

impl Scripted {
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.requests.lock().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.requests.lock().last().unwrap().clone()
    }

    /// Sets the responses that replace the usual ones.
    pub(crate) fn answers(&self, script: impl Fn(&Seen) -> Response<Bytes> + Send + Sync + 'static) {
        *self.script.lock() = Some(Arc::new(script));
    }

    /// The script that answers, or none.
    #[cfg(feature = "dev")]
    pub(crate) fn script(&self) -> MutexGuard<'_, Option<Script>> {
        self.script.lock()
    }

    /// Takes a request to its end, and remembers it.
    pub(crate) async fn take(&self, parts: request::Parts, body: IncomingBody) -> Seen {
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let target = parts.uri.path_and_query().unwrap().to_string();
        let request = Seen { method: parts.method.to_string(), target, headers: parts.headers, body };
        self.requests.lock().push(request.clone());
        request
    }

    /// Response of the script, if there is one.
    pub(crate) fn scripted(&self, request: &Seen) -> Option<Answer> {
        let script = self.script.lock().clone()?;
        Some(script(request).map(|bytes| Full::from(bytes).map_err(|never| match never {}).boxed_unsync()))
    }
}

/// A free port of loopback.
pub(crate) const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Serves the responses of `answer`.
pub(crate) fn serve<F>(
    address: SocketAddr,
    answer: impl Fn(Request<IncomingBody>) -> F + Clone + Send + Unpin + 'static,
    limits: ListenerLimits,
    servers: &mut JoinSet<()>,
) -> SocketAddr
where
    F: Future<Output = Answer> + Send + 'static,
{
    let listener = Listener::bind(&Endpoint::Tcp(address)).unwrap();
    let address = listener.tcp_address().unwrap();
    let service = move |_: Peer, request: Request<IncomingBody>| Box::pin(answer(request));
    servers.spawn(listener.serve(service, limits, CancellationToken::new()));
    address
}

/// A response of a script.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

/// A response with a complete body.
pub(crate) fn whole(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::from(body.into()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", kind.parse().unwrap());
    response
}

/// A body of so many MiB, created as it is read; `taken` is called with each piece.
pub(crate) fn down(mib: usize, mut taken: impl FnMut(usize) + Send + 'static) -> Answer {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let pieces = futures_util::stream::iter((0..mib * 16).map(move |_| {
        taken(piece.len());
        Ok(Frame::data(piece.clone()))
    }));
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response.headers_mut().insert("content-length", (mib * 1024 * 1024).into());
    response.headers_mut().insert("content-type", "application/octet-stream".parse().unwrap());
    response
}

/// Number of received bytes, which are discarded.
pub(crate) async fn count(mut body: IncomingBody) -> usize {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    bytes
}

/// A client that goes straight to where it is sent.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}
