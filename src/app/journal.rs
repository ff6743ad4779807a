//! Log lines with priorities for the journal (`sd-daemon(3)`): `<3>` to `<7>` before each line.

use std::collections::BTreeMap;
use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Returns true if standard error is connected to the journal: `JOURNAL_STREAM` holds its device and inode
/// (`systemd.exec(5)`). A process that redirects its standard error inherits the variable too.
pub fn is_stderr(variables: &BTreeMap<String, String>) -> bool {
    let stream = variables.get("JOURNAL_STREAM").and_then(|stream| stream.split_once(':'));
    let stream = stream.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let stderr = rustix::fs::fstat(std::io::stderr()).ok();
    stderr.is_some_and(|stderr| stream == Some((stderr.st_dev, stderr.st_ino)))
}

/// The text format with the priority of the event's level before each line.
#[derive(Debug, Default)]
pub(super) struct JournalFormat(Format);

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_of_an_event_has_the_priority_of_its_level() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let layer = fmt::layer().with_ansi(false).event_format(JournalFormat::default());
        let layer = layer.with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error!("failed");
            tracing::warn!("first\nsecond");
            tracing::info!("started");
            tracing::debug!("detail");
        });
        let text = String::from_utf8(buffer.0.lock().clone()).unwrap();
        let found: Vec<_> = text.lines().map(|line| (&line[..3], line.rsplit(' ').next().unwrap())).collect();
        let expected =
            [("<3>", "failed"), ("<4>", "first"), ("<4>", "<4>second"), ("<6>", "started"), ("<7>", "detail")];
        assert_eq!(found, expected, "{text}");
    }
}
