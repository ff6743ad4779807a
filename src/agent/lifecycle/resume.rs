//! What outlives a restart: the pace always, the token if there is a key to seal it with.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::State;
use super::held::{Held, Looks};
use super::pace::Record;
use super::seal::Seal;
use super::sealed::{Why, held, millis, plain};
use crate::agent::token::Generation;
use crate::atomic_file::{Attributes, replace};
use crate::clock::Moment;

/// A session's state file.
#[derive(Debug)]
pub(super) struct Archive {
    session: String,
    seal: Option<Seal>,
    writer: Arc<Writer>,
    /// What was saved last.
    last: Option<Mark>,
    order: u64,
}

/// What a state file held.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) pace: Option<Record>,
    pub(super) held: Option<Held>,
    /// Why the file, or the token in it, was not taken.
    pub(super) refused: Option<RefusedState>,
}

/// The shape of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    version: u8,
    session: String,
    pace: Record,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Archive {
    /// The state file of a session. A sealed token opens only for the same session and the same `bound_to`.
    pub(super) fn new(state: &State, session: &str, bound_to: &[&str]) -> Self {
        let names: Vec<&str> = [session].into_iter().chain(bound_to.iter().copied()).collect();
        let seal = state.seal.as_ref().and_then(|key| Seal::new(key, &names).ok());
        let writer = Arc::new(Writer { file: state.file.clone(), written: Mutex::new(0) });
        Self { session: session.to_owned(), seal, writer, last: None, order: 0 }
    }

    /// Takes the place of `old`: writes of both to one file keep their order.
    pub(super) fn after(mut self, old: Option<&Self>) -> Self {
        if let Some(old) = old.filter(|old| old.writer.file == self.writer.file) {
            (self.writer, self.order) = (Arc::clone(&old.writer), old.order);
        }
        self
    }

    /// Reads the file. Blocks.
    pub(super) fn load(&self, now: Moment) -> Kept {
        let refuse =
            |why| Kept { refused: Some(RefusedState { file: self.writer.file.clone(), why }), ..Kept::default() };
        let text = match read(&self.writer.file) {
            Ok(None) => return Kept::default(),
            Ok(Some(text)) => text,
            Err(error) => return refuse(Why::Unreadable(error)),
        };
        let shape: Shape = match serde_json::from_slice(&text) {
            Ok(shape) => shape,
            // The parser's words may quote the file.
            Err(_) => return refuse(Why::Shape),
        };
        if shape.version != VERSION || shape.session != self.session {
            return refuse(Why::Foreign);
        }
        let pace = Some(shape.pace);
        let Some((seal, sealed)) = self.seal.as_ref().zip(shape.token) else { return Kept { pace, ..Kept::default() } };
        match STANDARD.decode(sealed).ok().and_then(|sealed| seal.open(&sealed).ok()).map(|plain| held(&plain, now)) {
            Some(Ok(held)) => Kept { pace, held, refused: None },
            Some(Err(why)) => Kept { pace, ..refuse(why) },
            None => Kept { pace, ..refuse(Why::Seal) },
        }
    }

    /// Writes the file if it would change. Of writes at the same time the newest wins; a failure is logged.
    pub(super) fn save(
        &mut self,
        pace: &Record,
        held: Option<&Held>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let token = self.seal.as_ref().zip(held).and_then(|(seal, held)| {
            let sealed = seal.close(&plain(held)?).ok()?;
            Some(STANDARD.encode(sealed))
        });
        let mark = mark(pace, held);
        if self.last.as_ref() == Some(&mark) {
            return None;
        }
        self.last = Some(mark);
        let shape = Shape { version: VERSION, session: self.session.clone(), pace: pace.clone(), token };
        let bytes = serde_json::to_vec(&shape).ok()?;
        self.order += 1;
        let (writer, order) = (Arc::clone(&self.writer), self.order);
        let session = self.session.clone();
        Some(async move {
            if let Err(error) = writer.write(order, bytes).await {
                let error = error.as_ref();
                tracing::warn!(
                    event = "state.write.failed",
                    session,
                    error,
                    "a restart may need a login that it could do without"
                );
            }
        })
    }
}

#[derive(Debug)]
struct Writer {
    file: PathBuf,
    written: Mutex<u64>,
}

impl Writer {
    async fn write(
        self: Arc<Self>,
        order: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut written = self.written.lock().await;
        if *written >= order {
            return Ok(());
        }
        let writer = Arc::clone(&self);
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        tokio::task::spawn_blocking(move || replace(&writer.file, &bytes, &attributes)).await??;
        *written = order;
        Ok(())
    }
}

/// Reads a small regular file, following no link. Nothing if there is none.
fn read(path: &Path) -> std::io::Result<Option<Zeroizing<Vec<u8>>>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        opened => std::fs::File::from(opened?),
    };
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Tells whether something has changed: sealed bytes differ each time.
type Mark = (Record, Option<(Generation, bool, Looks, Option<u64>)>);

fn mark(pace: &Record, held: Option<&Held>) -> Mark {
    let held = held.map(|held| {
        let ends = held.life.ends.map(|ends| millis(ends.wall));
        (held.token.generation, held.life.renewable, held.looks, ends)
    });
    (pace.clone(), held)
}

const VERSION: u8 = 1;
const LARGEST: u64 = 256 * 1024;

/// A state file that was not taken. The session logs in instead.
#[derive(Debug, thiserror::Error)]
#[error("the state in {} is not taken", file.display())]
pub struct RefusedState {
    file: PathBuf,
    #[source]
    why: Why,
}
