//! WebSocket connections (RFC 6455) over a client's own transport: its address, TLS, client certificate and proxy.
//!
//! reqwest upgrades the connection, and tungstenite reads and writes the frames. No extension and no subprotocol is offered.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, StatusCode};
use reqwest::RequestBuilder;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::call::{Client, ClientResponse, TransportError};
use super::sanitize::sanitize;

/// Response to the request for a WebSocket.
#[derive(Debug)]
pub enum UpgradeResponse {
    /// The connection is one now.
    Open(Box<WebSocket>),
    /// The server responded as to another request.
    Refused(ClientResponse),
}

/// An open connection.
pub struct WebSocket {
    frames: WebSocketStream<reqwest::Upgraded>,
    server: String,
}

impl std::fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocket").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedMessage {
    /// A whole message of text or bytes, of at most [`MAX_MESSAGE`] bytes.
    Data(Bytes),
    /// A ping, which is answered, or a pong: the server lives.
    Alive,
}

/// Largest message, in bytes. A larger one ends the connection before it is received.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// Largest body of a refusal that is read, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;

/// Size of the buffer that a connection keeps, in bytes. An event of Vault has less than 1 KiB.
const BUFFER: usize = 4 * 1024;

impl Client {
    /// Sends a request for a WebSocket, and checks the server's handshake within `time`.
    pub async fn open_websocket(
        &self,
        request: RequestBuilder,
        time: Duration,
    ) -> Result<UpgradeResponse, TransportError> {
        let upgraded = tokio::time::timeout(time, self.upgrade(request, time)).await;
        upgraded.unwrap_or_else(|_| Err(TransportError::TimedOut { server: self.server().to_owned(), after: time }))
    }

    async fn upgrade(&self, request: RequestBuilder, time: Duration) -> Result<UpgradeResponse, TransportError> {
        let mut nonce = [0_u8; 16];
        let no_random = || self.invalid_handshake("no random bytes for the handshake");
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| no_random())?;
        let key = STANDARD.encode(nonce);
        let request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(VERSION, "13")
            .header(KEY, key.as_str());
        let response = self.open(request, time).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(UpgradeResponse::Refused(response.read_all(time, MAX_REFUSAL).await?));
        }
        let response = response.into_inner();
        check_handshake(response.headers(), &key).map_err(|defect| self.invalid_handshake(defect))?;
        let connection = response.upgrade().await.map_err(|error| self.failed(error))?;
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(MAX_MESSAGE)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let frames = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await;
        Ok(UpgradeResponse::Open(Box::new(WebSocket { frames, server: self.server().to_owned() })))
    }

    fn invalid_handshake(&self, defect: &'static str) -> TransportError {
        TransportError::NotWebSocket { server: self.server().to_owned(), defect }
    }
}

