//! Asks the program for its token and reads its sink all the time, and asks the emulated server whether that token is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use keyward_emulators::secrets::Secrets;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::record::Invariant;
use crate::harness::binary::ask;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// An agent counts a lease from before its request, a server from its response: the difference may be this.
const SERVER_SLACK: Duration = Duration::from_millis(1500);

/// Allowed state of the program and of its token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expectation {
    /// The listener answers.
    pub(super) up: bool,
    /// The token is served while the server has it.
    pub(super) serves: bool,
    /// Time after the end of a token in which it may be served.
    pub(super) after_end: Duration,
}

/// Results so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: u64,
    /// Longest response.
    pub(super) slowest: Duration,
    /// Longest delay of this thread's own timers: how busy the machine was.
    pub(super) stall: Duration,
    /// Time without a token, after the first one.
    pub(super) without: Duration,
    pub(super) sink_reads: u64,
    /// Ends of the served tokens as the server last had them.
    ends: BTreeMap<String, Instant>,
    dead: BTreeMap<String, Instant>,
    /// The token of the last response, and its expiry in the response.
    last: Option<(String, Instant)>,
    pub(super) violations: Vec<(Invariant, String)>,
}

impl Seen {
    /// Every token that was served.
    pub(super) fn tokens(&self) -> BTreeSet<String> {
        self.ends.keys().cloned().collect()
    }

    fn violation(&mut self, invariant: Invariant, text: String) {
        // The first ones suffice; a case that fails for seconds would have hundreds.
        if self.violations.iter().filter(|(found, _)| *found == invariant).count() < 3 {
            self.violations.push((invariant, text));
        }
    }
}

pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    pub(super) expectation: Arc<Mutex<Expectation>>,
    pub(super) observations: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

/// Objects of the watch.
pub(super) struct Watched {
    pub(super) socket: PathBuf,
    pub(super) sink: PathBuf,
    pub(super) secrets: Secrets,
}

impl Watcher {
    pub(super) fn start(watched: Watched) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let observations = Arc::new(Mutex::new(Seen::default()));
        let expectation = Expectation { up: false, serves: true, after_end: Duration::from_secs(1) };
        let expectation = Arc::new(Mutex::new(expectation));
        let thread = std::thread::spawn({
            let (stop, observations, expectation) =
                (Arc::clone(&stop), Arc::clone(&observations), Arc::clone(&expectation));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let before = now();
                    round(&watched, &expectation, &observations);
                    let before_sleep = now();
                    std::thread::sleep(PAUSE);
                    let (stall, since) = (before_sleep.elapsed().saturating_sub(PAUSE), before.elapsed());
                    let mut observations = observations.lock();
                    observations.stall = observations.stall.max(stall);
                    if observations.last.is_none() && !observations.ends.is_empty() {
                        observations.without += since;
                    }
                }
            }
        });
        Self { stop, expectation, observations, thread: Some(thread) }
    }

    /// Ends the watch.
    pub(super) fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watcher ends in order");
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn round(watched: &Watched, expectation: &Mutex<Expectation>, observations: &Mutex<Seen>) {
    let begun = now();
    let response = ask(&watched.socket, "GET", "/agent/v1/token");
    let (took, ended) = (begun.elapsed(), now());
    // Read after the response: a test changes it before the event that it allows.
    let expected = *expectation.lock();
    let observations = &mut *observations.lock();
    observations.calls += 1;
    match response {
        Ok((200, body)) => {
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let token = body["token"].as_str().expect("a token").to_owned();
            observations.slowest = observations.slowest.max(took);
            if let Some(left) = watched.secrets.remaining(&token) {
                let end = ended.checked_add(left).unwrap_or(ended + Duration::from_hours(1000));
                observations.ends.insert(token.clone(), end);
            } else {
                let end = observations.ends.entry(token.clone()).or_insert(ended).to_owned().min(ended);
                let end = *observations.dead.entry(token.clone()).or_insert(end);
                let over = begun.saturating_duration_since(end);
                if over > expected.after_end {
                    let allowed = expected.after_end;
                    let text = format!("a token was served {over:?} after its end; {allowed:?} are allowed");
                    observations.violation(Invariant::NeverServeDead, text);
                }
            }
            observations.last = Some((token, reported_expiry(&body, ended)));
        }
        Ok((503, body)) => {
            // Only the server knows of a renewal whose response was lost.
            let left = observations.last.take().and_then(|(token, expires)| {
                Some(watched.secrets.remaining(&token)?.min(expires.saturating_duration_since(ended)))
            });
            if let Some(left) = left.filter(|left| *left > SERVER_SLACK && expected.serves) {
                let text = format!("no token was served {left:?} before the end of the last one: {body}");
                observations.violation(Invariant::ServeUntilExpiry, text);
            }
        }
        Ok(other) => observations.violation(Invariant::ServeUntilExpiry, format!("the token API answered {other:?}")),
        Err(error) if expected.up => observations.violation(Invariant::ServeUntilExpiry, format!("no answer: {error}")),
        Err(_) => {}
    }
    read_sink(&watched.sink, observations);
}

/// End of the token in a response, to the second below.
fn reported_expiry(body: &serde_json::Value, now: Instant) -> Instant {
    let Some(text) = body["expires_at"].as_str() else { return now + Duration::from_hours(1000) };
    let end: SystemTime = OffsetDateTime::parse(text, &Rfc3339).expect("a time").into();
    now + end.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Reads the sink by one descriptor: content and mode are of the same file.
fn read_sink(path: &Path, observations: &mut Seen) {
    use std::io::Read as _;
    let Ok(mut file) = std::fs::OpenOptions::new().read(true).custom_flags_nonblocking().open(path) else { return };
    let Ok(metadata) = file.metadata() else { return };
    let mut text = String::new();
    if !metadata.is_file() || file.read_to_string(&mut text).is_err() {
        return;
    }
    observations.sink_reads += 1;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode != 0o640 || metadata.uid() != rustix::process::geteuid().as_raw() {
        observations
            .violation(Invariant::AtomicSinks, format!("the sink has mode {mode:o} and owner {}", metadata.uid()));
    }
    let whole = observations.ends.keys().next().map_or(text.len(), String::len);
    if !text.starts_with("hvs.emulated-") || text.len() != whole {
        observations
            .violation(Invariant::AtomicSinks, format!("the sink holds {} bytes that are no token", text.len()));
    }
}

/// Opens without waiting for the other end and without following, where a test puts a FIFO or a symlink in the sink's place.
trait Nonblocking {
    fn custom_flags_nonblocking(&mut self) -> &mut Self;
}

impl Nonblocking for std::fs::OpenOptions {
    fn custom_flags_nonblocking(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt as _;
        self.custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed())
    }
}

#[expect(clippy::disallowed_methods, reason = "a process is watched, in real time")]
fn now() -> Instant {
    Instant::now()
}
