//! Cards of certificates on the agent's page, the worst first.

use std::time::SystemTime;

use keyward_telemetry::status::{CertificateEntry, ReportItem, StatusDocument, StatusReport, StatusState};
use maud::{Markup, html};

use super::layout::facts;
use super::problems::state_badge;
use super::text::rich;
use super::times::stamp;

/// Builds the section; nothing without certificates.
pub(super) fn certificates_section(status: &StatusDocument, report: &StatusReport, now: SystemTime) -> Markup {
    let mut items: Vec<&ReportItem> = report.items.iter().filter(|item| item.certificate().is_some()).collect();
    // The sort is stable: those of the same state stay in the order of their names.
    items.sort_by_key(|item| std::cmp::Reverse(item.state));
    html! {
        @if !items.is_empty() {
            section aria-labelledby="certificates" {
                h2 id="certificates" { "Certificates" }
                div.cards { @for item in &items { (card(item, status, now)) } }
            }
        }
    }
}

fn card(item: &ReportItem, status: &StatusDocument, now: SystemTime) -> Markup {
    let name = item.certificate().unwrap_or_default();
    let component = status.components.get(&item.component);
    let none = CertificateEntry::default();
    let certificate = component.and_then(|component| component.certificate.as_ref()).unwrap_or(&none);
    let target = component.and_then(|component| component.target.as_deref()).unwrap_or_default();
    let updated = component.and_then(|component| component.updated);
    let next_try = component.and_then(|component| component.next_try);
    let is_replaced = item.state == StatusState::Ok;
    html! {
        article.card id={ "certificate-" (name) } {
            h3 { (name) " " (state_badge(item.state)) }
            @if let Some(reason) = item.describe_reason() { p.reason { (rich(&reason)) } }
            (facts(&[
                ("Names", html! { (certificate.names.join(", ")) }),
                ("Ends", stamp(certificate.expires, now)),
                ("Replaced", html! { @if is_replaced { (stamp(certificate.replaced_at, now)) } }),
                ("Next try", stamp(next_try, now)),
                ("Serial number", html! { (certificate.serial) }),
                ("Files", html! { (target) }),
                ("Written", stamp(updated, now)),
            ]))
        }
    }
}

#[cfg(test)]
mod tests {
    use keyward_telemetry::status::evaluate;

    use super::*;
    use crate::pages::times::parse;

    fn shown(json: &str) -> String {
        let status: StatusDocument = serde_json::from_str(json).unwrap();
        let now = parse("2026-01-31T09:00:00Z").unwrap();
        certificates_section(&status, &evaluate(&status, now.into()), now).into_string()
    }

    #[test]
    fn the_worst_certificate_comes_first_with_its_reason_and_all_have_their_times() {
        let section = shown(
            r#"{"components": {"sink/a": {"ready": true},
                "certificate/api": {"ready": true, "target": "/run/api", "updated": "2026-01-30T09:00:00Z", "certificate": {
                    "names": ["api.example.com", "<b>"], "serial": "1a:2b", "begins": "2026-01-30T09:00:00Z",
                    "expires": "2026-03-01T09:00:00Z", "replaced_at": "2026-02-20T03:04:05Z"}},
                "certificate/web": {"ready": false, "required": true, "reason": "role requires keys of type rsa",
                    "code": "KW-1412", "target": "/run/web", "next_try": "2026-01-31T09:05:00Z"}}}"#,
        );
        let order = ["id=\"certificates\"", "id=\"certificate-web\"", "id=\"certificate-api\""];
        let places: Vec<usize> = order.iter().map(|part| section.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{section}");
        let (web, api) = section.split_at(places[2]);
        for part in
            ["DOWN", "role requires keys of type rsa", "href=\"/codes/KW-1412\"", "2026-01-31T09:05:00Z", "/run/web"]
        {
            assert!(web.contains(part), "{part} is not in {web}");
        }
        for part in
            ["OK", "api.example.com, &lt;b&gt;", "1a:2b", "2026-03-01T09:00:00Z", "2026-02-20T03:04:05Z", "/run/api"]
        {
            assert!(api.contains(part), "{part} is not in {api}");
        }
        assert!(!section.contains("sink/a") && !section.contains("<b>"), "{section}");
    }

    #[test]
    fn there_is_no_section_without_certificates() {
        assert_eq!(shown(r#"{"components": {"sink/a": {"ready": true}}}"#), "");
    }
}
