//! A request that is audited: what all its records share, and what the parts that handle it note.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Serialize;

use super::facts::{Attestation, AuditNote, Decision, RequestFacts};

/// Extension of an audited request, and the part of its records that they share. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditedRequest(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    facts: RequestFacts,
    attested: OnceLock<Attestation>,
    note: Mutex<AuditNote>,
    /// The facts as a JSON object: written for the first record, and copied for the others.
    json: OnceLock<Vec<u8>>,
}

impl AuditedRequest {
    /// Creates it for a new request.
    pub fn new(facts: RequestFacts) -> Self {
        let attested = OnceLock::new();
        let note = Mutex::default();
        let json = OnceLock::new();
        Self(Arc::new(Shared { facts, attested, note, json }))
    }

    /// Returns that of a request; `None` without an audit.
    pub fn from_extensions(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Changes the note.
    pub fn note(&self, change: impl FnOnce(&mut AuditNote)) {
        change(&mut self.0.note.lock());
    }

    /// Notes a refusal by a rule.
    pub fn refuse(&self, rule: impl Into<Cow<'static, str>>) {
        self.note(|note| (note.decision, note.rule) = (Decision::Refused, Some(rule.into())));
    }

    /// Notes the facts by which a configured caller was matched, before the first record.
    pub fn attest(&self, attestation: Attestation) {
        // A request has one caller.
        let _ = self.0.attested.set(attestation);
    }

    /// Notes the session whose token is served or used, with the token's accessor.
    pub fn use_token(&self, session: &Arc<str>, accessor: Option<&str>) {
        self.note(|note| note.session = Some(Arc::clone(session).into()));
        self.set_accessor(accessor);
    }

    /// Notes the accessor of the token that is served, used or presented.
    pub fn set_accessor(&self, accessor: Option<&str>) {
        self.note(|note| {
            if note.accessor.as_deref() != accessor {
                note.accessor = accessor.map(Arc::from);
            }
        });
    }

    /// Returns the note as it is now.
    pub fn current_note(&self) -> AuditNote {
        self.0.note.lock().clone()
    }

    /// Returns the facts as a JSON object, with the attestation among those about the caller.
    pub(super) fn json(&self) -> &[u8] {
        self.0.json.get_or_init(|| match self.0.attested.get() {
            Some(attested) => {
                let mut facts = self.0.facts.clone();
                facts.caller.uid = facts.caller.uid.or(attested.uid);
                facts.caller.attested = Some(attested.clone());
                to_json(&facts)
            }
            None => to_json(&self.0.facts),
        })
    }
}

fn to_json(facts: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(ESTIMATED_FACTS);
    // Cannot fail: writing to a vector does not, and the facts have no maps.
    let _ = serde_json::to_writer(&mut json, facts);
    json
}

/// Length of usual facts, in bytes.
const ESTIMATED_FACTS: usize = 384;
