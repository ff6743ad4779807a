//! One component: its readiness, and what operators see of it beside.

use keyward_machine::clock::ClockReading;
use serde::Serialize;

use crate::error_code::ErrorCode;
use crate::status::{CertificateEntry, ComponentEntry, Timestamp, WarningEntry};

/// Health of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    /// The component works.
    pub ready: bool,
    /// The process is ready only if this component is.
    pub required: bool,
    /// The component has been ready at least once since it started.
    pub started: bool,
    /// Reason why it is not ready; holds no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Code of the error that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}

impl Component {
    /// Formats the reason with its code.
    pub fn describe(&self) -> String {
        ErrorCode::tag(self.code, self.reason.as_deref().unwrap_or("not ready"))
    }
}

/// One registration of a component.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) id: u64,
    pub(super) component: Component,
    since: ClockReading,
    pub(super) target: Option<String>,
    pub(super) updated: Option<ClockReading>,
    pub(super) next_try: Option<ClockReading>,
    pub(super) keeps_previous: bool,
    pub(super) note: Option<String>,
    pub(super) certificate: Option<CertificateEntry>,
    /// Error, its code, and its beginning.
    pub(super) warning: Option<(String, Option<ErrorCode>, ClockReading)>,
}

impl Registration {
    pub(super) fn new(id: u64, required: bool, reason: &str, now: ClockReading) -> Self {
        let component =
            Component { ready: false, required, started: false, reason: Some(reason.to_owned()), code: None };
        let target = None;
        let updated = None;
        let next_try = None;
        let keeps_previous = false;
        let note = None;
        let certificate = None;
        let warning = None;
        Self { id, component, since: now, target, updated, next_try, keeps_previous, note, certificate, warning }
    }

    /// Sets the readiness; returns true if it or its reason has changed.
    pub(super) fn set(
        &mut self,
        ready: bool,
        reason: Option<String>,
        code: Option<ErrorCode>,
        now: ClockReading,
    ) -> bool {
        let component = &mut self.component;
        if (component.ready, &component.reason, component.code) == (ready, &reason, code) {
            return false;
        }
        if component.ready != ready {
            self.since = now;
        }
        (component.ready, component.reason, component.code) = (ready, reason, code);
        component.started |= ready;
        (self.next_try, self.keeps_previous) = (None, false);
        true
    }

    /// Sets the warning; a warning that continues keeps its beginning.
    pub(super) fn warn(&mut self, code: Option<ErrorCode>, reason: String, now: ClockReading) {
        let since = self.warning.take().map_or(now, |(.., since)| since);
        self.warning = Some((reason, code, since));
    }

    /// Returns the status with times by the wall clock as it is now.
    pub(super) fn status(&self, now: ClockReading) -> ComponentEntry {
        let time = |at: ClockReading| Timestamp::from(now.wall_time_of(at));
        let text = |code: Option<ErrorCode>| code.map(|code| code.to_string());
        ComponentEntry {
            ready: self.component.ready,
            required: self.component.required,
            started: self.component.started,
            reason: self.component.reason.clone(),
            code: text(self.component.code),
            since: Some(time(self.since)),
            target: self.target.clone(),
            updated: self.updated.map(time),
            next_try: self.next_try.map(time),
            keeps_previous: self.keeps_previous,
            note: self.note.clone(),
            warning: self.warning.as_ref().map(|(reason, code, since)| WarningEntry {
                reason: reason.clone(),
                code: text(*code),
                since: Some(time(*since)),
            }),
            certificate: self.certificate.clone(),
        }
    }
}
