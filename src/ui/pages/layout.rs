//! Frame of every page: head, navigation, footer; and small pieces that pages share.

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
        let entries = [
            ("/agent", "Agent", true),
            ("/acl/tokens", "ACL", self.has_acl),
            ("/gateway", "Gateway", self.has_gateway),
            ("/history", "API history", self.has_gateway),
        ];
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="htmx-config" content=(HTMX);
                    title { (title) " - keyward" }
                    link rel="stylesheet" href="/static/style.css";
                    script src="/static/htmx.js" defer {}
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        span.brand { "keyward" }
                        nav aria-label="Parts" {
                            ul {
                                @for (path, name, _) in entries.iter().filter(|(.., runs)| *runs) {
                                    li { a href=(path) aria-current=[here.starts_with(root(path)).then_some("page")] { (name) } }
                                }
                            }
                        }
                        @if self.has_key || self.has_acl_token {
                            form method="post" action="/sign-out" { button.plain type="submit" { "Sign out" } }
                        }
                    }
                    main id="content" tabindex="-1" {
                        h1 { (title) }
                        (content)
                    }
                    footer { p { "keyward " (env!("CARGO_PKG_VERSION")) } }
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
    let class = match kind {
        BadgeKind::Good => "badge good",
        BadgeKind::Warning => "badge warning",
        BadgeKind::Bad => "badge bad",
        BadgeKind::Neutral => "badge",
    };
    html! { span class=(class) { (text) } }
}

/// Kind of a [`badge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadgeKind {
    Good,
    Warning,
    Bad,
    Neutral,
}

/// Builds a list of terms with their values; empty values are left out.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl {
            @for (name, value) in facts.iter().filter(|(_, value)| !value.0.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Builds a table that scrolls within itself on a narrow screen.
pub(super) fn table(caption: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows { tr { @for cell in row { td { (cell) } } } }
                    @if rows.is_empty() { tr { td colspan=(heads.len()) { "None" } } }
                }
            }
        }
    }
}
