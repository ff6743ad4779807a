//! Differences of two statuses: the sessions and components whose state or reason has changed.

use keyward_telemetry::status::{ReportItem, StatusState};

use super::EvaluatedStatus;
use super::format::format_items;
use super::screen::Screen;

impl EvaluatedStatus {
    /// Returns the items whose state or reason differs from that in an earlier status.
    pub(in crate::cli) fn changes_since(&self, before: &Self) -> Vec<ReportItem> {
        let is_same = |item: &ReportItem, other: &ReportItem| {
            (&item.component, item.state, &item.reason) == (&other.component, other.state, &other.reason)
        };
        let is_new = |item: &&ReportItem| !before.report.items.iter().any(|other| is_same(item, other));
        self.report.items.iter().filter(is_new).cloned().collect()
    }

    /// Returns the items for which `filter` returns true.
    pub(in crate::cli) fn items(&self, filter: impl Fn(&ReportItem) -> bool) -> Vec<ReportItem> {
        self.report.items.iter().filter(|item| filter(item)).cloned().collect()
    }

    /// Returns true if everything works.
    pub(in crate::cli) fn is_ok(&self) -> bool {
        self.report.state == StatusState::Ok
    }

    /// Prints items as `keyward status` does.
    pub(in crate::cli) fn print_items(&self, items: &[ReportItem]) {
        Screen::detect().print(&format_items(&self.document, items, self.now));
    }
}
