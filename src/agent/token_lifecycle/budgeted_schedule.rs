//! Plans a session's next renewal or login within its retry budget. Time is passed in.

use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::wording::format_count;

use super::current_token::{CurrentToken, LookupStatus, TokenHealth};
use super::schedule::{LastOutcome, NextStep, NotBefore, TokenLifetime, next_step};
use crate::retry_budget::{RetryBudget, RetryBudgetRecord};

/// The next step of a session, and the retry budget that it is taken from.
#[derive(Debug)]
pub(super) struct BudgetedSchedule {
    pub(super) budget: RetryBudget,
    next: NextStep,
    /// True if the next login replaces a token on schedule, so that it takes nothing from the bucket.
    is_scheduled: bool,
    /// True if the next login is made because callers wait, or because an operator requested it.
    for_callers: bool,
    /// Set when the server refused to renew a fresh token: no renewal is attempted before this.
    no_renewal_until: Option<ClockReading>,
}

impl BudgetedSchedule {
    /// Plans a login now.
    pub(super) fn new(now: ClockReading) -> Self {
        let budget = RetryBudget::new(now).with_quick_retries();
        let next = NextStep::LoginAt(now);
        Self { budget, next, is_scheduled: false, for_callers: false, no_renewal_until: None }
    }

    /// Restores the budget of the previous process; its failures do not count if that used other settings.
    pub(super) fn restore(&mut self, record: Option<&RetryBudgetRecord>, is_changed: bool, now: ClockReading) {
        if let Some(record) = record {
            self.budget = RetryBudget::restore(record, now).with_quick_retries();
        }
        if is_changed {
            self.budget.reset_failures(now);
        }
    }

    /// The next step.
    pub(super) const fn next(&self) -> NextStep {
        self.next
    }

    /// Plans the next step after `last`.
    pub(super) fn plan(&mut self, current: Option<&CurrentToken>, last: LastOutcome, now: ClockReading) {
        self.for_callers = false;
        let lifetime = current.map(|current| &current.lifetime);
        if current.is_some_and(|current| current.outdated) {
            return self.plan_replacement(lifetime, last, now);
        }
        // After a failed login, renew a token whose look-up was denied like any other. Do not renew a suspect token: the
        // server would refuse that too.
        let suspect = current.is_some_and(|current| {
            current.health == TokenHealth::Suspect
                || (last != LastOutcome::Failed && current.lookup_status == LookupStatus::Suspect)
        });
        self.next = if suspect {
            NextStep::LoginAt(now)
        } else {
            next_step(lifetime, last, self.not_before(), now, random_unit())
        };
        self.is_scheduled = lifetime.is_some() && last != LastOutcome::Failed && !suspect;
        // Such a login is unplanned, so it waits until the bucket holds one.
        if let (NextStep::LoginAt(at), false) = (self.next, self.is_scheduled) {
            let earliest = self.budget.earliest_login(now);
            if earliest.boot > at.boot {
                self.next = NextStep::LoginAt(earliest);
            }
        }
    }

    /// Plans the login that replaces an inherited token. Until it succeeds the token is renewed on schedule: a failed login
    /// is no reason to renew.
    fn plan_replacement(&mut self, lifetime: Option<&TokenLifetime>, last: LastOutcome, now: ClockReading) {
        let login = self.budget.earliest_login(now);
        let renewal = self.budget.renewal_not_before();
        let last = match last {
            LastOutcome::RenewalRefused => LastOutcome::RenewalRefused,
            LastOutcome::Succeeded | LastOutcome::Failed if self.budget.renewal_failures() > 0 => LastOutcome::Failed,
            LastOutcome::Succeeded | LastOutcome::Failed => LastOutcome::Succeeded,
        };
        self.is_scheduled = false;
        self.next = match next_step(lifetime, last, NotBefore { renewal, login }, now, random_unit()) {
            NextStep::RenewAt(at) if at.boot < login.boot => NextStep::RenewAt(at),
            NextStep::RenewAt(_) | NextStep::LoginAt(_) | NextStep::Idle => NextStep::LoginAt(login),
        };
    }

