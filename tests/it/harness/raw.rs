//! HTTP/1 by hand: sends bytes that a correct client never sends, and shows every byte of the response.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// A connection.
pub(crate) struct Raw(Box<dyn Stream>);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// One response as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The first message of an error's body.
    pub(crate) fn error(&self) -> String {
        self.json()["errors"][0].as_str().unwrap_or_else(|| panic!("no error in {self:?}")).to_owned()
    }
}

impl Raw {
    pub(crate) async fn unix(path: &Path) -> Self {
        Self(Box::new(UnixStream::connect(path).await.unwrap()))
    }

    pub(crate) async fn tcp(address: std::net::SocketAddr) -> Self {
        Self(Box::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next response to a request that was not `HEAD`; `None` if the connection ends before one.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if self.more(&mut bytes).await == 0 {
                assert!(bytes.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&bytes));
                return None;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Answer { status, head, body: String::new() };
        let length: usize = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        while bytes.len() < head_end + length {
            assert_ne!(self.more(&mut bytes).await, 0, "half a body");
        }
        response.body = String::from_utf8(bytes.split_off(head_end)).unwrap();
        Some(response)
    }

    async fn more(&mut self, bytes: &mut Vec<u8>) -> usize {
        // A connection that is closed with unread bytes ends in a reset.
        tokio::time::timeout(Duration::from_mins(1), self.0.read_buf(bytes))
            .await
            .expect("an answer in time")
            .unwrap_or(0)
    }

    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await.expect("an answer")
    }

    /// All that comes, up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            assert_ne!(self.more(&mut bytes).await, 0, "{:?} and no more", String::from_utf8_lossy(&bytes));
        }
        String::from_utf8(bytes).unwrap()
    }

    /// All that comes until the other side ends the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        while self.more(&mut bytes).await > 0 {}
        String::from_utf8(bytes).unwrap()
    }

    /// Returns true if the other side closes the connection within `time` without sending a byte. A process that another test starts
    /// has a copy of each descriptor until it executes its program: for that the connection is read in real time afterwards.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> bool {
        let mut byte = [0];
        let mut read = tokio::time::timeout(time, self.0.read(&mut byte)).await;
        for _ in 0..1_000 {
            if read.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            tokio::task::yield_now().await;
            read = tokio::time::timeout(Duration::ZERO, self.0.read(&mut byte)).await;
        }
        matches!(read, Ok(Ok(0) | Err(_)))
    }
}
