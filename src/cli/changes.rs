//! `keyward changes`: the dated history of the API of HCP Terraform and Terraform Enterprise.

use std::fmt::Display;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use keyward_gateway::api_changelog::{self, ApiDate, Change, ChangeFilter, Changelog, Documentation, Endpoint};

use super::output::{json, table};
use super::{Exit, Format, print_error, print_line, print_note};

/// Search the history of the API of HCP Terraform and Terraform Enterprise.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Changes {
    #[command(flatten)]
    filters: Filters,
    /// Output format; json is an array
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Conditions for a row; all of resource, kind, edition, release, gateway, method and path must fit one of its changes.
#[derive(Debug, Args)]
struct Filters {
    /// First day, such as 2024-02-08 or 2024-2-8; the first is 2021-03-08
    #[arg(long, value_name = "DATE")]
    since: Option<String>,
    /// Last day; the history ends on 2024-10-14
    #[arg(long, value_name = "DATE")]
    until: Option<String>,
    /// Filter by resource, such as registry-modules
    #[arg(long)]
    resource: Option<String>,
    /// Filter by kind: added, changed, deprecated, fixed, docs or breaking
    #[arg(long)]
    kind: Option<String>,
    /// Filter by product: hosted, enterprise or all; unmarked entries always match
    #[arg(long)]
    edition: Option<String>,
    /// Filter by release of Terraform Enterprise, such as v202207-1 or 1.0.3: leaves out changes that came after it
    #[arg(long)]
    release: Option<String>,
    /// Filter by the action of the gateway: feature-check, warn, rewrite, paginate, validate, redact or none
    #[arg(long, value_name = "ACTION")]
    gateway: Option<String>,
    /// Filter by method: GET, POST, PATCH and so on
    #[arg(long)]
    method: Option<String>,
    /// Filter by path: of a call, such as /api/v2/runs/run-1/policy-checks, or a template, such as
    /// /runs/:run_id/policy-checks
    #[arg(long)]
    path: Option<String>,
    /// Filter by text in the entry or in the name of an attribute, resource or endpoint; ignores case
    #[arg(long)]
    text: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the changes of a day, or one change, in full
    #[command(after_help = "Examples:\n  keyward changes show 2021-06-08\n  keyward changes show 2021-06-08/d1")]
    Show {
        /// The day, such as 2024-02-08 or 2024-2-8, or the id of a change, such as 2021-06-08/d1
        #[arg(value_name = "DAY|CHANGE")]
        what: String,
        /// Output format; json is an array
        #[arg(short = 'o', long, value_enum, default_value_t)]
        format: Format,
    },
}

impl Changes {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let changelog = Changelog::get();
        match self.command {
            Some(Command::Show { what, format }) if what.contains('/') => show_one(changelog, &what, format),
            Some(Command::Show { what, format }) => Ok(show_day(changelog, what.parse()?, format)),
            None => self.filters.list(changelog, self.format),
        }
    }
}

impl Filters {
    fn list(self, changelog: &Changelog, format: Format) -> anyhow::Result<Exit> {
        let filter = self.filter(changelog)?;
        filter.remark().into_iter().for_each(print_note);
        let rows: Vec<&api_changelog::Row> = changelog.find(&filter).collect();
        match format {
            Format::Json => json(&rows),
            Format::Text if rows.is_empty() => {
                print_note("no change in the history matches these filters");
                print_end(changelog);
            }
            Format::Text => {
                table(["Date", "Kind", "Resource", "Text"], rows.iter().copied().map(line));
                let changes = rows.iter().flat_map(|row| &row.changes).filter(|change| filter.matches_change(change));
                for change in changes {
                    if let Some(advice) = &change.gateway.advice {
                        print_line(&format!("do this: {advice} ({})", change.id));
                    }
                }
                print_end(changelog);
            }
        }
        Ok(Exit::Ok)
    }

    fn filter(self, changelog: &Changelog) -> anyhow::Result<ChangeFilter> {
        let mut filter = ChangeFilter::default();
        let options = [
            ("since", self.since),
            ("until", self.until),
            ("resource", self.resource),
            ("kind", self.kind),
            ("edition", self.edition),
            ("release", self.release),
            ("gateway", self.gateway),
            ("method", self.method),
            ("path", self.path),
            ("text", self.text),
        ];
        for (name, value) in options.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            filter.set(name, &value, changelog).map_err(|error| anyhow!("--{name}: {error}"))?;
        }
        Ok(filter)
    }
}

