//! A server of Vault's events in front of another server: it answers subscriptions as a test says, byte by byte, and relays all other
//! requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Answer to a request for a subscription.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Opens a WebSocket.
    Open,
    /// Opens one with this `Sec-WebSocket-Accept`.
    Accept(&'static str),
    /// Sends these bytes, and closes.
    Bytes(String),
    /// Relays the connection to another server.
    Relay(SocketAddr),
}

impl Reply {
    /// A response with a body of Vault's errors.
    pub(crate) fn error(status: u16, error: &str) -> Self {
        Self::response(status, "", &json!({ "errors": [error] }).to_string())
    }

    /// A redirect.
    pub(crate) fn redirect(location: &str) -> Self {
        Self::response(307, &format!("Location: {location}\r\n"), "")
    }

    pub(crate) fn response(status: u16, headers: &str, body: &str) -> Self {
        Self::Bytes(format!(
            "HTTP/1.1 {status} Answer\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }
}

/// The server. It ends when it is dropped.
pub(crate) struct EventServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// Heads of the requests for a subscription.
    heads: Vec<String>,
    next: VecDeque<Reply>,
    always: Option<Reply>,
    /// Sends bytes on the latest connection; no bytes cut it.
    connection: Option<mpsc::UnboundedSender<Vec<u8>>>,
    open: usize,
    /// Frames of the latest connection's client: opcode and payload.
    received: Vec<(u8, Vec<u8>)>,
    /// Answers pings.
    is_deaf: bool,
}

impl EventServer {
    /// Serves on a free port of loopback, in front of the server at this URL.
    pub(crate) async fn start(behind: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind: SocketAddr = behind.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(serve(client, behind, Arc::clone(&shared)));
            }
        });
        Self { address, state, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the answer to the next request.
    pub(crate) fn reply_next(&self, reply: Reply) {
        self.state.lock().next.push_back(reply);
    }

    /// Sets the answer to all requests without one of their own.
    pub(crate) fn reply_always(&self, reply: Reply) {
        self.state.lock().always = Some(reply);
    }

    /// Heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state.lock().heads.clone()
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.state.lock().open
    }

    /// Frames that the latest connection's client has sent.
    pub(crate) fn received(&self) -> Vec<(u8, Vec<u8>)> {
        self.state.lock().received.clone()
    }

    /// Has the server answer no ping any more.
    pub(crate) fn turn_deaf(&self) {
        self.state.lock().is_deaf = true;
    }

    /// Sends bytes on the latest connection.
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        self.state.lock().connection.as_ref().expect("a connection").send(bytes).unwrap();
    }

    /// Cuts the latest connection.
    pub(crate) fn cut(&self) {
        self.send(Vec::new());
    }

    /// Sends an event of a write.
    pub(crate) fn send_written(&self, path: &str, version: u64) {
        self.send(text(&written(path, version)));
    }
}

/// An event of key-value version 2, as Vault Enterprise sends it.
pub(crate) fn written(path: &str, version: u64) -> String {
    event("kv-v2/data-write", &format!("secret/data/{path}"), Some(version)).to_string()
}

/// An event of the store at `secret/`.
pub(crate) fn event(kind: &str, path: &str, version: Option<u64>) -> Value {
    let mut metadata = json!({ "operation": kind, "modified": "true", "path": path, "oldest_version": "0" });
    if let Some(version) = version {
        metadata["current_version"] = json!(version.to_string());
    }
    json!({
        "id": "901f2388-aabb-a385-7bc0-0b09d5fa060b",
        "source": "vault://vault-0",
        "specversion": "1.0",
        "type": kind,
        "datacontenttype": "application/json",
        "time": "2026-02-17T13:11:39.227341-08:00",
        "data": {
            "event": { "id": "901f2388-aabb-a385-7bc0-0b09d5fa060b", "metadata": metadata },
            "event_type": kind,
            "plugin_info": { "mount_class": "secret", "mount_accessor": "kv_a6081d01", "mount_path": "secret/", "plugin": "kv" },
        },
    })
}

/// A frame of a server, without a mask (RFC 6455, 5.2).
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(u8::try_from(short).unwrap()),
        long @ 126..65536 => {
            bytes.push(126);
            bytes.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
        longer => {
            bytes.push(127);
            bytes.extend((longer as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

/// A message of text in one frame.
pub(crate) fn text(text: &str) -> Vec<u8> {
    frame(0x81, text.as_bytes())
}

async fn serve(mut client: TcpStream, behind: SocketAddr, state: Arc<Mutex<State>>) -> Option<()> {
    // Driven time does not wait until the kernel has joined small frames.
    client.set_nodelay(true).ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).unwrap();
    if !text.starts_with("GET /v1/sys/events/subscribe/") {
        return relay(client, behind, &text).await;
    }
    let reply = {
        let mut state = state.lock();
        state.heads.push(text.clone());
        state.next.pop_front().or_else(|| state.always.clone()).unwrap_or(Reply::Open)
    };
    let key = text.lines().find_map(|line| line.to_lowercase().starts_with("sec-websocket-key: ").then(|| &line[19..]));
    let accept = match reply {
        Reply::Open => {
            let text = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key?);
            STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
        }
        Reply::Accept(accept) => accept.to_owned(),
        Reply::Bytes(bytes) => {
            client.write_all(bytes.as_bytes()).await.ok()?;
            return client.shutdown().await.ok();
        }
        Reply::Relay(address) => return relay(client, address, &text).await,
    };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    client.write_all(answer.as_bytes()).await.ok()?;
    let (sender, orders) = mpsc::unbounded_channel();
    {
        let mut state = state.lock();
        state.open += 1;
        state.received.clear();
        state.connection = Some(sender);
    }
    speak(client, orders, &state).await;
    state.lock().open -= 1;
    Some(())
}

async fn relay(mut client: TcpStream, to: SocketAddr, head: &str) -> Option<()> {
    let mut server = TcpStream::connect(to).await.ok()?;
    server.write_all(head.as_bytes()).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}

/// Sends what the test orders, records the client's frames, and answers its pings.
async fn speak(client: TcpStream, mut orders: mpsc::UnboundedReceiver<Vec<u8>>, state: &Mutex<State>) -> Option<()> {
    let (mut reader, mut writer) = client.into_split();
    let (sender, mut frames) = mpsc::unbounded_channel();
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        while let Some(frame) = client_frame(&mut reader).await {
            sender.send(frame).ok()?;
        }
        Some(())
    });
    loop {
        tokio::select! {
            order = orders.recv() => {
                let bytes = order.filter(|bytes| !bytes.is_empty())?;
                writer.write_all(&bytes).await.ok()?;
            }
            received = frames.recv() => {
                let (opcode, payload) = received?;
                let answers = opcode == 9 && !state.lock().is_deaf;
                state.lock().received.push((opcode, payload.clone()));
                if answers {
                    writer.write_all(&frame(0x8a, &payload)).await.ok()?;
                }
            }
        }
    }
}

/// Reads a short masked frame.
async fn client_frame(reader: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let opcode = reader.read_u8().await.ok()? & 0x0f;
    let length = reader.read_u8().await.ok()?;
    assert!(length & 0x80 != 0 && length & 0x7f < 126, "a client masks its frames, and has none that is long");
    let mut mask = [0; 4];
    reader.read_exact(&mut mask).await.ok()?;
    let mut payload = vec![0; usize::from(length & 0x7f)];
    reader.read_exact(&mut payload).await.ok()?;
    payload.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= mask[at % 4]);
    Some((opcode, payload))
}
