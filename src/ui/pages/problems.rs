//! Sessions and components that do not work, or may fail soon: each reason once, with what it affects and what to do.

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::status::{ReportItem, StatusDocument, StatusReport, StatusState};
use maud::{Markup, html};

use super::layout::{BadgeKind, badge};
use super::text::{code_link, rich};

/// Sessions and components whose errors have the same code, or the same reason if they have none.
struct Problem<'a> {
    state: StatusState,
    code: Option<ErrorCode>,
    causes: Vec<Cause<'a>>,
}

/// A reason with all that it affects.
struct Cause<'a> {
    reason: &'a str,
    items: Vec<Affected<'a>>,
}

/// A session or component, with the words that its own reason has before the cause.
struct Affected<'a> {
    item: &'a ReportItem,
    effect: &'a str,
}

impl<'a> Problem<'a> {
    /// Groups the items that are not OK, the worst first.
    fn find_all(report: &'a StatusReport) -> Vec<Self> {
        let mut problems: Vec<Self> = Vec::new();
        let broken = || report.items.iter().filter(|item| item.state != StatusState::Ok);
        let code = |item: &ReportItem| item.code.as_deref().and_then(|code| code.parse().ok());
        for item in broken().filter(|item| code(item).is_some()) {
            let code = code(item);
            match problems.iter_mut().find(|problem| problem.code == code) {
                Some(problem) => problem.add(item),
                None => problems.push(Self::new(item, code)),
            }
        }
        for item in broken().filter(|item| code(item).is_none()) {
            // An output without a code fails with its session: `waiting for a token: REASON`.
            if !problems.iter_mut().any(|problem| problem.add_consequence(item)) {
                problems.push(Self::new(item, None));
            }
        }
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.state));
        problems
    }

    fn new(item: &'a ReportItem, code: Option<ErrorCode>) -> Self {
        let mut problem = Self { state: item.state, code, causes: Vec::new() };
        problem.add(item);
        problem
    }

    fn add(&mut self, item: &'a ReportItem) {
        self.state = self.state.max(item.state);
        let affected = Affected { item, effect: "" };
        let reason = item.reason.as_deref().unwrap_or_default();
        match self.causes.iter_mut().find(|cause| cause.reason == reason) {
            Some(cause) => cause.items.push(affected),
            None => self.causes.push(Cause { reason, items: vec![affected] }),
        }
    }

    /// Adds an item whose reason ends with one of the causes. Returns false for any other.
    fn add_consequence(&mut self, item: &'a ReportItem) -> bool {
        let reason = item.reason.as_deref().unwrap_or_default();
        for cause in self.causes.iter_mut().filter(|cause| !cause.reason.is_empty()) {
            if let Some(effect) = reason.strip_suffix(cause.reason) {
                cause.items.push(Affected { item, effect: effect.trim_end_matches([':', ' ']) });
                self.state = self.state.max(item.state);
                return true;
            }
        }
        false
    }

    fn card(&self, status: &StatusDocument) -> Markup {
        let explanation = self.code.map(ErrorCode::explain);
        html! {
            article class={ "problem " (state_kind(self.state).class()) } {
                h3 { (state_badge(self.state)) " " (self.title()) }
                @for (index, cause) in self.causes.iter().enumerate() {
                    @if !cause.reason.is_empty() { p.reason { (rich(cause.reason)) } }
                    @if let Some(explanation) = explanation.filter(|_| index == 0) {
                        p.remedy {
                            strong { "What to do: " } (rich(explanation.remedy)) ". "
                            a href=(code_link(explanation.code)) { (explanation.code) }
                        }
                    }
                    ul.affected { @for affected in &cause.items { li { (affected.describe(self.state, status)) } } }
                }
            }
        }
    }

    /// The error in a few words, or the name of the only thing that has it.
    fn title(&self) -> String {
        match (self.code, self.causes.as_slice()) {
            (Some(code), _) => code.explain().title.to_owned(),
            (None, [Cause { items, .. }]) if items.len() == 1 => items[0].item.component.clone(),
            (None, causes) => format!("{} components", causes.iter().map(|cause| cause.items.len()).sum::<usize>()),
        }
    }
}

