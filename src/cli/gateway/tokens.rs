//! `keyward gateway tokens`: which tokens there are, and who calls.

use std::time::Duration;

use clap::Args;
use humantime::format_duration;
use serde_json::Value;

use super::reach::Where;
use crate::cli::{Exit, Format, say};

/// Say which tokens the running gateway has.
#[derive(Debug, Args)]
pub(super) struct Tokens {
    #[command(flatten)]
    at: Where,
    /// How the output looks
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Tokens {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let found = match self.at.find() {
            Ok(found) => found,
            Err(exit) => return Ok(exit),
        };
        let told = match found.ask("/v1/platform/tokens", &[])? {
            Ok(told) => told,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => say(&serde_json::to_string_pretty(&told)?),
            Format::Text => {
                for line in lines(&told, &found.file.display().to_string()) {
                    say(&line);
                }
            }
        }
        Ok(Exit::Ok)
    }
}

fn lines(told: &Value, file: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let age = |value: &Value| match value.as_u64() {
        Some(seconds) => format_duration(Duration::from_secs(seconds)).to_string(),
        None => "unknown".to_owned(),
    };
    let (platform, local) = (&told["platform_token"], &told["local_token"]);
    let mut lines = vec![format!("platform token  for {} from {}", text(&told["upstream"]), text(&platform["source"]))];
    lines.push(if platform["serving"] == true {
        format!("  taken {} ago, last looked at {}", age(&platform["age_seconds"]), text(&platform["last_checked"]))
    } else {
        format!("  none: {}", text(&platform["reason"]))
    });
    lines.push(format!("local token  in {file}"));
    lines.push(format!("  made {} ago", age(&local["age_seconds"])));
    if let Some(until) = local["previous_until"].as_str() {
        lines.push(format!("  the one before it is good until {until}"));
    }
    let callers = told["callers"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.push(format!("callers  {}", callers.len()));
    for caller in callers {
        let old = caller["requests_with_previous"].as_u64().filter(|count| *count > 0);
        let old = old.map(|count| format!(", {count} with the local token before")).unwrap_or_default();
        let (client, last) = (text(&caller["client"]), text(&caller["last"]));
        lines.push(format!("  {client}  {} requests{old}, the last at {last}", caller["requests"]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_inventory_is_told_in_lines() {
        let told = json!({
            "upstream": "https://app.terraform.io",
            "platform_token": {"source": "file /t", "serving": true, "age_seconds": 90, "last_checked": "2026-01-01T00:00:00Z"},
            "local_token": {"age_seconds": 5, "previous_until": "2026-01-02T00:00:00Z"},
            "callers": [{"client": "go-tfe", "requests": 3, "requests_with_previous": 1, "last": "2026-01-01T00:00:01Z"}],
        });
        assert_eq!(
            lines(&told, "/l"),
            [
                "platform token  for https://app.terraform.io from file /t",
                "  taken 1m 30s ago, last looked at 2026-01-01T00:00:00Z",
                "local token  in /l",
                "  made 5s ago",
                "  the one before it is good until 2026-01-02T00:00:00Z",
                "callers  1",
                "  go-tfe  3 requests, 1 with the local token before, the last at 2026-01-01T00:00:01Z",
            ]
        );
        let none = json!({"platform_token": {"serving": false, "source": "file /t", "reason": "it is empty"}});
        assert_eq!(lines(&none, "/l")[1], "  none: it is empty");
    }
}
