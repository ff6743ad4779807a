//! Keeps the latest events of this process's log in memory, for the pages that show them. Log events hold no secrets.
//!
//! Like the log itself there is one for the process. Nothing is kept until [`enable`] is called.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Maximum number of events kept.
const MAX_EVENTS: usize = 512;

/// Maximum length of a field or a message, in bytes.
const MAX_FIELD_BYTES: usize = 512;

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static LATEST: Mutex<VecDeque<RecentEvent>> = Mutex::new(VecDeque::new());

/// One event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentEvent {
    /// Time of the event.
    pub time: SystemTime,
    /// Level of the event.
    pub level: Level,
    /// Stable name, such as `token.renewed`.
    pub name: String,
    /// Message for people.
    pub message: String,
    /// Other fields, in their order.
    pub fields: Vec<(&'static str, String)>,
}

impl RecentEvent {
    /// Returns the text of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, text)| text.as_str())
    }
}

/// Keeps events from now on.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Returns the kept events, the latest first.
pub fn latest() -> Vec<RecentEvent> {
    LATEST.lock().iter().rev().cloned().collect()
}

/// Layer of the log that keeps named events at the level `info` and above.
#[derive(Debug, Clone, Copy)]
pub struct RecentEvents;

impl<S: Subscriber> Layer<S> for RecentEvents {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !IS_ENABLED.load(Ordering::Relaxed) || *metadata.level() > Level::INFO {
            return;
        }
        let mut fields = EventFields::default();
        event.record(&mut fields);
        if fields.name.is_empty() {
            return;
        }
        let EventFields { name, message, fields } = fields;
        let mut latest = LATEST.lock();
        if latest.len() >= MAX_EVENTS {
            latest.pop_front();
        }
        latest.push_back(RecentEvent { time: SystemTime::now(), level: *metadata.level(), name, message, fields });
    }
}

#[derive(Default)]
struct EventFields {
    name: String,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl EventFields {
    fn record(&mut self, field: &Field, mut text: String) {
        text.truncate(text.floor_char_boundary(MAX_FIELD_BYTES));
        match field.name() {
            "event" => self.name = text,
            "message" => self.message = text,
            name => self.fields.push((name, text)),
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{value:?}");
        self.record(field, text);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn named_events_are_kept_with_their_fields_the_latest_first() {
        let subscriber = tracing_subscriber::registry().with(RecentEvents);
        tracing::subscriber::with_default(subscriber, || {
            tracing::event!(Level::INFO, event = "before.anything", "not kept");
            enable();
            tracing::event!(
                Level::WARN,
                event = "token.renewal.failed",
                session = "main",
                failures = 2_u32,
                "the renewal failed"
            );
            tracing::event!(Level::INFO, "without a name");
            tracing::event!(Level::DEBUG, event = "too.fine", "not kept");
            for number in 0..MAX_EVENTS {
                tracing::event!(Level::INFO, event = "counted", number, "{}", "x".repeat(2 * MAX_FIELD_BYTES));
            }
        });
        let ours: Vec<RecentEvent> = latest().into_iter().filter(|event| event.name == "counted").collect();
        assert!(ours.len() <= MAX_EVENTS && ours[0].message.len() == MAX_FIELD_BYTES);
        assert_eq!(ours[0].field("number"), Some((MAX_EVENTS - 1).to_string().as_str()));
        assert_eq!(latest().len(), MAX_EVENTS);
    }
}
