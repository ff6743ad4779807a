//! Log writer with a bounded queue: logging never waits for the reader of standard error.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Queue of log lines, written by a separate thread. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct LogWriter(Arc<SharedQueue>);

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    /// True while a batch from the queue is being written.
    writing: bool,
    /// Lines dropped since the last report.
    dropped: u64,
}

impl LogWriter {
    /// Queues a line, or counts it as dropped if the queue is full.
    fn push(&self, line: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.bytes.len() + line.len() > QUEUE_CAPACITY {
            queue.dropped += 1;
        } else {
            queue.bytes.extend_from_slice(line);
        }
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Writes queued lines to `out` forever. Calls `report_dropped` with the number of lines that
    /// were dropped once the reader has caught up.
    pub(super) fn write_to(&self, out: &mut impl Write, report_dropped: impl Fn(u64)) {
        loop {
            let mut queue = self.0.queue.lock();
            queue.writing = false;
            self.0.changed.notify_all();
            if queue.bytes.is_empty() && queue.dropped > 0 {
                let dropped = std::mem::take(&mut queue.dropped);
                drop(queue);
                report_dropped(dropped);
                continue;
            }
            self.0.changed.wait_while(&mut queue, |queue| queue.bytes.is_empty());
            let bytes = std::mem::take(&mut queue.bytes);
            queue.writing = true;
            drop(queue);
            // Nowhere is left to report an error of standard error.
            let _ = write(out, &bytes);
        }
    }

    /// Waits until the queue is written, at most for `time`.
    pub(super) fn flush(&self, time: Duration) {
        let is_busy = |queue: &mut Queue| queue.writing || !queue.bytes.is_empty() || queue.dropped > 0;
        self.0.changed.wait_while_for(&mut self.0.queue.lock(), is_busy, time);
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

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(self)
    }
}

/// Writer of one line; the formatter writes each line in one call.
#[derive(Debug)]
pub(super) struct LineWriter<'a>(&'a LogWriter);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// In bytes.
const QUEUE_CAPACITY: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that accepts one write per permission.
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
    fn logging_never_waits_and_dropped_lines_are_reported_once_the_reader_catches_up() {
        const WAIT: Duration = Duration::from_secs(10);
        let lines = LogWriter::default();
        let ((go, going), (took, taken), (tell, told)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let writer = lines.clone();
        std::thread::spawn(move || {
            writer.write_to(&mut Slow { go: going, took }, move |dropped| tell.send(dropped).unwrap());
        });
        let line = vec![b'x'; 1024];
        lines.push(b"first");
        // Waits until the writer has taken it, so that the queue is empty.
        while !lines.0.queue.lock().writing {
            std::thread::yield_now();
        }
        for _ in 0..QUEUE_CAPACITY / 1024 + 3 {
            lines.make_writer().write_all(&line).unwrap();
        }
        lines.flush(Duration::from_millis(10));
        assert!(taken.try_recv().is_err(), "a reader that takes nothing holds nobody up for longer than the time");
        go.send(()).unwrap();
        assert_eq!(taken.recv_timeout(WAIT).unwrap(), b"first");
        assert!(told.try_recv().is_err());
        go.send(()).unwrap();
        assert_eq!(taken.recv_timeout(WAIT).unwrap().len(), QUEUE_CAPACITY);
        assert_eq!(told.recv_timeout(WAIT).unwrap(), 3);
        go.send(()).unwrap();
        lines.push(b"last");
        lines.flush(WAIT);
        assert_eq!(taken.try_recv().unwrap(), b"last");
    }
}