    /// Plans nothing.
    pub(super) const fn plan_nothing(&mut self) {
        self.next = NextStep::Idle;
    }

    /// Delays the planned login to `at`, if it is earlier.
    pub(super) fn delay_login(&mut self, at: ClockReading) {
        if let NextStep::LoginAt(planned) = self.next
            && at.boot > planned.boot
        {
            self.next = NextStep::LoginAt(at);
        }
    }

    /// Moves the planned login forward for waiting callers; returns true if it is earlier now.
    pub(super) fn advance_login(&mut self, now: ClockReading) -> bool {
        if self.for_callers {
            return false;
        }
        let earliest = self.budget.next_for_caller(now, random_unit());
        let (NextStep::LoginAt(at), Some(earliest)) = (self.next, earliest) else { return false };
        let is_earlier = earliest.boot < at.boot;
        if is_earlier {
            (self.next, self.for_callers) = (NextStep::LoginAt(earliest), true);
        }
        is_earlier
    }

    /// Plans a login now on an operator's request.
    ///
    /// # Errors
    /// The time until it is allowed.
    pub(super) fn plan_requested_login(&mut self, now: ClockReading) -> Result<(), Duration> {
        let after = now.until(self.budget.next_on_demand(now));
        if !after.is_zero() {
            return Err(after);
        }
        (self.next, self.for_callers) = (NextStep::LoginAt(now), true);
        Ok(())
    }

    /// Takes the login that is due out of its bucket.
    pub(super) fn take_login(&mut self, now: ClockReading) {
        if self.for_callers {
            self.budget.take_for_caller(now);
        } else if !self.is_scheduled {
            self.budget.take_login(now);
        }
        self.for_callers = false;
    }

    /// Suspends renewals: the server refuses to renew even fresh tokens.
    pub(super) fn suspend_renewals(&mut self, now: ClockReading) {
        self.no_renewal_until = Some(now + RENEWAL_SUSPENSION);
    }

    /// Returns false while renewals are suspended.
    pub(super) fn may_renew(&self, now: ClockReading) -> bool {
        self.no_renewal_until.is_none_or(|until| now.until(until).is_zero())
    }

    /// Returns the last outcome as the retry budget has it.
    pub(super) const fn last_outcome(&self) -> LastOutcome {
        if self.budget.failures() + self.budget.renewal_failures() > 0 {
            LastOutcome::Failed
        } else {
            LastOutcome::Succeeded
        }
    }

    /// Returns the time until the next step, and at least a second.
    pub(super) fn retry_after(&self, now: ClockReading) -> Duration {
        self.wait(now).max(Duration::from_secs(1))
    }

    /// Returns the time until the next step; zero if there is none.
    pub(super) fn wait(&self, now: ClockReading) -> Duration {
        self.next.at().map(|at| now.until(at)).unwrap_or_default()
    }

    /// Returns true if a login is about to start.
    pub(super) fn is_login_soon(&self, now: ClockReading) -> bool {
        matches!(self.next, NextStep::LoginAt(at) if now.until(at) <= SOON)
    }

    /// Describes why the previous process delays the first login.
    pub(super) fn describe_delay(&self, last_error: Option<&str>) -> String {
        let failures = self.budget.failures();
        let logins = format_count(failures, "login");
        match (failures, last_error) {
            (_, Some(error)) => format!("{logins} failed in the previous process, the last with: {error}"),
            (0, None) => "previous processes used up the login budget".to_owned(),
            (_, None) => format!("{logins} failed in the previous process"),
        }
    }

    /// Returns the earliest next attempts. Renewals also wait for the backoff of logins, but not the reverse.
    fn not_before(&self) -> NotBefore {
        let renewal = self.budget.renewal_not_before();
        let login = self.budget.not_before();
        NotBefore { renewal: if renewal.boot > login.boot { renewal } else { login }, login }
    }
}

/// A role that forbids renewals costs one refused call in this time.
const RENEWAL_SUSPENSION: Duration = Duration::from_hours(1);
/// Look-ups that callers request wait for a login that is this near.
const SOON: Duration = Duration::from_secs(5);
