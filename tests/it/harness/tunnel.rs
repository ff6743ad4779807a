//! A proxy that opens tunnels for `CONNECT`, and records its requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (heard, wanted) = (Arc::clone(&heads), format!("proxy-authorization: {authorization}"));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                ways.spawn(lead(near, Arc::clone(&heard), wanted.clone()));
            }
        });
        Self { address, heads, _serving: serving }
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn lead(mut near: TcpStream, heard: Arc<Mutex<Vec<String>>>, wanted: String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    heard.lock().unwrap().push(head.clone());
    if !head.contains(&wanted) {
        near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
        return;
    }
    let mut far = TcpStream::connect(head.split(' ').nth(1).unwrap()).await.unwrap();
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}
