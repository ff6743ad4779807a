//! What outlives a restart: the pace always, the token if there is a key to seal it with.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::State;
use super::current_token::{Held, Looks};
use super::retry_budget::Record;
use super::state_encryption::{Why, held, plain};
use crate::agent::state_file::{KeyPurpose, Seal, StateFile};
use crate::agent::token::Generation;
use crate::clock::{ClockReading, millis};

/// A session's state file.
#[derive(Debug)]
pub(super) struct Archive {
    session: String,
    seal: Option<Seal>,
    /// Digest of the session's settings ([`super::Parts::fingerprint`]).
    fingerprint: String,
    file: Arc<StateFile>,
    /// What was saved last.
    last: Option<Mark>,
    order: u64,
}

/// What a state file held.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) pace: Option<Record>,
    pub(super) held: Option<Held>,
    /// Why the last login failed.
    pub(super) last_error: Option<String>,
    /// True if the pace was saved by a session with other settings.
    pub(super) changed: bool,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl Archive {
    /// The state file of a session. A sealed token opens only for the same session and the same `bound_to`.
    pub(super) fn new(state: &State, session: &str, bound_to: &[&str], fingerprint: &str) -> Self {
        let names: Vec<&str> = [session].into_iter().chain(bound_to.iter().copied()).collect();
        let seal = state.seal.as_ref().and_then(|key| Seal::new(key, KeyPurpose::Token, &names).ok());
        let (file, fingerprint) = (StateFile::new(state.file.clone()), fingerprint.to_owned());
        Self { session: session.to_owned(), seal, fingerprint, file, last: None, order: 0 }
    }

    /// Takes the place of `old`: writes of both to one file keep their order.
    pub(super) fn after(mut self, old: Option<&Self>) -> Self {
        if let Some(old) = old.filter(|old| old.file.path() == self.file.path()) {
            (self.file, self.order) = (Arc::clone(&old.file), old.order);
        }
        self
    }

    /// Reads the file. Blocks.
    pub(super) fn load(&self, now: ClockReading) -> Kept {
        let refuse =
            |why| Kept { refused: Some(RefusedState { file: self.file.path().to_owned(), why }), ..Kept::default() };
        let text = match self.file.read(LARGEST) {
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
        // A file without a fingerprint is of a process before this one: nothing is known to have changed.
        let changed = shape.fingerprint.is_some_and(|its| its != self.fingerprint);
        let kept = Kept { pace: Some(shape.pace), last_error: shape.last_error, changed, ..Kept::default() };
        let Some((seal, sealed)) = self.seal.as_ref().zip(shape.token) else { return kept };
        match STANDARD.decode(sealed).ok().and_then(|sealed| seal.open(&sealed).ok()).map(|plain| held(&plain, now)) {
            Some(Ok(held)) => Kept { held, ..kept },
            Some(Err(why)) => Kept { refused: refuse(why).refused, ..kept },
            None => Kept { refused: refuse(Why::Seal).refused, ..kept },
        }
    }

    /// Writes the file if it would change. Of writes at the same time the newest wins; a failure is logged.
    pub(super) fn save(
        &mut self,
        pace: &Record,
        held: Option<&Held>,
        last_error: Option<&str>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let token = self.seal.as_ref().zip(held).and_then(|(seal, held)| {
            let sealed = seal.close(&plain(held)?).ok()?;
            Some(STANDARD.encode(sealed))
        });
        let last_error = last_error.map(shortened);
        let mark = mark(pace, held, last_error.as_deref());
        if self.last.as_ref() == Some(&mark) {
            return None;
        }
        self.last = Some(mark);
        let shape = Shape {
            version: VERSION,
            session: self.session.clone(),
            pace: pace.clone(),
            token,
            fingerprint: Some(self.fingerprint.clone()),
            last_error,
        };
        let bytes = serde_json::to_vec(&shape).ok()?;
        self.order += 1;
        let (file, order) = (Arc::clone(&self.file), self.order);
        let session = self.session.clone();
        Some(async move {
            if let Err(error) = file.write(order, bytes).await {
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

/// Tells whether something has changed: sealed bytes differ each time.
type Mark = (Record, Option<(Generation, bool, Looks, Option<u64>)>, Option<String>);

fn mark(pace: &Record, held: Option<&Held>, last_error: Option<&str>) -> Mark {
    let held = held.map(|held| {
        let ends = held.life.ends.map(|ends| millis(ends.wall));
        (held.token.generation, held.life.renewable, held.looks, ends)
    });
    (pace.clone(), held, last_error.map(str::to_owned))
}

/// An error as it is kept: cut short, so that no server fills the file.
fn shortened(error: &str) -> String {
    error.chars().take(LONGEST_ERROR).collect()
}

const LONGEST_ERROR: usize = 1000;
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
