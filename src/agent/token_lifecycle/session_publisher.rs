//! Publishes a session's token to its readers, or the reason why there is none.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, AwaitedReplacement, CredentialState};
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_code::ErrorCode;

use super::current_token::{CurrentToken, TokenHealth};
use crate::token::{Token, TokenPublisher};

/// Publishes a session's token with the time of its last check; knows the last error.
#[derive(Debug)]
pub(super) struct SessionPublisher {
    publisher: TokenPublisher,
    last_checked: Option<ClockReading>,
    /// Reason why there is no token.
    unavailability: Cow<'static, str>,
    last_error: Option<(String, Option<ErrorCode>)>,
    /// Error of the last check, if that had no result.
    failed_check: Option<(String, Option<ErrorCode>)>,
}

impl SessionPublisher {
    pub(super) const fn new(publisher: TokenPublisher) -> Self {
        let unavailability = Cow::Borrowed("there is no token yet");
        Self { publisher, last_checked: None, unavailability, last_error: None, failed_check: None }
    }

    /// Publishes at `now` the token. If there is none, or a login is to replace it because the server refuses it, a caller
    /// should ask again after `retry_after`.
    pub(super) fn publish(&self, current: Option<&CurrentToken>, retry_after: Duration, now: ClockReading) {
        match current {
            Some(current) if current.health == TokenHealth::Suspect => {
                let reason = self.with_last_error(REFUSED).into();
                let awaited = AwaitedReplacement { reason, retry_after };
                self.publisher.publish_refused(Arc::clone(&current.token), awaited, now, self.last_checked);
            }
            Some(current) => {
                self.publisher.publish(Availability::Available(Arc::clone(&current.token)), self.last_checked);
            }
            None => {
                self.publisher.publish_unavailable(self.unavailable_reason(), retry_after, now, self.last_checked);
            }
        }
    }

    /// Publishes the token of another session; returns false if that has none.
    pub(super) fn publish_previous(&self, previous: CredentialState<Token>) -> bool {
        let is_available = matches!(previous.availability, Availability::Available(_));
        if is_available {
            self.publisher.publish(previous.availability, previous.last_checked);
        }
        is_available
    }

    /// Time of the server's last response about the token.
    pub(super) const fn last_checked(&self) -> Option<ClockReading> {
        self.last_checked
    }

    /// Records that the server was just asked. The time always advances, even if the clock has not.
    pub(super) fn mark_checked(&mut self, now: ClockReading) {
        self.failed_check = None;
        self.last_checked = match self.last_checked {
            Some(last) if last.boot >= now.boot => Some(last + Duration::from_nanos(1)),
            _ => Some(now),
        };
    }

    /// Publishes only the time of the last check.
    pub(super) fn publish_checked(&self) {
        if let Some(at) = self.last_checked {
            self.publisher.record_check(at);
        }
        if let Some((error, code)) = &self.failed_check {
            self.publisher.record_update_error(*code, error);
        }
    }

    /// Records the reason why there is no token any more.
    pub(super) fn set_unavailability(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.unavailability = reason.into();
    }

    /// Returns the reason why there is no token, with the last error.
    pub(super) fn unavailable_reason(&self) -> String {
        self.with_last_error(&self.unavailability)
    }

    fn with_last_error(&self, reason: &str) -> String {
        match &self.last_error {
            Some((error, _)) => format!("{reason}; {error}"),
            None => reason.to_owned(),
        }
    }

    /// Publishes that a check of the token has no result, until [`SessionPublisher::mark_checked`].
    pub(super) fn publish_failed_check(&mut self, code: Option<ErrorCode>, error: &str) {
        self.failed_check = Some((error.to_owned(), code));
        self.publish_checked();
    }

    /// Records an error of a call.
    pub(super) fn record_error(&mut self, code: Option<ErrorCode>, message: String) {
        self.last_error = Some((message, code));
    }

    /// Forgets the last error: a call succeeded.
    pub(super) fn clear_error(&mut self) {
        self.last_error = None;
    }

    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_ref().map(|(message, _)| message.as_str())
    }

    /// Returns the error that the status shows: the last one of a login, a renewal or a look-up that no success has followed.
    pub(super) fn shown_error(&self) -> Option<(&str, Option<ErrorCode>)> {
        self.last_error.as_ref().or(self.failed_check.as_ref()).map(|(message, code)| (message.as_str(), *code))
    }

    pub(super) fn into_publisher(self) -> TokenPublisher {
        self.publisher
    }
}

const REFUSED: &str = "the server refuses the token, and no login has replaced it yet";
