//! `[sink.NAME.derived_token]`, `[listener.NAME.derived_token]`: a child of a session's token, for one output.

use std::time::Duration;

use super::reader::Reader;
use crate::agent::secrets::DerivedTokenOptions;
use crate::count_format::format_count;
use crate::time_format::format_duration;

/// Reads the table of that name. `ends_by_use` is true if its token may have a number of uses.
pub(super) fn read(reader: &mut Reader<'_>, ends_by_use: bool) -> Option<DerivedTokenOptions> {
    let mut table = reader.table("derived_token")?;
    let policies = table.list("policies").unwrap_or_default().into_iter().map(|text| text.value).collect();
    let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
    let ttl = table.duration_if_given("ttl", 10 * second..=32 * day);
    if table.place_of("ttl").is_none() {
        table.missing("ttl", "how long the token lives, such as \"1h\"; another is made before it ends");
    }
    let num_uses = if ends_by_use { table.number("num_uses", 1..=1_000_000) } else { None };
    table.finish();
    Some(DerivedTokenOptions { policies, ttl: ttl.unwrap_or(day), num_uses: num_uses.unwrap_or(0) as u64 })
}

/// Describes policies, lifetime and uses in words that follow `a child of the token`.
pub(super) fn describe(child: &DerivedTokenOptions) -> String {
    let policies = match child.policies.as_slice() {
        [] => "the same policies".to_owned(),
        policies => format!("the policies {}", policies.join(", ")),
    };
    let uses =
        if child.num_uses > 0 { format!(", for {}", format_count(child.num_uses, "use")) } else { String::new() };
    format!("with {policies}, for {}{uses}", format_duration(child.ttl))
}
