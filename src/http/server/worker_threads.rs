//! Additional threads of a listener.
//!
//! The listener's own thread accepts all connections, and gives them in turn to itself and to the others. A connection stays with
//! its thread: the threads share no run queue.

use std::io;

use keyward_telemetry::error_chain::format_chain;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle};
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::listener::Stream;

/// Runtimes that serve a listener's connections. The threads beside the listener's own end when it is dropped.
#[derive(Debug)]
pub(super) struct WorkerThreads {
    /// The listener's own runtime, and one for each other thread.
    runtimes: Vec<Handle>,
    next: usize,
    _end: DropGuard,
}

impl WorkerThreads {
    /// Starts the threads, so that the connections are served by `threads` in all. Logs those that cannot be started. Threads have the
    /// sandbox of the one that starts them.
    pub(super) fn start(threads: usize, listener: &str) -> Self {
        let end = CancellationToken::new();
        let mut runtimes = vec![Handle::current()];
        for _ in 1..threads {
            match start_thread(end.clone()) {
                Ok(runtime) => runtimes.push(runtime),
                Err(error) => {
                    tracing::warn!(
                        event = "listener.thread.failed",
                        listener,
                        error = format_chain(&error),
                        "cannot start a thread of a listener"
                    );
                }
            }
        }
        Self { runtimes, next: 0, _end: end.drop_guard() }
    }

    /// Moves a connection to the next thread; returns it with the runtime of that thread.
    pub(super) fn assign(&mut self, stream: Stream) -> io::Result<(Stream, Handle)> {
        let number = self.next % self.runtimes.len();
        self.next = number + 1;
        let runtime = self.runtimes[number].clone();
        if number == 0 {
            return Ok((stream, runtime));
        }
        let stream = {
            let _context = runtime.enter();
            match stream {
                Either::Left(stream) => Either::Left(TcpStream::from_std(stream.into_std()?)?),
                Either::Right(stream) => Either::Right(UnixStream::from_std(stream.into_std()?)?),
            }
        };
        Ok((stream, runtime))
    }
}

fn start_thread(end: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().name("listener".to_owned()).spawn(move || runtime.block_on(end.cancelled()))?;
    Ok(handle)
}
