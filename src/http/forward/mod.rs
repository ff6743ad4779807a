//! Forwards requests to an upstream: connections kept and capped, bodies streamed both ways, hop-by-hop headers kept
//! to their hop. Decides nothing about who may send what: that is for the part that forwards.

mod body;
mod headers;
mod wire;
mod pool;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as _;

pub use body::{Downstream, Upstream};

use pool::{Lent, Pool};

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
    /// Time from sending a request to the head of its answer.
    pub answer_timeout: Duration,
}

/// Where an upstream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A host and a port, resolved for each new connection.
    Host(String, u16),
    /// A unix socket.
    Unix(PathBuf),
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

    /// Sends a request and gives the answer, its body still to come. The request's target is in origin form and its
    /// `Host` the upstream's; both are the caller's to set. Dropped before it is done, or with the answer's body
    /// unread, it closes the connection, and the upstream sees its caller hang up.
    ///
    /// A `GET` or `HEAD` without body that meets a kept connection as the upstream closes it is sent once more.
    ///
    /// # Errors
    /// No connection, or no answer: see [`ForwardError::status`].
    pub async fn send(&self, request: Request<Upstream>) -> Result<Response<Downstream>, ForwardError> {
        let (mut parts, body) = request.into_parts();
        headers::for_upstream(&mut parts.headers, body.size_hint().exact());
        let repeatable = matches!(parts.method, Method::GET | Method::HEAD) && body.is_empty();
        let again = repeatable.then(|| parts.clone());
        let mut lent = self.0.lend().await?;
        let (kept, limit) = (lent.kept, self.0.options.answer_timeout);
        match lent.exchange(Request::from_parts(parts, body), limit).await {
            Err(ForwardError::Broken(_)) if kept && let Some(parts) = again => {
                drop(lent);
                let mut lent = self.0.lend_new().await?;
                let request = Request::from_parts(parts, Upstream::empty());
                let answer = lent.exchange(request, limit).await?;
                Ok(finish(answer, lent))
            }
            outcome => Ok(finish(outcome?, lent)),
        }
    }
}

fn finish(answer: Response<hyper::body::Incoming>, lent: Lent) -> Response<Downstream> {
    let mut answer = answer.map(|body| Downstream::new(body, lent));
    headers::for_caller(answer.headers_mut());
    answer
}