/// Says where the history ends, which is no end of the API's changes.
fn print_end(changelog: &Changelog) {
    if let Some((_, until)) = changelog.span() {
        print_note(&format!("the history ends on {until}; later changes of the API are not in it"));
    }
}

fn line(row: &api_changelog::Row) -> [String; 4] {
    let kinds = format_list(row.changes.iter().map(|change| change.kind));
    let resources = format_list(row.changes.iter().map(|change| &change.resource));
    [row.date.to_string(), kinds, resources, row.changelog.text.clone()]
}

/// Each word once, in order.
fn format_list(words: impl Iterator<Item = impl Display>) -> String {
    let mut once: Vec<String> = Vec::new();
    for word in words.map(|word| word.to_string()) {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    once.join(", ")
}

fn show_day(changelog: &Changelog, date: ApiDate, format: Format) -> Exit {
    let rows: Vec<&api_changelog::Row> = changelog.rows_on(date).collect();
    if rows.is_empty() {
        let before = changelog.rows().iter().map(|row| row.date).find(|other| *other < date);
        let after = changelog.rows().iter().rev().map(|row| row.date).find(|other| *other > date);
        let nearest =
            [before, after].into_iter().flatten().map(|date| date.to_string()).collect::<Vec<_>>().join(" and ");
        print_error(&format!("no change has the date {date}; the nearest dates are {nearest}"));
        return Exit::Missing;
    }
    match format {
        Format::Json => json(&rows),
        Format::Text => {
            for (index, row) in rows.into_iter().enumerate() {
                if index > 0 {
                    print_line("");
                }
                show(row);
                row.changes.iter().for_each(show_change);
            }
        }
    }
    Exit::Ok
}

/// Shows one change, with its row.
fn show_one(changelog: &Changelog, id: &str, format: Format) -> anyhow::Result<Exit> {
    let Some((row, change)) = changelog.change(id) else {
        let (day, _) = id.split_once('/').unwrap_or((id, ""));
        let of_day: Vec<&str> =
            changelog.rows_on(day.parse()?).flat_map(|row| &row.changes).map(|change| change.id.as_str()).collect();
        let existing =
            if of_day.is_empty() { "that day has none".to_owned() } else { format!("there are {}", of_day.join(", ")) };
        print_error(&format!("there is no change {id}; {existing}"));
        return Ok(Exit::Missing);
    };
    match format {
        Format::Json => json(&[api_changelog::Row { changes: vec![change.clone()], ..row.clone() }]),
        Format::Text => {
            show(row);
            show_change(change);
        }
    }
    Ok(Exit::Ok)
}

fn show(row: &api_changelog::Row) {
    print_line(&format!("{} (written {})", row.id, row.changelog.date));
    if row.has_content() {
        print_line(&format!("  {}", row.changelog.text));
    } else {
        print_line("  entry body: not shown");
    }
    documentation(&row.documentation, "  ");
}

fn show_change(change: &Change) {
    let Change { id, kind, resource, names, changelog, gateway, .. } = change;
    print_line(&format!("  {id}: {kind}, {resource}: {}", names.join(", ")));
    let release = changelog.release.map(|release| format!(" from {release}")).unwrap_or_default();
    print_line(&format!("    edition: {}{release}", changelog.edition));
    for endpoint in &changelog.endpoints {
        print_line(&format!("    endpoint: {}", endpoint.as_str()));
    }
    for endpoint in changelog.replacement.iter().map(Endpoint::as_str) {
        print_line(&format!("    replaced by: {endpoint}"));
    }
    documentation(&change.documentation, "    ");
    if let Some(advice) = change.advice() {
        print_line(&format!("    do this: {advice}"));
    }
    let note = gateway.note.as_deref().map(|note| format!(". {note}")).unwrap_or_default();
    print_line(&format!("    gateway: {}{note}", gateway.action));
}

/// Prints the additions from public documentation, each line marked as such.
fn documentation(documentation: &Documentation, margin: &str) {
    let print_field = |label: &str, text: &str| print_line(&format!("{margin}documentation: {label}{text}"));
    for endpoint in &documentation.endpoints {
        print_field("", endpoint.as_str());
    }
    for successor in documentation.successor.iter().map(Endpoint::as_str) {
        print_field("called in its place: ", successor);
    }
    for (name, aliases) in &documentation.aliases {
        print_field("", &format!("{name} is also {}", aliases.join(", ")));
    }
    if let Some(edition) = documentation.edition {
        print_field("edition: ", &edition.to_string());
    }
    for note in &documentation.notes {
        print_field("", note);
    }
}
