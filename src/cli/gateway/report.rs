//! `keyward gateway report`: deprecated calls by client, with their replacements.

use clap::Args;
use keyward_telemetry::status::product_name;
use serde_json::Value;

use super::target::GatewayAddress;
use crate::cli::output::{json, table};
use crate::cli::{Exit, Format, print_line};

/// List the deprecated calls of each client.
#[derive(Debug, Args)]
pub(super) struct Report {
    #[command(flatten)]
    at: GatewayAddress,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Report {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let variables = match self.at.find() {
            Ok(variables) => variables,
            Err(exit) => return Ok(exit),
        };
        let report = match variables.fetch_or_report("/v1/platform/report", &[])? {
            Ok(report) => report,
            Err(exit) => return Ok(exit),
        };
        match self.format {
            Format::Json => json(&report),
            Format::Text => print_report(&report),
        }
        Ok(Exit::Ok)
    }
}

fn print_report(report: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let server = &report["server"];
    let product = server["product"].as_str().map_or("of an unknown edition", product_name);
    let release = server["release"].as_str().map(|release| format!(", release {release}")).unwrap_or_default();
    print_line(&format!("{} is {product}{release}", text(&report["upstream"])));
    if let Some(until) = report["history"]["until"].as_str() {
        print_line(&format!("the history ends on {until}: later changes of the API are not known here"));
    }
    let calls = report["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        print_line("no deprecated calls since the gateway started");
        return;
    }
    let rows = calls.iter().map(|call| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        [
            text(&call["client"]),
            text(&call["call"]),
            text(&call["organization"]),
            text(&call["workspace"]),
            text(&call["change"]),
            call["calls"].to_string(),
            call["replaced"].to_string(),
            text(&call["last"]),
            text(&call["advice"]),
        ]
    });
    table(["Client", "Call", "Organization", "Workspace", "Change", "Calls", "Replaced", "Last", "Do this"], rows);
    print_line("`keyward changes show CHANGE` shows a change in full; a newer client may not make the call any more");
}
