//! TLS before a server of a test that has none.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::agent::server_client::Authority;

/// Ends TLS on a port of its own, and passes the bytes on. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct TlsFront {
    /// Its URL, with a slash at the end.
    pub(crate) url: String,
    authority: Authority,
    _serving: JoinSet<()>,
}

impl TlsFront {
    pub(crate) async fn start(behind: &SocketAddr) -> Self {
        let authority = Authority::new();
        let acceptor = TlsAcceptor::from(authority.server(&["127.0.0.1"], None));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let behind = *behind;
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut server = TcpStream::connect(behind).await.unwrap();
                    // The client closes as it likes.
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
        Self { url, authority, _serving: serving }
    }

    /// File of the certificate to trust.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.authority.ca_file()
    }
}
