//! Answers that were given already: while nothing at all is written, they are given again as they were.
//!
//! To judge, look up and write an answer costs several times what it costs to send it; whoever waits for a change asks the
//! same as ten thousand others. Who asks is looked at each time all the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::operation::Operation;
use super::reply::Seen;
use crate::access::model::secret::SecretHash;
use crate::access::model::timestamp::Timestamp;
use crate::access::store::Revision;

/// Answers by what was asked, as the store was at a revision.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    at: Revision,
    answers: HashMap<Question, Seen>,
    /// What the bodies take, in bytes.
    weight: usize,
}

/// Bytes of bodies that are kept. When there are more, all are forgotten: what is asked often is back soon.
const BYTES: usize = 4 * 1024 * 1024;

/// Larger answers are not kept.
const LARGEST: usize = BYTES / 64;

/// What an answer depends on beside the store's records and the time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    /// What the caller's secret is known as; `None` for one without.
    pub(super) who: Option<SecretHash>,
    pub(super) operation: Operation,
    pub(super) subject: String,
    /// What the query asks for beside waiting.
    pub(super) query: String,
    /// The namespace that the query or a header names.
    pub(super) namespace: Option<String>,
}

impl Answers {
    /// The answer, if the store is still as it was when it was given, and no end of a token has come since.
    pub(super) fn get(&self, question: &Question, at: Revision, now: Timestamp) -> Option<Seen> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known.answers.get(question).filter(|_| known.at == at)?;
        if seen.until.is_some_and(|until| until <= now) { None } else { seen.again() }
    }

    /// Keeps an answer that was made after the store was at that revision.
    pub(super) fn keep(&self, question: Question, at: Revision, seen: &Seen) {
        let size = seen.size().filter(|size| *size <= LARGEST);
        let (Some(size), Some(seen)) = (size, seen.again()) else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at > at {
            return;
        }
        if known.at < at || known.weight + size > BYTES {
            *known = Known { at, ..Known::default() };
        }
        let weight = size + ENTRY;
        if let Some(before) = known.answers.insert(question, seen) {
            known.weight -= before.size().unwrap_or_default() + ENTRY;
        }
        known.weight += weight;
    }
}

/// Bytes that an answer takes beside its body, roughly.
const ENTRY: usize = 512;