impl Affected<'_> {
    /// Names it, with its state if that differs from the problem's.
    fn describe(&self, state: StatusState, status: &StatusDocument) -> Markup {
        let Self { item, effect } = self;
        let target = status.components.get(&item.component).and_then(|entry| entry.target.as_deref());
        let progress = item.describe_progress();
        html! {
            (component_name(&item.component, status))
            @if item.state != state { " " (state_badge(item.state)) }
            @for text in [*effect, progress.as_str(), target.unwrap_or_default()] {
                @if !text.is_empty() { span.minor { " · " (text) } }
            }
        }
    }
}

/// Builds the state of the process with its problems.
pub(super) fn state_and_problems(status: &StatusDocument, report: &StatusReport, about: &Markup) -> Markup {
    let problems = Problem::find_all(report);
    let broken = report.items.iter().filter(|item| item.state != StatusState::Ok).count();
    let total = report.items.len();
    html! {
        div class={ "banner " (state_kind(report.state).class()) } {
            p.verdict {
                (state_badge(report.state)) " "
                strong { @if status.ready { "Ready" } @else { "Not ready" } }
                @match broken {
                    0 => { ": everything works" },
                    1 => { ": 1 of " (total) " has a problem" },
                    _ => { ": " (broken) " of " (total) " have a problem" },
                }
            }
            p.minor { (about) }
        }
        @if !problems.is_empty() {
            section aria-labelledby="problems" {
                h2 id="problems" { "Problems" }
                @for problem in &problems { (problem.card(status)) }
            }
        }
    }
}

/// Name of a component; a session's leads to its card.
fn component_name(component: &str, status: &StatusDocument) -> Markup {
    let session = component.strip_prefix("session/").filter(|name| status.sessions.contains_key(*name));
    html! {
        @if let Some(name) = session { a href={ "#session-" (name) } { (component) } } @else { (component) }
    }
}

/// Label of a state.
pub(super) fn state_badge(state: StatusState) -> Markup {
    badge(state_kind(state), state.as_str())
}

const fn state_kind(state: StatusState) -> BadgeKind {
    match state {
        StatusState::Ok => BadgeKind::Good,
        StatusState::AtRisk => BadgeKind::Warning,
        StatusState::Down => BadgeKind::Bad,
    }
}

#[cfg(test)]
mod tests {
    use keyward_telemetry::status::evaluate;

    use super::*;
    use crate::pages::times::parse;

    fn shown(json: &str) -> String {
        let status: StatusDocument = serde_json::from_str(json).unwrap();
        let report = evaluate(&status, parse("2026-01-31T09:00:00Z").unwrap().into());
        state_and_problems(&status, &report, &html! { "about" }).into_string()
    }

    #[test]
    fn one_reason_stands_once_with_all_that_it_affects_and_its_remedy() {
        let shown = shown(
            r#"{"ready": false, "sessions": {}, "components": {
                "sink/a": {"ready": true, "warning": {"reason": "somebody <b>changed</b> it"}},
                "sink/b": {"ready": false, "required": true, "reason": "no space left", "code": "KW-1401"},
                "sink/c": {"ready": false, "required": true, "reason": "no space left", "code": "KW-1401", "target": "/run/c"},
                "sink/d": {"ready": true},
                "sink/e": {"ready": false, "required": true, "reason": "waiting for a token: no space left"}}}"#,
        );
        assert_eq!(shown.matches("no space left").count(), 1, "{shown}");
        let explanation = "KW-1401".parse::<ErrorCode>().unwrap().explain();
        let (down, at_risk) = shown.split_once("problem warning").unwrap();
        for part in [
            "sink/b",
            "sink/c",
            "/run/c",
            "DOWN",
            "/codes/KW-1401",
            explanation.title,
            "sink/e",
            " · waiting for a token<",
        ] {
            assert!(down.contains(part), "{part} is not in {down}");
        }
        assert!(at_risk.contains("somebody &lt;b&gt;changed&lt;/b&gt; it") && at_risk.contains("sink/a"), "{at_risk}");
        assert!(shown.contains("Not ready") && shown.contains("4 of 5 have a problem"), "{shown}");
        assert!(!shown.contains("sink/d"), "{shown}");
    }

    #[test]
    fn without_a_problem_the_state_alone_is_shown() {
        let shown = shown(r#"{"ready": true, "components": {"sink/a": {"ready": true}}}"#);
        assert!(shown.contains("everything works") && !shown.contains("Problems"), "{shown}");
    }
}
