//! Log lines on their way out: whoever logs never waits for whoever reads.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for their reader. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Whether bytes that were taken from here are being written.
    writing: bool,
    /// Lines that found no room and have not been told of.
    dropped: u64,
}

impl Lines {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or counts it as dropped where there is no room.
    fn push(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.bytes.len() + line.len() > ROOM {
            queue.dropped += 1;
        } else {
            queue.bytes.extend_from_slice(line);
        }
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Writes what comes to `out`, for ever; for a thread of its own. `tell` is called with the number of lines that
    /// were dropped once the reader has caught up.
    pub(super) fn write_to(&self, out: &mut impl Write, tell: impl Fn(u64)) {
        loop {
            let mut queue = self.queue();
            queue.writing = false;
            self.0.changed.notify_all();
            if queue.bytes.is_empty() && queue.dropped > 0 {
                let dropped = std::mem::take(&mut queue.dropped);
                drop(queue);
                tell(dropped);
                continue;
            }
            let nothing = |queue: &mut Queue| queue.bytes.is_empty();
            let mut queue = self.0.changed.wait_while(queue, nothing).unwrap_or_else(PoisonError::into_inner);
            let bytes = std::mem::take(&mut queue.bytes);
            queue.writing = true;
            drop(queue);
            // With nobody to read there is nobody to tell.
            let _ = write(out, &bytes);
        }
    }

    /// Waits until all is written, at most for `time`.
    pub(super) fn flush(&self, time: Duration) {
        let busy = |queue: &mut Queue| queue.writing || !queue.bytes.is_empty() || queue.dropped > 0;
        drop(self.0.changed.wait_timeout_while(self.queue(), time, busy));
    }
}

/// Standard error may be a pipe that someone has made non-blocking.
fn write(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

/// Takes whole lines: what formats them writes each at once.
#[derive(Debug)]
pub(super) struct Line<'a>(&'a Lines);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many bytes of lines may wait.
const ROOM: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that takes one write each time it is told to.
    struct Slow {
        go: mpsc::Receiver<()>,
        took: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go.recv().map_err(io::Error::other)?;
            self.took.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_does_not_wait_and_what_was_dropped_is_told_once_the_reader_is_back() {
        const WAIT: Duration = Duration::from_secs(10);
        let lines = Lines::default();
        let ((go, going), (took, taken), (tell, told)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let writer = lines.clone();
        std::thread::spawn(move || {
            writer.write_to(&mut Slow { go: going, took }, move |dropped| tell.send(dropped).unwrap());
        });
        let line = vec![b'x'; 1024];
        lines.push(b"first");
        // Until the writer holds it, so that all the room is there.
        while !lines.queue().writing {
            std::thread::yield_now();
        }
        for _ in 0..ROOM / 1024 + 3 {
            lines.make_writer().write_all(&line).unwrap();
        }
        lines.flush(Duration::from_millis(10));
        assert!(taken.try_recv().is_err(), "a reader that takes nothing holds nobody up for longer than the time");
        go.send(()).unwrap();
        assert_eq!(taken.recv_timeout(WAIT).unwrap(), b"first");
        assert!(told.try_recv().is_err());
        go.send(()).unwrap();
        assert_eq!(taken.recv_timeout(WAIT).unwrap().len(), ROOM);
        assert_eq!(told.recv_timeout(WAIT).unwrap(), 3);
        go.send(()).unwrap();
        lines.push(b"last");
        lines.flush(WAIT);
        assert_eq!(taken.try_recv().unwrap(), b"last");
    }
}
