//! `keyward gateway tokens`: the gateway's tokens, and its callers.

use clap::Args;
use keyward_telemetry::time_format::format_span;
use keyward_telemetry::wording::format_count;
use serde_json::Value;

use super::target::{GatewayAddress, GatewayTarget};
use crate::cli::output::{json, table};
use crate::cli::{Exit, Format, print_line, print_note};

/// List the tokens of the running gateway.
#[derive(Debug, Args)]
pub(super) struct Tokens {
    #[command(flatten)]
    at: GatewayAddress,
    /// Also list the team tokens of this organization, with their creation, last use and end
    #[arg(long, value_name = "NAME")]
    organization: Option<String>,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Tokens {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let variables = match self.at.find() {
            Ok(variables) => variables,
            Err(exit) => return Ok(exit),
        };
        let document = match variables.fetch_or_report("/v1/platform/tokens", &[])? {
            Ok(document) => document,
            Err(exit) => return Ok(exit),
        };
        let teams = match self.organization.as_deref().map(|name| teams(&variables, name)).transpose()? {
            Some(Err(exit)) => return Ok(exit),
            Some(Ok(teams)) => Some(teams),
            None => None,
        };
        match self.format {
            Format::Json => {
                let mut document = document;
                if let Some(teams) = teams {
                    document["team_tokens"] = teams.into();
                }
                json(&document);
            }
            Format::Text => {
                for line in lines(&document, &variables.file.display().to_string()) {
                    print_line(&line);
                }
                if let Some(teams) = teams {
                    table(["Team", "Token", "Created", "Last used", "Ends"], teams.iter().map(row));
                    let endless = teams.iter().filter(|token| token["attributes"]["expired-at"].is_null()).count();
                    if endless > 0 {
                        print_note(&format!("{endless} of them never expire: a leaked one stays valid"));
                    }
                }
            }
        }
        Ok(Exit::Ok)
    }
}

/// The team tokens of an organization (the platform's list of 2024-08-14), all pages of it; without any token's text.
fn teams(variables: &GatewayTarget, organization: &str) -> anyhow::Result<Result<Vec<Value>, Exit>> {
    // The client escapes the segment.
    let is_invalid = |c: char| matches!(c, '/' | '\\') || c.is_control();
    anyhow::ensure!(
        !matches!(organization, "" | "." | "..") && !organization.contains(is_invalid),
        "--organization is not a valid name"
    );
    let path = format!("/api/v2/organizations/{organization}/team-tokens");
    let mut all = Vec::new();
    let mut page = 1_u64;
    loop {
        let number = page.to_string();
        let mut document =
            match variables.fetch_or_report(&path, &[("page[number]", &number), ("page[size]", "100")])? {
                Ok(document) => document,
                Err(exit) => return Ok(Err(exit)),
            };
        if let Some(tokens) = document["data"].as_array_mut() {
            all.append(tokens);
        }
        let next = document["meta"]["pagination"]["next-page"].as_u64();
        match next.filter(|next| *next > page && *next <= MAX_PAGES) {
            Some(next) => page = next,
            None => return Ok(Ok(all)),
        }
    }
}

const MAX_PAGES: u64 = 100;

fn row(token: &Value) -> [String; 5] {
    let attributes = &token["attributes"];
    let text = |value: &Value, none: &str| value.as_str().unwrap_or(none).to_owned();
    [
        text(&token["relationships"]["team"]["data"]["id"], "-"),
        text(&token["id"], "-"),
        text(&attributes["created-at"], "-"),
        text(&attributes["last-used-at"], "never"),
        text(&attributes["expired-at"], "never"),
    ]
}

fn lines(document: &Value, file: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let age = |value: &Value| match value.as_u64() {
        Some(seconds) => format_span(seconds),
        None => "unknown".to_owned(),
    };
    let platform = &document["platform_token"];
    let local = &document["local_token"];
    let mut lines =
        vec![format!("platform token  for {} from {}", text(&document["upstream"]), text(&platform["source"]))];
    lines.push(if platform["serving"] == true {
        format!("  loaded {} ago, last checked {}", age(&platform["age_seconds"]), text(&platform["last_checked"]))
    } else {
        format!("  none: {}", text(&platform["reason"]))
    });
    if let Some(since) = platform["refused_since"].as_str() {
        lines.push(format!("  refused by the platform since {since}: replace it"));
    }
    lines.push(format!("local token  in {file}"));
    lines.push(format!("  made {} ago", age(&local["age_seconds"])));
    if let Some(until) = local["previous_until"].as_str() {
        lines.push(format!("  the previous one is valid until {until}"));
    }
    let callers = document["callers"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.push(format!("callers  {}", callers.len()));
    for caller in callers {
        let old = caller["requests_with_previous"].as_u64().filter(|count| *count > 0);
        let old = old.map(|count| format!(", {count} with the previous local token")).unwrap_or_default();
        let client = text(&caller["client"]);
        let last = text(&caller["last"]);
        let requests = format_count(caller["requests"].as_u64().unwrap_or_default(), "request");
        lines.push(format!("  {client}  {requests}{old}, the last at {last}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inventory_has_one_line_per_item() {
        let document = serde_json::json!({
            "upstream": "https://app.terraform.io",
            "platform_token": {"source": "file /t", "serving": true, "age_seconds": 90, "last_checked": "2026-01-01T00:00:00Z",
                "refused_since": "2026-01-01T00:00:02Z"},
            "local_token": {"age_seconds": 5, "previous_until": "2026-01-02T00:00:00Z"},
            "callers": [
                {"client": "go-tfe", "requests": 3, "requests_with_previous": 1, "last": "2026-01-01T00:00:01Z"},
                {"client": "curl", "requests": 1, "requests_with_previous": 0, "last": "2026-01-01T00:00:02Z"},
            ],
        });
        assert_eq!(
            lines(&document, "/l"),
            [
                "platform token  for https://app.terraform.io from file /t",
                "  loaded 90 s ago, last checked 2026-01-01T00:00:00Z",
                "  refused by the platform since 2026-01-01T00:00:02Z: replace it",
                "local token  in /l",
                "  made 5 s ago",
                "  the previous one is valid until 2026-01-02T00:00:00Z",
                "callers  2",
                "  go-tfe  3 requests, 1 with the previous local token, the last at 2026-01-01T00:00:01Z",
                "  curl  1 request, the last at 2026-01-01T00:00:02Z",
            ]
        );
        let none =
            serde_json::json!({"platform_token": {"serving": false, "source": "file /t", "reason": "it is empty"}});
        assert_eq!(lines(&none, "/l")[1], "  none: it is empty");
    }
}
