//! Slot in which the part that handles a request notes its circumstances for the audit.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use super::record::{AuditNote, Decision};

/// Extension of an audited request. Without an audit there is none, and the functions of this module do nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditSlot(Arc<Mutex<AuditNote>>);

impl AuditSlot {
    /// Returns the slot of a request.
    pub(crate) fn from_extensions(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Changes the note.
    pub(crate) fn note(&self, change: impl FnOnce(&mut AuditNote)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a refusal by a rule.
    pub(crate) fn refuse(&self, rule: impl Into<Cow<'static, str>>) {
        self.note(|note| (note.decision, note.rule) = (Decision::Refused, Some(rule.into())));
    }

    /// Notes the session whose token is served or used, with the token's accessor.
    pub(crate) fn use_token(&self, session: &Arc<str>, accessor: Option<&str>) {
        self.note(|note| (note.session, note.accessor) = (Some(Arc::clone(session).into()), accessor.map(Arc::from)));
    }

    /// Returns the note.
    pub(crate) fn get(&self) -> AuditNote {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
