//! Calls a service of this process by HTTP/1.1 over a pipe in memory: no socket, no TLS, and the same checks as for others.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use super::server::{IncomingBody, Peer, ResponseFuture, serve_stream};

/// A service of this process, called as another process would call it.
#[derive(Clone)]
pub struct InProcessService(Arc<Serve>);

type Serve = dyn Fn(DuplexStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

impl std::fmt::Debug for InProcessService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcessService")
    }
}

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// The response is too large.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The service broke the connection off.
    #[error("the service did not respond")]
    Broken,
}

/// Bytes that the pipe holds in each direction.
const PIPE: usize = 64 * 1024;

impl InProcessService {
    /// Wraps a service. It sees this process's own user as its caller.
    pub fn new<B>(
        service: impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<B> + Clone + Send + Sync + 'static,
    ) -> Self
    where
        B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let peer = own_peer();
        Self(Arc::new(move |pipe| Box::pin(serve_stream(pipe, peer, service.clone()))))
    }

    /// Sends a request, and reads a response of at most `limit` bytes.
    pub async fn call(&self, request: Request<Full<Bytes>>, limit: usize) -> Result<Response<Bytes>, InProcessError> {
        let (client_end, server_end) = tokio::io::duplex(PIPE);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(client_end)).await;
        let (mut sender, connection) = handshake.map_err(|_| InProcessError::Broken)?;
        let call = async {
            let response = sender.send_request(request).await.map_err(|_| InProcessError::Broken)?;
            let (head, body) = response.into_parts();
            match Limited::new(body, limit).collect().await {
                Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Err(InProcessError::TooLarge(limit)),
                Err(_) => Err(InProcessError::Broken),
            }
        };
        let connected = async {
            let _ = tokio::join!(connection, (self.0)(server_end));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            response = call => response,
            () = connected => Err(InProcessError::Broken),
        }
    }
}

fn own_peer() -> Peer {
    Peer::Unix {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        pid: std::process::id(),
        in_group: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_is_called_with_the_own_user_and_its_response_is_bounded() {
        let service = InProcessService::new(|peer: Peer, request: Request<IncomingBody>| {
            let text = format!("{} {} {:?}", request.method(), request.uri(), peer.uid().is_some());
            ResponseFuture::ready(Response::new(Full::new(Bytes::from(text))))
        });
        let request = || Request::get("/a?b").header("host", "localhost").body(Full::default()).unwrap();
        let response = service.call(request(), 100).await.unwrap();
        assert_eq!(response.body(), &Bytes::from_static(b"GET /a?b true"));
        let error = service.call(request(), 5).await.unwrap_err();
        assert_eq!(error.to_string(), "the response is larger than 5 bytes");
    }
}
