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
    /// True while a batch from the queue, or a report, is being written.
    writing: bool,
    /// True if the last write failed.
    failing: bool,
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
    /// were dropped once the reader has caught up, and after a failure once a write has succeeded.
    pub(super) fn write_to(&self, out: &mut impl Write, report_dropped: impl Fn(u64)) {
        // The rest of a line that a failed write broke: the next write completes it.
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let mut queue = self.0.queue.lock();
            queue.writing = false;
            self.0.changed.notify_all();
            // While writes fail, the report's own line would be dropped and reported in turn.
            if queue.bytes.is_empty() && queue.dropped > 0 && !queue.failing {
                let dropped = std::mem::take(&mut queue.dropped);
                // The report's line is not queued yet.
                queue.writing = true;
                drop(queue);
                report_dropped(dropped);
                continue;
            }
            self.0.changed.wait_while(&mut queue, |queue| queue.bytes.is_empty());
            let mut bytes = std::mem::take(&mut queue.bytes);
            queue.writing = true;
            drop(queue);
            let is_broken_line = !rest.is_empty();
            drop(bytes.splice(..0, rest.drain(..)));
            let unwritten = bytes.split_off(write(out, &bytes));
            let is_broken_line = bytes.last().map_or(is_broken_line, |last| *last != b'\n');
            let mut queue = self.0.queue.lock();
            queue.failing = !unwritten.is_empty();
            let (broken, lost) = split_unwritten(&unwritten, is_broken_line);
            queue.dropped += u64::try_from(memchr::memchr_iter(b'\n', lost).count()).unwrap_or(u64::MAX);
            drop(queue);
            rest.extend_from_slice(broken);
        }
    }

    /// Waits until the queue is written, at most for `time`.
    pub(super) fn flush(&self, time: Duration) {
        let is_busy =
            |queue: &mut Queue| queue.writing || !queue.bytes.is_empty() || (queue.dropped > 0 && !queue.failing);
        self.0.changed.wait_while_for(&mut self.0.queue.lock(), is_busy, time);
    }
}

/// Splits unwritten bytes into the rest of the line that the write broke, if it did, and the lines that are lost.
fn split_unwritten(unwritten: &[u8], is_broken_line: bool) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'\n', unwritten).map_or(unwritten.len(), |newline| newline + 1);
    unwritten.split_at(if is_broken_line { end } else { 0 })
}

/// Returns the number of written bytes. It is less than the length after an error, which can be reported nowhere. Standard error
/// may be a pipe that someone has made non-blocking.
fn write(out: &mut impl Write, bytes: &[u8]) -> usize {
    let mut count = 0;
    while count < bytes.len() {
        match out.write(&bytes[count..]) {
            Ok(0) => break,
            Ok(written) => count += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(50)),
            Err(_) => break,
        }
    }
    count
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

/// In bytes: enough for a burst, and a bound while the reader of standard error has stalled.
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
        let (go, going) = mpsc::channel();
        let (took, taken) = mpsc::channel();
        let (tell, told) = mpsc::channel();
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

    /// A disk with room for some bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock();
            let (room, content) = &mut *disk;
            let written = bytes.len().min(*room);
            if written == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= written;
            content.extend_from_slice(&bytes[..written]);
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_loses_are_reported_once_it_has_room_and_a_broken_line_is_completed() {
        let lines = LogWriter::default();
        let disk = Disk::default();
        let writer = lines.clone();
        let reporter = lines.clone();
        let mut out = disk.clone();
        std::thread::spawn(move || {
            writer.write_to(&mut out, move |dropped| reporter.push(format!("dropped {dropped}\n").as_bytes()));
        });
        let log = |batch: &str, room: usize, expected: &str| {
            disk.0.lock().0 = room;
            lines.push(batch.as_bytes());
            lines.flush(Duration::from_secs(10));
            assert_eq!(String::from_utf8_lossy(&disk.0.lock().1), expected, "after {batch:?}");
        };
        log("first\n", 100, "first\n");
        log("second\nthird\nfourth\n", 3, "first\nsec");
        log("fifth\n", 0, "first\nsec");
        log("sixth\n", 1, "first\nseco");
        log("seventh\n", 100, "first\nsecond\nseventh\ndropped 4\n");
        log("eighth\n", 0, "first\nsecond\nseventh\ndropped 4\n");
        log("ninth\n", 100, "first\nsecond\nseventh\ndropped 4\nninth\ndropped 1\n");
    }
}
