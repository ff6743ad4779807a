//! Forwards requests to an upstream: connections kept and capped, bodies streamed both ways, hop-by-hop headers kept
//! to their hop. Decides nothing about who may send what: that is for the part that forwards.

mod body;
mod headers;
mod keep;
mod wire;
mod pool;
mod downstream;
mod reach;
mod tunnel;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request};

pub use body::Upstream;
pub use downstream::Downstream;
pub use headers::{is_direct, remove_all};
pub use keep::{Copied, Copying, Place, Room};
pub use reach::{Reach, ReachError};
pub use tunnel::Tunnel;

use body::{Moved, Sent};
use pool::{Lent, Pool};
use wire::Failed;

/// How an upstream is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it is.
    pub target: Target,
    /// TLS, where it is spoken: the configuration and the name to expect in the certificate.
    pub tls: Option<(Arc<rustls::ClientConfig>, rustls::pki_types::ServerName<'static>)>,
    /// Connections at once; a request over it waits for one for `connect_timeout`.
    pub connections: usize,
    /// How long a connection is kept without a request; less than the upstream keeps it.
    pub idle: Duration,
    /// Time to get a connection, TLS included.
    pub connect_timeout: Duration,
}

/// Where an upstream is.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A host and a port, resolved for each new connection.
    Host(String, u16),
    /// A unix socket.
    Unix(PathBuf),
    /// A host and a port behind a proxy.
    Through(Box<Tunnel>),
}

/// Sends requests to one upstream. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Forwarder(Arc<Pool>);

/// Why an upstream did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("cannot connect to the upstream")]
    Connect(#[source] std::io::Error),
    /// No connection could be had in time.
    #[error("no connection to the upstream within {0:?}")]
    ConnectTimeout(Duration),
    /// Every connection was answering a request for all of that time.
    #[error("all {0} connections to the upstream are busy")]
    Busy(usize),
    /// The connection ended, or what came was no answer.
    #[error("the upstream gave no whole answer")]
    Broken(#[source] hyper::Error),
    /// The answer's head did not come in time.
    #[error("the upstream gave no answer within {0:?}")]
    AnswerTimeout(Duration),
}

impl ForwardError {
    /// The status that tells a caller: 502, 503 or 504.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Connect(_) | Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout(_) | Self::AnswerTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl Forwarder {
    /// Makes no connection yet.
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Pool::new(options)))
    }

    /// Sends a request and gives the answer, its body still to come. The head's target is in origin form and its `Host` the
    /// upstream's; both are the caller's to set. `same` makes the same head once more. Dropped before it is done, or with the answer's body unread, it closes the connection, and the upstream sees
    /// its caller hang up.
    ///
    /// `limit` is the time to the head of the answer, from sending the request, or from the last piece of its body: within
    /// twice this time a body that does not move, or an upstream that does not answer, is given up.
    ///
    /// A request that met a kept connection as the upstream closed it is sent once more: one of which nothing was sent,
    /// and a `GET`, `HEAD` or `LIST` without body.
    ///
    /// # Errors
    /// No connection, or no answer: see [`ForwardError::status`].
    pub async fn send(
        &self,
        head: Head,
        same: impl Fn() -> Head,
        body: Upstream,
        limit: Duration,
    ) -> Result<Response<Downstream>, ForwardError> {
        let mut lent = self.0.lend().await?;
        let moved = Moved::of(&body);
        let again = lent.kept && body.is_empty() && is_read(&head.0.method);
        let request = Request::from_parts(head.0, Sent::new(body, moved.clone()));
        match lent.wire.exchange(request, &moved, limit).await {
            Ok(answer) => Ok(finish(answer, lent)),
            Err(Failed::Unsent(request, _)) if lent.kept => {
                drop(lent);
                Box::pin(self.anew(*request, &moved, limit)).await
            }
            Err(Failed::Sent(ForwardError::Broken(_))) if again => {
                drop(lent);
                let nothing = Sent::new(Upstream::empty(), Moved::default());
                Box::pin(self.anew(Request::from_parts(same().0, nothing), &moved, limit)).await
            }
            Err(Failed::Unsent(_, error) | Failed::Sent(error)) => Err(error),
        }
    }

    async fn anew(
        &self,
        request: Request<Sent>,
        moved: &Moved,
        limit: Duration,
    ) -> Result<Response<Downstream>, ForwardError> {
        let mut lent = self.0.lend_new().await?;
        match lent.wire.exchange(request, moved, limit).await {
            Ok(answer) => Ok(finish(answer, lent)),
            Err(Failed::Unsent(_, error) | Failed::Sent(error)) => Err(error),
        }
    }
}

/// The head of a request as it goes to the upstream: the caller's hop is taken off.
#[derive(Debug)]
pub struct Head(request::Parts);

impl Head {
    /// Takes a caller's head, and the length of the body that is sent with it, where that is known.
    pub fn new(mut parts: request::Parts, length: Option<u64>) -> Self {
        headers::for_upstream(&mut parts.headers, length);
        parts.extensions.clear();
        Self(parts)
    }

    /// Its headers, as they are sent.
    pub const fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.0.headers
    }

    /// What the same head can be made of once more, which few requests need: it is no map.
    pub fn copy(&self) -> HeadCopy {
        let Self(request::Parts { method, uri, headers, .. }) = self;
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        HeadCopy { method: method.clone(), uri: uri.clone(), headers }
    }
}

/// A head that was sent, to be sent once more.
#[derive(Debug)]
pub struct HeadCopy {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl HeadCopy {
    /// The head.
    pub fn head(&self) -> Head {
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri) = (self.method.clone(), self.uri.clone());
        for (name, value) in &self.headers {
            parts.headers.append(name.clone(), value.clone());
        }
        Head(parts)
    }
}

/// Whether a method only reads. `LIST` is a method of secrets servers.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD) || method.as_str() == "LIST"
}

fn finish(answer: Response<hyper::body::Incoming>, lent: Lent) -> Response<Downstream> {
    let mut answer = answer.map(|body| Downstream::new(body, lent));
    headers::for_caller(answer.headers_mut());
    answer
}
