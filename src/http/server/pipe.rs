//! Serves a stream without a listener, for calls within this process.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::Peer;
use super::connection::{ConnectedPeer, Connection};
use super::connection_state::ConnectionState;
use super::incoming_body::IncomingBody;

/// Serves a stream to its end without a listener and its limits, for calls within this process.
pub(crate) fn serve_stream<I, S, F, B>(stream: I, peer: Peer, service: S) -> impl Future<Output = ()>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Peer, Request<IncomingBody>) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin,
{
    let state = Arc::new(ConnectionState::new(Instant::now(), Arc::default()));
    let connected = ConnectedPeer { peer, identity: None };
    Connection::new(stream, connected, service, STREAM_HEAD_LIMIT, state, None)
}

/// Largest head of a stream without a listener, in bytes.
const STREAM_HEAD_LIMIT: usize = 16 * 1024;
