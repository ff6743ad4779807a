//! `[sink.NAME.derived_token]`, `[listener.NAME.derived_token]`, `[caller.NAME.derived_token]`: a child of a session's token.

use std::time::Duration;

use keyward_agent::callers::{CallerTokenOptions, CallerTokenScope};
use keyward_agent::secrets::DerivedTokenOptions;
use keyward_telemetry::time_format::format_duration;
use keyward_telemetry::wording::format_count;

use super::reader::Reader;
use super::values::{ValueError, invalid};

/// Reads the table of that name. `ends_by_use` is true if its token may have a number of uses.
pub(super) fn read(reader: &mut Reader<'_>, ends_by_use: bool) -> Option<DerivedTokenOptions> {
    let mut table = reader.table("derived_token")?;
    let options = read_table(&mut table, ends_by_use);
    table.finish();
    Some(options)
}

/// Reads the table of a caller.
pub(super) fn read_for_caller(reader: &mut Reader<'_>, caller: &str) -> Option<CallerTokenOptions> {
    let mut table = reader.table("derived_token")?;
    let mut child = read_table(&mut table, true);
    child.role = table.parse_text("role", role);
    // The agent replaces it in time, so its holder needs no renewal.
    child.has_fixed_end = true;
    child.meta.insert("caller", caller.to_owned());
    let scope = table.choice("scope", &CallerTokenScope::NAMES).unwrap_or_default();
    table.finish();
    Some(CallerTokenOptions { child, scope })
}

fn read_table(table: &mut Reader<'_>, ends_by_use: bool) -> DerivedTokenOptions {
    let policies = table.list("policies").unwrap_or_default().into_iter().map(|text| text.value).collect();
    let second = Duration::from_secs(1);
    let day = Duration::from_hours(24);
    let ttl = table.duration_if_given("ttl", 10 * second..=32 * day);
    if table.locate("ttl").is_none() {
        table.missing("ttl", "how long the token lives, such as \"1h\"; another is made before it ends");
    }
    let num_uses = if ends_by_use { table.number("num_uses", 1..=1_000_000) } else { None };
    let num_uses = num_uses.unwrap_or(0) as u64;
    DerivedTokenOptions { policies, ttl: ttl.unwrap_or(day), num_uses, ..DerivedTokenOptions::default() }
}

/// A name that is one segment of a path.
fn role(text: &str) -> Result<String, ValueError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.starts_with('.') || !text.bytes().all(fits) {
        return invalid("is not the name of a token role", "write the NAME of auth/token/roles/NAME");
    }
    Ok(text.to_owned())
}

/// Describes policies, lifetime and uses in words that follow `a child of the token`.
pub(super) fn describe(child: &DerivedTokenOptions) -> String {
    let policies = match (child.policies.as_slice(), &child.role) {
        ([], Some(role)) => format!("the policies of the token role {role}"),
        ([], None) => "the same policies".to_owned(),
        (policies, role) => {
            let role = role.as_ref().map(|role| format!(" by the token role {role}")).unwrap_or_default();
            format!("the policies {}{role}", policies.join(", "))
        }
    };
    let uses =
        if child.num_uses > 0 { format!(", for {}", format_count(child.num_uses, "use")) } else { String::new() };
    format!("with {policies}, for {}{uses}", format_duration(child.ttl))
}

/// Describes a caller's own token in words that follow `gets`.
pub(super) fn describe_for_caller(options: &CallerTokenOptions) -> String {
    let child = describe(&options.child);
    match options.scope {
        CallerTokenScope::Caller => format!("a token of its own, a child of a session's token {child}"),
        CallerTokenScope::Process => {
            format!("a token for each of its processes, until that ends: a child of a session's token {child}")
        }
    }
}
