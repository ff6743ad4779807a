//! Frame of every page: head, navigation, search, footer; and small pieces that pages share.

use maud::{DOCTYPE, Markup, html};

/// Parts that run here, and the rights of the browser: what the navigation offers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    /// An ACL server runs here.
    pub has_acl: bool,
    /// A gateway runs here.
    pub has_gateway: bool,
    /// The listener's key was given.
    pub has_key: bool,
    /// An ACL token was given.
    pub has_acl_token: bool,
}

/// htmx adds styles and evaluates text by default, both of which the content security policy forbids.
const HTMX: &str =
    r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true}"#;

impl Frame {
    /// Builds a page. `here` is the path of its entry in the navigation.
    pub(crate) fn page(self, title: &str, here: &str, content: &Markup) -> Markup {
        self.page_after_search(title, here, "", content)
    }

    /// Builds a page with a text in the search field.
    pub(super) fn page_after_search(self, title: &str, here: &str, search: &str, content: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="htmx-config" content=(HTMX);
                    title { (title) " - keyward" }
                    link rel="icon" type="image/svg+xml" href="/static/mark.svg";
                    link rel="stylesheet" href="/static/style.css";
                    script src="/static/htmx.js" defer {}
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    (self.header(here, search))
                    main id="content" tabindex="-1" {
                        h1 { (title) }
                        (content)
                    }
                    footer { p { "keyward " (env!("CARGO_PKG_VERSION")) " · times are in UTC" } }
                }
            }
        }
    }

    fn header(self, here: &str, search: &str) -> Markup {
        let entries = [
            ("/agent", "Agent", true),
            ("/acl/tokens", "ACL", self.has_acl),
            ("/gateway", "Gateway", self.has_gateway),
            ("/history", "API history", self.has_gateway),
            ("/codes", "Error codes", true),
        ];
        let is_here = |path: &str| !here.is_empty() && root(here) == root(path);
        html! {
            header.top {
                div.bar {
                    a.brand href="/agent" { img src="/static/mark.svg" alt="" width="26" height="26"; "keyward" }
                    @if self.has_key || self.has_acl_token {
                        form.search role="search" method="get" action="/search" {
                            label.hidden for="search" { "Search" }
                            input id="search" type="search" name="q" value=(search) autocomplete="off"
                                placeholder="Session, accessor, policy, KW code";
                            button.plain type="submit" { "Search" }
                        }
                        form.sign-out method="post" action="/sign-out" { button.plain type="submit" { "Sign out" } }
                    }
                }
                nav.tabs aria-label="Parts" {
                    ul {
                        @for (path, name, _) in entries.iter().filter(|(.., runs)| *runs) {
                            li { a href=(path) aria-current=[is_here(path).then_some("page")] { (name) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the first segment of a path, by which the current entry is found.
fn root(path: &str) -> &str {
    let end = path[1..].find('/').map_or(path.len(), |at| at + 1);
    &path[..end]
}

/// Builds the page for an error.
pub(crate) fn error_page(frame: Frame, title: &str, message: &str) -> Markup {
    frame.page(title, "", &html! { p.error role="alert" { (message) } })
}

/// A label for a state: the word says what the colour says.
pub(super) fn badge(kind: BadgeKind, text: &str) -> Markup {
    html! { span class={ "badge " (kind.class()) } { (text) } }
}

/// Kind of a [`badge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadgeKind {
    Good,
    Warning,
    Bad,
    Neutral,
}

impl BadgeKind {
    /// Class of the colour.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
            Self::Neutral => "neutral",
        }
    }
}

/// Builds a list of terms with their values; empty values are left out.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts.iter().filter(|(_, value)| !value.0.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Builds a table, whose rows are cards on a narrow screen. `name` is for readers of the screen; `empty` stands in place of a
/// table without rows.
pub(super) fn table(name: &str, heads: &[&str], rows: &[Vec<Markup>], empty: &str) -> Markup {
    html! {
        @if rows.is_empty() {
            p.empty { (empty) }
        } @else {
            table.rows aria-label=(name) {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (cell, head) in row.iter().zip(heads) {
                                td data-label=(head) { @if !cell.0.is_empty() { div { (cell) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_of_the_navigation_is_the_current_one() {
        let frame = Frame { has_acl: true, has_gateway: true, ..Frame::default() };
        let current = |here: &str| {
            let page = frame.page("T", here, &html! {}).into_string();
            let count = page.matches("aria-current").count();
            page.split_once("aria-current=\"page\">")
                .map(|(_, rest)| (rest.split('<').next().unwrap().to_owned(), count))
        };
        assert_eq!(current("/acl/roles"), Some(("ACL".to_owned(), 1)));
        assert_eq!(current("/codes/KW-1203"), Some(("Error codes".to_owned(), 1)));
        assert_eq!((current(""), current("/search")), (None, None));
    }

    #[test]
    fn a_table_without_rows_is_a_sentence() {
        let rows = [vec![html! { "a" }, html! { "<b>" }]];
        assert_eq!(table("T", &["A", "B"], &[], "No A.").into_string(), "<p class=\"empty\">No A.</p>");
        let full = table("T", &["A", "B"], &rows, "No A.").into_string();
        assert!(full.contains("<td data-label=\"B\"><div>&lt;b&gt;</div></td>") && !full.contains("No A."), "{full}");
    }
}
