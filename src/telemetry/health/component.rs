//! One component: its readiness, and what operators see of it beside.

use keyward_machine::clock::ClockReading;
use serde::Serialize;

use crate::error_code::ErrorCode;
use crate::time_format::format_rfc3339;

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

/// Health of one component with its target and times. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentStatus {
    /// Its readiness.
    #[serde(flatten)]
    pub component: Component,
    /// Time of the last change of `ready`.
    pub(crate) since: String,
    /// File, address or program that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Time of its last success, such as a write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<String>,
    /// Time of the next attempt after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_try: Option<String>,
    /// True if it is not ready and the result of its last success is still in use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keeps_previous: bool,
    /// Fact about it that is no error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Error that may make it fail later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Warning>,
}

/// Error that may make a component fail later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Text of the error; holds no secret.
    pub reason: String,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<ErrorCode>,
    /// Beginning of the error.
    pub(crate) since: String,
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
        let warning = None;
        Self { id, component, since: now, target, updated, next_try, keeps_previous, note, warning }
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
    pub(super) fn status(&self, now: ClockReading) -> ComponentStatus {
        let time = |at: ClockReading| format_rfc3339(now.wall_time_of(at));
        ComponentStatus {
            component: self.component.clone(),
            since: time(self.since),
            target: self.target.clone(),
            updated: self.updated.map(time),
            next_try: self.next_try.map(time),
            keeps_previous: self.keeps_previous,
            note: self.note.clone(),
            warning: self.warning.as_ref().map(|(reason, code, since)| Warning {
                reason: reason.clone(),
                code: *code,
                since: time(*since),
            }),
        }
    }
}
