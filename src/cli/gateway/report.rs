//! `keyward gateway report`: which client makes which deprecated call, and what replaces it.

use clap::Args;
use serde_json::Value;

use super::reach::Where;
use crate::cli::show::{json, table};
use crate::cli::{Exit, Format, say};

/// Say which client makes calls that the platform's changelog says something of.
#[derive(Debug, Args)]
pub(super) struct Report {
    #[command(flatten)]
    at: Where,
    /// How the output looks
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Report {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let found = match self.at.find() {
            Ok(found) => found,
            Err(exit) => return Ok(exit),
        };
        let told = match found.ask("/v1/platform/report", &[])? {
            Ok(told) => told,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => json(&told),
            Format::Text => tell(&told),
        }
        Ok(Exit::Ok)
    }
}

fn tell(told: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let server = &told["server"];
    let product = server["product"].as_str().unwrap_or("of an unknown edition");
    let release = server["release"].as_str().map(|release| format!(", release {release}")).unwrap_or_default();
    say(&format!("{} is {product}{release}", text(&told["upstream"])));
    let calls = told["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        say("no client has made a call that the changelog says something of, since the gateway started");
        return;
    }
    let rows = calls.iter().map(|call| {
        let instead = call["replacement"].as_str().or_else(|| call["note"].as_str()).unwrap_or("-");
        [
            text(&call["client"]),
            text(&call["change"]),
            text(&call["kind"]),
            call["calls"].to_string(),
            call["replaced"].to_string(),
            text(&call["last"]),
            what(call),
            instead.to_owned(),
        ]
    });
    table(["CLIENT", "CHANGE", "KIND", "CALLS", "REPLACED", "LAST", "WHAT", "INSTEAD"], rows);
    say("keyward changes show DAY tells all of a change; a newer client may no longer make the call");
}

/// The endpoint that a change is about, or what else it names.
fn what(call: &Value) -> String {
    let first = |name: &str| call[name].as_array().and_then(|all| all.first()).and_then(Value::as_str);
    first("endpoints").or_else(|| first("names")).unwrap_or_default().to_owned()
}
