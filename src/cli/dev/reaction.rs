//! The agent's reaction to a fault, or to its end, as `keyward status` shows it.

use std::time::Duration;

use keyward_app::dev::DevAgent;
use keyward_app::dev::faults::{Fault, FaultSwitch};
use keyward_telemetry::status::{ReportItem, StatusState};
use keyward_telemetry::time_format::{format_rfc3339, format_span};
use tokio::time::Instant;

use crate::cli::print_line;
use crate::cli::progress::ProgressLine;
use crate::cli::status::EvaluatedStatus;

/// State of the agent at one time.
pub(super) struct Observation {
    status: EvaluatedStatus,
    /// Generation of the token of session `workload`.
    generation: Option<String>,
}

/// Longest wait until the status shows a fault or its end. The slowest are the logins without Azure, which are tried for 7 s.
const LIMIT: Duration = Duration::from_secs(20);
/// Pause between two requests for the status.
const PAUSE: Duration = Duration::from_millis(200);

impl Observation {
    pub(super) async fn take(agent: &DevAgent<'_>) -> anyhow::Result<Self> {
        let status = EvaluatedStatus::new(agent.status().await?)?;
        Ok(Self { status, generation: agent.generation().await })
    }

    /// Returns the items that show a fault, which began after `before`; none before the agent has met it.
    fn find_signs(&self, fault: Fault, before: &Self, was_on: bool) -> Vec<ReportItem> {
        if fault == Fault::Token {
            // The agent logs in so fast that the status seldom shows the session without a token.
            let has_new = self.generation.is_some() && self.generation != before.generation;
            return if has_new { self.status.items(|item| item.component == "session/workload") } else { Vec::new() };
        }
        let is_bad = |item: &ReportItem| item.state != StatusState::Ok;
        if was_on {
            return self.status.items(is_bad);
        }
        let changes = self.status.changes_since(&before.status);
        if changes.iter().any(is_bad) { changes } else { Vec::new() }
    }
}

/// Makes the agent meet a fault, waits until its status shows it, and prints the lines that changed.
pub(super) async fn show_fault(
    agent: &DevAgent<'_>,
    fault: Fault,
    before: &Observation,
    was_on: bool,
) -> anyhow::Result<Observation> {
    let line = ProgressLine::start("waiting until `keyward status` shows the fault");
    let start = Instant::now();
    // Both sessions are to show it.
    let awaits_calls = matches!(fault, Fault::Cloud | Fault::Clock | Fault::Audience);
    let mut is_met = false;
    let meeting = agent.meet(fault);
    tokio::pin!(meeting);
    let (observed, signs) = loop {
        let observed = Observation::take(agent).await?;
        let signs = observed.find_signs(fault, before, was_on);
        if (!signs.is_empty() && (is_met || !awaits_calls)) || start.elapsed() > LIMIT {
            break (observed, signs);
        }
        tokio::select! {
            () = &mut meeting, if !is_met => is_met = true,
            () = tokio::time::sleep(PAUSE) => {}
        }
    };
    drop(line);
    if signs.is_empty() {
        let limit = format_span(LIMIT.as_secs());
        print_line(&format!(
            "\n`keyward status` shows nothing of it after {limit}; follow it with `keyward status --watch`"
        ));
    } else {
        let new_login = if fault == Fault::Token { ", with a new login" } else { "" };
        print_line(&format!("\n`keyward status` shows after {:.1} s{new_login}:\n", start.elapsed().as_secs_f32()));
        observed.status.print_items(&signs);
    }
    Ok(observed)
}

/// Makes the agent notice the end of faults, waits until its sessions and its gateway work, and prints the lines that changed.
pub(super) async fn show_recovery(agent: &DevAgent<'_>, faults: &[Fault], before: &Observation) -> anyhow::Result<()> {
    let line = ProgressLine::start("waiting until `keyward status` shows the recovery");
    let start = Instant::now();
    for fault in faults {
        agent.recover(*fault).await;
    }
    let is_awaited = |item: &ReportItem| {
        item.state != StatusState::Ok && ["session/", "gateway/"].iter().any(|kind| item.component.starts_with(kind))
    };
    let observed = loop {
        let observed = Observation::take(agent).await?;
        if observed.status.items(is_awaited).is_empty() || start.elapsed() > LIMIT {
            break observed;
        }
        tokio::time::sleep(PAUSE).await;
    };
    drop(line);
    let changes = observed.status.changes_since(&before.status);
    if !changes.is_empty() {
        print_line("\n`keyward status` shows:\n");
        observed.status.print_items(&changes);
    }
    Ok(())
}

/// Prints each change of the status until the fault has ended and everything works again.
pub(super) async fn follow(
    agent: &DevAgent<'_>,
    switch: &FaultSwitch<'_>,
    fault: Fault,
    mut last: Observation,
) -> anyhow::Result<()> {
    let start = Instant::now();
    print_line("\nfollowing each change until everything works again; Ctrl-C stops this, and the fault stays");
    loop {
        tokio::time::sleep(PAUSE).await;
        let observed = Observation::take(agent).await?;
        let changes = observed.status.changes_since(&last.status);
        if !changes.is_empty() {
            print_line(&format!("--- {}", format_rfc3339(std::time::SystemTime::now())));
            observed.status.print_items(&changes);
        }
        if observed.status.is_ok() && !switch.is_on(fault).await? {
            let lasted = format_span(start.elapsed().as_secs());
            print_line(&format!(
                "\nhealed: {}; everything works again, {lasted} after the fault was shown",
                fault.name()
            ));
            return Ok(());
        }
        last = observed;
    }
}