impl WebSocket {
    /// Waits for the next message. Losing the future loses no message.
    ///
    /// # Errors
    /// The connection has ended, or broke the protocol or a limit; the text is safe for a log.
    pub async fn next(&mut self) -> Result<ReceivedMessage, TransportError> {
        let broken = |cause: String| TransportError::Broken { server: self.server.clone(), cause };
        match self.frames.next().await {
            Some(Ok(Message::Text(text))) => Ok(ReceivedMessage::Data(text.into())),
            Some(Ok(Message::Binary(bytes))) => Ok(ReceivedMessage::Data(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(ReceivedMessage::Alive),
            Some(Ok(Message::Close(frame))) => Err(broken(match frame {
                Some(frame) if frame.reason.is_empty() => format!("the server closed it ({})", frame.code),
                Some(frame) => format!("the server closed it ({}): {}", frame.code, sanitize(&frame.reason, "")),
                None => "the server closed it".to_owned(),
            })),
            Some(Err(Error::Capacity(_))) => {
                Err(TransportError::TooLarge { server: self.server.clone(), limit: MAX_MESSAGE })
            }
            Some(Err(error)) => Err(broken(sanitize(&error.to_string(), ""))),
            None => Err(broken("the connection was cut".to_owned())),
        }
    }

    /// Sends a ping, whose pong [`WebSocket::next`] returns.
    pub async fn ping(&mut self) -> Result<(), TransportError> {
        let sent = self.frames.send(Message::Ping(Bytes::new())).await;
        sent.map_err(|error| TransportError::Broken { server: self.server.clone(), cause: error.to_string() })
    }

    /// Says that the connection ends, or answers the server that said it, if that can be sent within a second.
    pub async fn close(mut self) {
        let close = async {
            if self.frames.close(None).await.is_err() {
                let _ = self.frames.flush().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), close).await;
    }
}

const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
const EXTENSIONS: HeaderName = HeaderName::from_static("sec-websocket-extensions");
const PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");

/// Checks the headers of a 101 (RFC 6455, 4.1): the server has read the key, and chose nothing that was not offered.
fn check_handshake(headers: &HeaderMap, key: &str) -> Result<(), &'static str> {
    let has_token = |name: HeaderName, token: &str| {
        let values = headers.get_all(name);
        let mut tokens = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        tokens.any(|found| found.trim().eq_ignore_ascii_case(token))
    };
    if !has_token(UPGRADE, "websocket") || !has_token(CONNECTION, "upgrade") {
        return Err("the server switches to another protocol");
    }
    let accepted: Vec<_> = headers.get_all(ACCEPT).iter().collect();
    if !matches!(accepted[..], [value] if value.as_bytes() == accept_value(key).as_bytes()) {
        return Err("Sec-WebSocket-Accept is not that of the request");
    }
    if headers.contains_key(EXTENSIONS) || headers.contains_key(PROTOCOL) {
        return Err("the server chose an extension or a protocol that was not offered");
    }
    Ok(())
}

/// Returns the value with which a server proves that it has read the key (RFC 6455, 1.3). It protects nothing, so that SHA-1 is enough.
fn accept_value(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::{ClientOptions, ProxyMode, ServerAddress, TlsOptions};

    #[tokio::test]
    async fn a_message_in_fragments_with_a_ping_in_between_is_one_message() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
            let accept = accept_value(key);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            // The first frames come with the head.
            let frames: [&[u8]; 4] = [b"\x01\x02ab", b"\x89\x01p", b"\x00\x01c", b"\x80\x01d"];
            socket.write_all(&[answer.as_bytes(), frames[0]].concat()).await.unwrap();
            for frame in &frames[1..] {
                socket.write_all(frame).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut pong = [0; 7];
            socket.read_exact(&mut pong).await.unwrap();
            assert_eq!((pong[0], pong[1], pong[6] ^ pong[2]), (0x8a, 0x81, b'p'));
        };
        let client = async {
            let limit = Duration::from_secs(10);
            let (address, tls) = (ServerAddress::Url(url.parse().unwrap()), TlsOptions::default());
            let proxy = ProxyMode::Direct;
            let options = ClientOptions { address, tls, proxy, connect_timeout: limit, response_timeout: limit };
            let client = options.build().unwrap();
            let opened = client.open_websocket(client.request(Method::GET, ""), limit).await.unwrap();
            let UpgradeResponse::Open(mut socket) = opened else { panic!("{opened:?}") };
            assert_eq!(socket.next().await, Ok(ReceivedMessage::Alive));
            assert_eq!(socket.next().await, Ok(ReceivedMessage::Data(Bytes::from_static(b"abcd"))));
            let ended = socket.next().await.unwrap_err();
            assert!(ended.to_string().contains("the call to http://127.0.0.1:"), "{ended}");
            socket.close().await;
        };
        tokio::join!(server, client);
    }

    #[test]
    fn a_handshake_is_checked_as_the_rfc_wants_it() {
        // The example of RFC 6455, 1.3.
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(accept_value(key), accept);
        let good = [("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade"), ("sec-websocket-accept", accept)];
        let check = |changed: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in good.iter().chain(changed) {
                headers.insert(*name, value.parse().unwrap());
            }
            check_handshake(&headers, key)
        };
        assert_eq!(check(&[]), Ok(()));
        for changed in [
            ("upgrade", "h2c"),
            ("connection", "close"),
            ("sec-websocket-accept", "c3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("sec-websocket-accept", ""),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-protocol", "chat"),
        ] {
            assert!(check(&[changed]).is_err(), "{changed:?}");
        }
        assert!(check_handshake(&HeaderMap::new(), key).is_err());
    }
}
