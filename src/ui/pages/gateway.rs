//! Page of the gateway: who calls it, which deprecated calls are made with what to do, and the ages of its tokens.

use std::time::SystemTime;

use keyward_telemetry::status::product_name;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::Frame;
use super::layout::{BadgeKind, badge, facts, table};
use super::text::rich;
use super::times::time;

/// Fields of `GET /v1/platform/tokens` that the page shows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GatewayTokens {
    upstream: String,
    platform_token: PlatformToken,
    local_token: LocalToken,
    callers: Vec<GatewayCaller>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlatformToken {
    source: Value,
    serving: bool,
    reason: Option<String>,
    taken: Option<String>,
    refused_since: Option<String>,
    last_checked: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LocalToken {
    made: Option<String>,
    previous_until: Option<String>,
    reason: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct GatewayCaller {
    client: String,
    requests: u64,
    requests_with_previous: u64,
    last: String,
}

/// Fields of `GET /v1/platform/report` that the page shows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GatewayReport {
    server: PlatformServer,
    calls: Vec<DeprecatedCall>,
    history: HistorySpan,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct HistorySpan {
    until: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlatformServer {
    product: Option<String>,
    release: Option<String>,
    api_version: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct DeprecatedCall {
    change: String,
    call: String,
    organization: Option<String>,
    workspace: Option<String>,
    advice: Option<String>,
    replacement: Option<String>,
    note: Option<String>,
    client: String,
    calls: u64,
    replaced: u64,
    last: String,
}

/// Builds the page.
pub(crate) fn page(frame: Frame, tokens: &GatewayTokens, report: &GatewayReport, now: SystemTime) -> Markup {
    let content = html! {
        @if let Some(problem) = problem(&tokens.platform_token) {
            article.problem.bad { h3 { (platform_badge(&tokens.platform_token)) " Platform token" } p.reason { (problem) } }
        }
        section aria-labelledby="platform" {
            h2 id="platform" { "Platform and tokens" }
            div.cards {
                article.card {
                    h3 { "Platform" }
                    (facts(&[
                        ("Address", html! { (tokens.upstream) }),
                        ("Product", optional(report.server.product.as_deref().map(product_name))),
                        ("Release", optional(report.server.release.as_deref())),
                        ("API version", optional(report.server.api_version.as_deref())),
                    ]))
                }
                (platform_token(&tokens.platform_token, now))
                (local_token(&tokens.local_token, now))
            }
        }
        section aria-labelledby="deprecated" {
            h2 id="deprecated" { "Deprecated calls" }
            (deprecated_calls(&report.calls, now))
            @if !report.history.until.is_empty() {
                p.minor { "The history ends on " (report.history.until) ". Later changes of the API are not known here." }
            }
        }
        section aria-labelledby="callers" {
            h2 id="callers" { "Callers" }
            (callers(&tokens.callers, now))
        }
    };
    frame.page("Gateway", "/gateway", &content)
}

/// Says why the platform token is of no use.
fn problem(token: &PlatformToken) -> Option<Markup> {
    let fallback = match (token.serving, &token.refused_since) {
        (true, None) => return None,
        (true, Some(_)) => "the platform refuses the token",
        (false, _) => "there is no platform token",
    };
    Some(rich(token.reason.as_deref().unwrap_or(fallback)))
}

fn platform_badge(token: &PlatformToken) -> Markup {
    match (token.serving, &token.refused_since) {
        (true, None) => badge(BadgeKind::Good, "in use"),
        (true, Some(_)) => badge(BadgeKind::Bad, "refused"),
        (false, _) => badge(BadgeKind::Bad, "missing"),
    }
}

fn platform_token(token: &PlatformToken, now: SystemTime) -> Markup {
    let source = token.source.as_str().map_or_else(|| token.source.to_string(), str::to_owned);
    html! {
        article.card {
            h3 { "Platform token " (platform_badge(token)) }
            (facts(&[
                ("Source", html! { @if !token.source.is_null() { (source) } }),
                ("Read", optional_time(token.taken.as_deref(), now)),
                ("Refused", optional_time(token.refused_since.as_deref(), now)),
                ("Last checked", optional_time(token.last_checked.as_deref(), now)),
                ("Reason", token.reason.as_deref().map(rich).unwrap_or_default()),
            ]))
        }
    }
}

fn local_token(token: &LocalToken, now: SystemTime) -> Markup {
    html! {
        article.card {
            h3 { "Local token" }
            (facts(&[
                ("Made", optional_time(token.made.as_deref(), now)),
                ("Previous one accepted until", optional_time(token.previous_until.as_deref(), now)),
                ("Reason", token.reason.as_deref().map(rich).unwrap_or_default()),
            ]))
        }
    }
}

fn deprecated_calls(calls: &[DeprecatedCall], now: SystemTime) -> Markup {
    let row = |call: &DeprecatedCall| {
        let todo = call.advice.as_deref().or(call.replacement.as_deref()).or(call.note.as_deref()).unwrap_or_default();
        let location = [call.organization.as_deref(), call.workspace.as_deref()].into_iter().flatten();
        // A change's id begins with its date.
        let date = call.change.get(..10).unwrap_or_default();
        vec![
            html! { code { (call.call) } },
            html! { (rich(todo)) " " a href={ "/history?since=" (date) "&until=" (date) } { "why" } },
            html! { (call.client) },
            html! { (location.collect::<Vec<_>>().join(" / ")) },
            html! { (call.calls) @if call.replaced > 0 { " (" (call.replaced) " replaced)" } },
            time(&call.last, now),
        ]
    };
    let rows: Vec<Vec<Markup>> = calls.iter().map(row).collect();
    let heads = ["Call", "What to do", "Client", "Organization / workspace", "Calls", "Last"];
    table("Deprecated calls by client", &heads, &rows, "No deprecated call was made.")
}

fn callers(callers: &[GatewayCaller], now: SystemTime) -> Markup {
    let row = |caller: &GatewayCaller| {
        let previous = html! {
            @if caller.requests_with_previous > 0 { " (" (caller.requests_with_previous) " with the previous token)" }
        };
        vec![html! { (caller.client) }, html! { (caller.requests) (previous) }, time(&caller.last, now)]
    };
    let rows: Vec<Vec<Markup>> = callers.iter().map(row).collect();
    table("Callers by client", &["Client", "Requests", "Last"], &rows, "Nobody has called yet.")
}

fn optional(text: Option<&str>) -> Markup {
    html! { (text.unwrap_or_default()) }
}

fn optional_time(text: Option<&str>, now: SystemTime) -> Markup {
    text.map(|text| time(text, now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_platform_token_stands_on_top_with_its_reason() {
        let shown = |token: &str| {
            let tokens = format!(r#"{{"upstream": "https://app.terraform.io", "platform_token": {token}}}"#);
            let tokens = serde_json::from_str(&tokens).unwrap();
            page(Frame::default(), &tokens, &GatewayReport::default(), SystemTime::now()).into_string()
        };
        let refused =
            shown(r#"{"serving": true, "refused_since": "2026-01-31T09:00:00Z", "reason": "401 <b> [KW-1701]"}"#);
        let top = refused.split_once(r#"id="platform""#).unwrap().0;
        assert!(top.contains("refused") && top.contains(r#"401 &lt;b&gt; [<a href="/codes/KW-1701">"#), "{refused}");
        let works = shown(r#"{"serving": true}"#);
        assert!(works.contains("in use") && !works.contains("class=\"problem"), "{works}");
    }
}
