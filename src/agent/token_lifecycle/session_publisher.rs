//! Publishes a session's token to its readers, or the reason why there is none.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialState};
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_code::ErrorCode;

use super::current_token::CurrentToken;
use crate::token::{Token, TokenPublisher};

/// Publishes a session's token with the time of its last check; knows the last error.
#[derive(Debug)]
pub(super) struct SessionPublisher {
    publisher: TokenPublisher,
    last_checked: Option<ClockReading>,
    /// Reason why there is no token.
    unavailability: Cow<'static, str>,
    last_error: Option<(String, Option<ErrorCode>)>,
}

impl SessionPublisher {
    pub(super) const fn new(publisher: TokenPublisher) -> Self {
        Self { publisher, last_checked: None, unavailability: Cow::Borrowed("there is no token yet"), last_error: None }
    }

    /// Publishes at `now` the token, or that there is none and a caller should ask again after `retry_after`.
    pub(super) fn publish(&self, current: Option<&CurrentToken>, retry_after: Duration, now: ClockReading) {
        match current {
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
    }

    /// Records the reason why there is no token any more.
    pub(super) fn set_unavailability(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.unavailability = reason.into();
    }

    /// Returns the reason why there is no token, with the last error.
    pub(super) fn unavailable_reason(&self) -> String {
        match &self.last_error {
            Some((error, _)) => format!("{}; {error}", self.unavailability),
            None => self.unavailability.clone().into_owned(),
        }
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

    pub(super) fn last_error_code(&self) -> Option<ErrorCode> {
        self.last_error.as_ref().and_then(|(_, code)| *code)
    }

    pub(super) fn into_publisher(self) -> TokenPublisher {
        self.publisher
    }
}
