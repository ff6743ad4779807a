//! Lingering close of a connection whose client may still be sending (RFC 9112, 9.6). An immediate close would reset
//! the connection, and the client would lose a response that it has not read.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Reads and discards bytes, within limits, after this side has closed.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Bytes left to read.
    remaining: usize,
    quiet: Duration,
    timer: Pin<Box<Sleep>>,
    end: Instant,
}

impl Lingering {
    /// Starts now. A listener that stops waits less for a silent client.
    pub(super) fn new(stops: bool) -> Self {
        let now = Instant::now();
        let quiet = if stops { QUIET_AT_STOP } else { QUIET };
        Self { remaining: MAX_DISCARDED, quiet, timer: Box::pin(sleep_until(now + quiet)), end: now + MAX_LINGER }
    }

    /// Ready once the client has closed its side, or a limit is reached.
    pub(super) fn poll<I: AsyncRead + Unpin>(&mut self, stream: &mut I, cx: &mut Context<'_>) -> Poll<()> {
        let remaining_before = self.remaining;
        loop {
            let read = SCRATCH.with_borrow_mut(|scratch| {
                let mut scratch = ReadBuf::new(scratch);
                Pin::new(&mut *stream).poll_read(cx, &mut scratch).map_ok(|()| scratch.filled().len())
            });
            match read {
                Poll::Ready(Ok(count)) if (1..self.remaining).contains(&count) => self.remaining -= count,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if self.remaining < remaining_before {
            self.timer.as_mut().reset((Instant::now() + self.quiet).min(self.end));
        }
        self.timer.as_mut().poll(cx)
    }
}

/// Most bytes read; more than clients send before they read a response.
const MAX_DISCARDED: usize = 64 * 1024 * 1024;
/// Time for all of it: a client that sends a byte now and then does not keep the connection.
const MAX_LINGER: Duration = Duration::from_secs(30);
/// Time that the client may be silent.
const QUIET: Duration = Duration::from_secs(5);
const QUIET_AT_STOP: Duration = Duration::from_millis(500);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into());
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn measure(mut lingering: Lingering, stream: &mut (impl AsyncRead + Unpin)) -> Duration {
        let started = Instant::now();
        poll_fn(|cx| lingering.poll(stream, cx)).await;
        started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "a test awaits or aborts its own tasks")]
    #[tokio::test(start_paused = true)]
    async fn lingering_ends_on_close_silence_or_too_many_bytes() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let (mut reading, writing) = tokio::io::split(ours);
        let caller = tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                theirs.write_all(&[b'x'; 4096]).await.unwrap();
            }
        });
        assert_eq!(measure(Lingering::new(false), &mut reading).await.as_secs(), 20, "until it closes");
        caller.await.unwrap();
        drop(writing);

        let (ours, mut theirs) = tokio::io::duplex(1024);
        let (mut reading, _writing) = tokio::io::split(ours);
        assert_eq!(measure(Lingering::new(false), &mut reading).await.as_secs(), 5, "it is quiet");
        assert_eq!(measure(Lingering::new(true), &mut reading).await.as_millis(), 500, "we stop");
        let caller = tokio::spawn(async move {
            while theirs.write_all(&[b'x'; 64]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
        });
        assert_eq!(measure(Lingering::new(false), &mut reading).await.as_secs(), 30, "it never ends");
        caller.abort();
        let mut endless = tokio::io::repeat(b'x');
        assert_eq!(measure(Lingering::new(false), &mut endless).await.as_secs(), 0, "it has sent too much");
    }
}
