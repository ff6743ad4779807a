//! A proxy that opens tunnels for `CONNECT`, and records its requests.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The proxy. It ends when it is dropped.
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Tunnel {
    /// Listens on a free port of loopback; requests without this `Proxy-Authorization` get 407.
    pub(crate) async fn start(authorization: &str) -> Self {
        Self::listen(format!("proxy-authorization: {authorization}"), None).await
    }

    /// Listens on a free port of loopback; all tunnels lead to one server, whatever host they are asked for.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        Self::listen(String::new(), Some(server)).await
    }

    async fn listen(expected: String, server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let recorded = Arc::clone(&heads);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, Arc::clone(&recorded), expected.clone(), server));
            }
        });
        Self { address, heads, _serving: serving }
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

async fn relay(mut client: TcpStream, recorded: Arc<Mutex<Vec<String>>>, expected: String, server: Option<SocketAddr>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    recorded.lock().push(head.clone());
    if !head.contains(&expected) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
        return;
    }
    let mut server = match server {
        Some(server) => TcpStream::connect(server).await.unwrap(),
        None => TcpStream::connect(head.split(' ').nth(1).unwrap()).await.unwrap(),
    };
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
