//! Pages of the error codes: all of them, and one with its cause, its remedy and the recent events that have it.

use std::time::SystemTime;

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::recent_events::RecentEvent;
use maud::{Markup, html};

use super::Frame;
use super::events::event_table;
use super::layout::facts;
use super::text::{code_link, rich};

/// Most events that the page of a code lists.
const EVENTS: usize = 20;

/// Builds the page of one code. `events` are those that the browser may see.
pub(crate) fn page(frame: Frame, code: ErrorCode, events: Option<&[RecentEvent]>, now: SystemTime) -> Markup {
    let explanation = code.explain();
    let content = html! {
        p { a href="/codes" { "All error codes" } " / " (explanation.group) }
        article.card {
            (facts(&[("Cause", rich(explanation.cause)), ("What to do", rich(explanation.remedy))]))
            p.minor { code { "keyward explain " (code) } " prints the same." }
        }
        @if let Some(events) = events {
            section aria-labelledby="events" {
                h2 id="events" { "Recent events with this code" }
                (event_table(with_code(events, code).take(EVENTS), now))
            }
        }
    };
    frame.page(&format!("{code}: {}", explanation.title), "/codes", &content)
}

/// Builds the page of all codes, by their groups.
pub(crate) fn index(frame: Frame) -> Markup {
    let explanations: Vec<_> = ErrorCode::ALL.iter().map(|code| code.explain()).collect();
    let content = html! {
        p { "Errors in the log, in " code { "keyward status" } " and on these pages end with a code, which leads to its cause and remedy." }
        @for group in explanations.chunk_by(|a, b| a.group == b.group) {
            h2 { (group[0].group) }
            ul.codes {
                @for explanation in group {
                    li { a href=(code_link(explanation.code)) { (explanation.code) } " " (explanation.title) }
                }
            }
        }
    };
    frame.page("Error codes", "/codes", &content)
}

/// Events whose field `code` is this one.
fn with_code(events: &[RecentEvent], code: ErrorCode) -> impl Iterator<Item = &RecentEvent> {
    events.iter().filter(move |event| event.field("code") == Some(code.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_has_a_page() {
        let index = index(Frame::default()).into_string();
        for code in ErrorCode::ALL {
            let link = format!("href=\"/codes/{code}\"");
            assert_eq!(index.matches(&link).count(), 1, "{code}");
            let page = page(Frame::default(), *code, None, SystemTime::now()).into_string();
            assert!(page.contains("What to do") && !page.contains('`') && !page.contains("Recent events"), "{page}");
        }
    }
}
