//! Results of a search in everything that the browser may see.

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::status::{StatusDocument, evaluate};
use maud::{Markup, html};

use super::Frame;
use super::problems::state_badge;
use super::text::{code_link, rich};

/// Most results of one kind that the page lists.
pub(super) const HITS: usize = 8;

/// Results of one kind.
#[derive(Debug, Default)]
pub(crate) struct HitGroup {
    /// Kind of the results.
    pub title: &'static str,
    /// Results; those beyond the first few are counted.
    pub hits: Vec<Hit>,
    /// Page that lists all of them, if there is one.
    pub all: Option<String>,
}

/// One result.
#[derive(Debug)]
pub(crate) struct Hit {
    /// Path of its page.
    pub link: String,
    pub name: String,
    pub detail: Markup,
}

/// Builds the page. `remarks` say what was not searched.
pub(crate) fn page(frame: Frame, search: &str, groups: &[HitGroup], remarks: &[Markup]) -> Markup {
    let found: usize = groups.iter().map(|group| group.hits.len()).sum();
    let content = html! {
        @if search.is_empty() {
            p { "Type a part of a session, a component, an accessor, a policy, a role or another ACL record, an error code such as "
                code { "KW-1203" } ", or words of an error or of the API history." }
        } @else {
            p { @if found == 0 { "Nothing" } @else { (found) } " found for " strong { (search) } }
        }
        @for group in groups.iter().filter(|group| !group.hits.is_empty()) { (results(group)) }
        @for remark in remarks { p.minor { (remark) } }
    };
    frame.page_after_search("Search", "", search, &content)
}

fn results(group: &HitGroup) -> Markup {
    html! {
        section {
            h2 { (group.title) }
            ul.hits {
                @for hit in group.hits.iter().take(HITS) {
                    li { a href=(hit.link) { (hit.name) } " " span.minor { (hit.detail) } }
                }
            }
            @if group.hits.len() > HITS {
                p.minor {
                    "and " (group.hits.len() - HITS) " more"
                    @if let Some(all) = &group.all { ": " a href=(all) { "list all" } }
                }
            }
        }
    }
}

/// Returns true if one of the texts contains the search, ignoring case.
pub(super) fn contains<'a>(texts: impl IntoIterator<Item = &'a str>, search: &str) -> bool {
    let search = search.to_lowercase();
    texts.into_iter().any(|text| text.to_lowercase().contains(&search))
}

/// Finds error codes by their number or by the words of their explanation.
pub(crate) fn find_codes(search: &str) -> HitGroup {
    let exact = search.parse::<ErrorCode>().ok();
    let matches = |code: &&ErrorCode| match exact {
        Some(exact) => **code == exact,
        None => contains([code.as_str(), code.explain().title], search),
    };
    let hit = |code: &ErrorCode| {
        let explanation = code.explain();
        let detail = if exact.is_some() {
            html! { (explanation.title) ". What to do: " (rich(explanation.remedy)) }
        } else {
            html! { (explanation.title) }
        };
        Hit { link: code_link(*code), name: code.to_string(), detail }
    };
    let hits = ErrorCode::ALL.iter().filter(matches).map(hit).collect();
    HitGroup { title: "Error codes", hits, all: Some("/codes".to_owned()) }
}

/// Finds sessions and components by name, server, role, policy or target.
pub(crate) fn find_in_status(status: &StatusDocument, now: std::time::SystemTime, search: &str) -> HitGroup {
    let report = evaluate(status, now.into());
    let mut hits = Vec::new();
    for item in &report.items {
        let session = item.session().and_then(|name| Some((name, status.sessions.get(name)?)));
        let target = status.components.get(&item.component).and_then(|entry| entry.target.as_deref());
        let mut texts = vec![item.component.as_str()];
        texts.extend(target);
        if let Some((_, session)) = session {
            texts.extend([session.server.as_str(), session.role.as_str()]);
            texts.extend(session.policies.iter().map(String::as_str));
        }
        if contains(texts, search) {
            let link = session.map_or_else(|| "/agent".to_owned(), |(name, _)| format!("/agent#session-{name}"));
            let about = session.map(|(_, session)| session.server.as_str()).or(target).unwrap_or_default();
            let detail = html! { (state_badge(item.state)) " " (about) };
            hits.push(Hit { link, name: item.component.clone(), detail });
        }
    }
    HitGroup { title: "Sessions and components", hits, all: Some("/agent".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn names(group: &HitGroup) -> Vec<&str> {
        group.hits.iter().map(|hit| hit.name.as_str()).collect()
    }

    #[test]
    fn codes_are_found_by_number_and_by_words() {
        for exact in ["KW-1003", "kw-1003", "1003"] {
            assert_eq!(names(&find_codes(exact)), ["KW-1003"], "{exact}");
        }
        assert!(names(&find_codes("unknown KEY")).contains(&"KW-1003"));
        assert!(names(&find_codes("kw-100")).len() > 5);
        assert!(find_codes("nothing is called so").hits.is_empty());
    }

    #[test]
    fn sessions_are_found_by_name_server_and_policy_and_components_by_target() {
        let status: StatusDocument = serde_json::from_str(
            r#"{"sessions": {"web": {"server": "https://vault.example.com", "policies": ["app-read"], "serving": true}},
                "components": {"session/web": {"ready": true}, "sink/a": {"ready": true, "target": "/run/a<b>.token"}}}"#,
        )
        .unwrap();
        let find = |search: &str| find_in_status(&status, SystemTime::now(), search);
        assert_eq!(names(&find("WEB")), ["session/web"]);
        assert_eq!(names(&find("vault.example")), ["session/web"]);
        assert_eq!(names(&find("app-re")), ["session/web"]);
        assert_eq!(names(&find("run/a")), ["sink/a"]);
        assert_eq!(find("web").hits[0].link, "/agent#session-web");
        let frame = Frame { has_key: true, ..Frame::default() };
        let page = page(frame, "<i>", &[find("a<b>")], &[]).into_string();
        assert!(page.contains("/run/a&lt;b&gt;.token") && page.contains("value=\"&lt;i&gt;\""), "{page}");
        assert!(!page.contains("<i>") && !page.contains("a<b>"), "{page}");
    }
}
