//! Answers that were given already: while nothing at all is written, they are given again as they were.
//!
//! To judge, look up and write an answer costs several times what it costs to send it; whoever waits for a change asks the
//! same as ten thousand others. Who asks is part of the question: what it may do changes by a write, or with its token's end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Body as _;

use super::operation::Operation;
use super::query::Mode;
use super::response::Body;
use crate::acl::model::secret::SecretHash;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::store::Revision;

/// Answers by what was asked, as the store was at a revision.
#[derive(Debug, Default)]
pub struct Answers {
    known: Mutex<Known>,
    /// Makes the hashes of questions, unlike those of any other process.
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Known {
    at: Revision,
    /// By the hash of their question, which is not hashed again.
    answers: BTreeMap<u64, Kept>,
    /// What they take, in bytes.
    weight: usize,
}

/// An answer and its headers, which are the same each time.
#[derive(Debug)]
struct Kept {
    question: Arc<Question>,
    status: StatusCode,
    headers: HeaderMap,
    body: Full<Bytes>,
    index: Revision,
    watch: Arc<[String]>,
    until: Option<Timestamp>,
    size: usize,
}

/// An answer, as HTTP has it and as one looks at it who waits for another.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) answer: Response<Body>,
    pub(super) index: Revision,
    pub(super) watch: Arc<[String]>,
}

/// Bytes that are kept. When there are more, all are forgotten: what is asked often is back soon.
const BYTES: usize = 4 * 1024 * 1024;

/// Bytes that an answer takes beside its body, roughly.
const ENTRY: usize = 2048;

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
    /// The consistency mode, which the answer tells.
    pub(super) mode: Mode,
}

/// A question and its hash: who waits asks it again and again. It is one with that of others who ask the same.
#[derive(Debug)]
pub(super) struct Asked {
    question: Arc<Question>,
    hash: u64,
}

impl Asked {
    fn asks(&self, kept: &Kept) -> bool {
        Arc::ptr_eq(&kept.question, &self.question) || kept.question == self.question
    }
}

impl Answers {
    /// A question, ready to be asked.
    pub(super) fn ask(&self, question: Question) -> Asked {
        let hash = self.hashes.hash_one(&question);
        let known = self.lock();
        let same = known.answers.get(&hash).filter(|kept| *kept.question == question);
        Asked { hash, question: same.map_or_else(|| Arc::new(question), |kept| Arc::clone(&kept.question)) }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if the store is still as it was when it was given, and neither the end of the token that asks nor of the one
    /// that is shown has come since.
    pub(super) fn get(&self, asked: &Asked, at: Revision, now: Timestamp) -> Option<Given> {
        let known = self.lock();
        let kept = known.answers.get(&asked.hash).filter(|kept| known.at == at && asked.asks(kept))?;
        if kept.until.is_some_and(|until| until <= now) {
            return None;
        }
        let mut answer = Response::new(Either::Left(kept.body.clone()));
        *answer.status_mut() = kept.status;
        answer.headers_mut().clone_from(&kept.headers);
        Some(Given { answer, index: kept.index, watch: Arc::clone(&kept.watch) })
    }

    /// Keeps an answer that was made after the store was at that revision, and is good until then at most. One that comes as
    /// it is read is not kept.
    pub(super) fn keep(&self, asked: &Asked, at: Revision, given: &Given, until: Option<Timestamp>) {
        let Either::Left(body) = given.answer.body() else { return };
        let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let Some(size) = size.filter(|size| *size <= LARGEST) else { return };
        let mut known = self.lock();
        if known.at > at {
            return;
        }
        if known.at < at || known.weight + size + ENTRY > BYTES {
            *known = Known { at, ..Known::default() };
        }
        let kept = Kept {
            question: Arc::clone(&asked.question),
            status: given.answer.status(),
            headers: given.answer.headers().clone(),
            body: body.clone(),
            index: given.index,
            watch: Arc::clone(&given.watch),
            until,
            size,
        };
        if let Some(before) = known.answers.insert(asked.hash, kept) {
            known.weight -= before.size + ENTRY;
        }
        known.weight += size + ENTRY;
    }
}
