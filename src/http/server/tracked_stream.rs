//! Stream of a connection that records blocked writes in the connection's state.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;

pub(super) struct TrackedStream<I> {
    pub(super) stream: I,
    pub(super) state: Arc<ConnectionState>,
}

impl<I> TrackedStream<I> {
    fn record_write<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Pending => self.state.record_blocked_write(),
            Poll::Ready(_) => self.state.record_write(),
        }
        outcome
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TrackedStream<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TrackedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.record_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Over TLS a write goes into a buffer, and it is the flush that waits for the client.
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.record_write(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWriteExt as _, BufWriter};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::server::ListenerLimits;

    #[tokio::test(start_paused = true)]
    async fn a_flush_that_waits_for_the_client_has_the_time_limit_of_a_write() {
        // As TLS does, this stream takes more than the client reads.
        let (ours, mut theirs) = tokio::io::duplex(16);
        let state = Arc::new(ConnectionState::new(Instant::now(), Arc::default()));
        state.begin_request();
        let mut stream = TrackedStream { stream: BufWriter::with_capacity(1000, ours), state: Arc::clone(&state) };
        let limits = ListenerLimits::default();
        stream.write_all(&[b'x'; 100]).await.unwrap();
        assert_eq!(state.deadline(&limits, 0), None);
        assert!(timeout(Duration::from_secs(1), stream.flush()).await.is_err());
        assert_eq!(state.deadline(&limits, 0), Some(30_001));
        let read = async { tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut [0; 100]).await.unwrap() };
        let (flushed, _) = tokio::join!(stream.flush(), read);
        flushed.unwrap();
        assert_eq!(state.deadline(&limits, 0), None);
    }
}
