//! `[listener.NAME] kind = "api_proxy"`: requests that are forwarded to the server, and the token on them.

use std::time::Duration;

use keyward_agent::api_proxy::{
    AllowedNamespaces, ApiProxyOptions, CacheLimits, CacheOptions, Exemption, NamespacePattern, Rule, Rules, TokenMode,
};
use keyward_telemetry::time_format::format_duration;

use super::reader::Reader;
use super::sink::Sessions;
use super::tree::quote;
use super::values::join_alternatives;

const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Default of `connections`: connections to the server at once.
const DEFAULT_CONNECTIONS: usize = 256;

const TOKEN_MODES: [(&str, TokenMode); 2] = [("always", TokenMode::Always), ("when_missing", TokenMode::WhenMissing)];

/// The keys that only such a listener has.
pub(super) const KEYS: [&str; 11] = [
    "allow",
    "connections",
    "deny",
    "exempt",
    "logins",
    "namespaces",
    "require_request_header",
    "response_timeout",
    "session",
    "threads",
    "token",
];

/// Reads them, and the name of the session.
pub(super) fn read(reader: &mut Reader<'_>, sessions: &Sessions) -> (ApiProxyOptions, Option<String>) {
    let session = sessions.one_of(reader);
    if let Some(name) = session.as_ref().filter(|name| sessions.is_wrapped(name)) {
        let at = reader.locate("session").unwrap_or(reader.at);
        let message = format!("session {name} has a wrap_ttl, and its token is for one reader");
        reader.scope.diagnostics.missing(at, &reader.key("session"), message, "name a session without one");
    }
    let rules = Rules { allow: rules(reader, "allow"), deny: rules(reader, "deny"), exempt: exempt(reader) };
    let options = ApiProxyOptions {
        token_mode: reader.choice("token", &TOKEN_MODES).unwrap_or(TokenMode::WhenMissing),
        rules,
        namespaces: namespaces(reader).unwrap_or_default(),
        logins: reader.flag("logins", true),
        request_header: reader.flag("require_request_header", true),
        connections: reader.number("connections", 1..=10_000).unwrap_or(DEFAULT_CONNECTIONS),
        response_timeout: reader.duration(
            "response_timeout",
            Duration::from_secs(30),
            MIN_TIMEOUT..=Duration::from_hours(1),
        ),
        cache: cache(reader, sessions, session.as_deref()),
        callers: Vec::new(),
    };
    (options, session)
}

/// `[listener.NAME.cache]`.
fn cache(reader: &mut Reader<'_>, sessions: &Sessions, session: Option<&str>) -> Option<CacheOptions> {
    let listener = reader.path.rsplit('.').next().unwrap_or_default().to_owned();
    let mut table = reader.table("cache")?;
    let day = Duration::from_hours(24);
    let limits = CacheLimits {
        bytes: table.number("size_mib", 1..=4096).unwrap_or(DEFAULT_SIZE_MIB) * 1024 * 1024,
        max_age: table.duration("max_age", Duration::from_secs(10), Duration::ZERO..=day),
        stale_if_error: table.duration("stale_if_error", Duration::ZERO, Duration::ZERO..=7 * day),
    };
    let parse_rules = |texts: &[&str]| texts.iter().filter_map(|text| Rule::parse(text).ok()).collect();
    // An empty list caches none of its kind.
    let mut paths = |name, default: &[&str]| match table.locate(name) {
        Some(_) if table.take_empty_list(name) => Vec::new(),
        Some(_) => rules(&mut table, name),
        None => parse_rules(default),
    };
    let values = paths("values", &DEFAULT_VALUES);
    let leases = paths("leases", &DEFAULT_LEASES);
    let is_persistent = table.flag("persist", false);
    let persist = session.filter(|_| is_persistent).and_then(|session| {
        let at = table.locate("persist").unwrap_or(table.at);
        sessions.persist(&table, (at, &table.key("persist")), session, &format!("{listener}.cache"))
    });
    table.finish();
    Some(CacheOptions { limits, values, leases, persist })
}

/// Default of `size_mib`.
const DEFAULT_SIZE_MIB: usize = 16;

/// Default of `cache.values`: the usual mounts of key-value stores.
const DEFAULT_VALUES: [&str; 2] = ["secret/*", "kv/*"];

/// Default of `cache.leases`: the usual paths of dynamic credentials.
const DEFAULT_LEASES: [&str; 2] = ["+/creds/*", "+/sts/*"];

pub(super) fn rules(reader: &mut Reader<'_>, name: &'static str) -> Vec<Rule> {
    let advice = "write \"[METHOD,...] PATH\" without /v1/, such as \"GET,LIST secret/data/web/*\"; + is one segment";
    let texts = reader.list(name).unwrap_or_default();
    let read = |text: super::references::Text| match Rule::parse(&text.value) {
        Ok(rule) => Some(rule),
        Err(_) if text.unknown => None,
        Err(why) => {
            reader.scope.diagnostics.error(text.at, &text.key, format!("{} {why}", text.display()), advice);
            None
        }
    };
    texts.into_iter().filter_map(read).collect()
}

pub(super) fn namespaces(reader: &mut Reader<'_>) -> Option<AllowedNamespaces> {
    let advice = "write its path, such as \"team-a\", \"team-a/*\" for those below it, \"root\", or \"*\" for all";
    let texts = reader.list("namespaces")?;
    let parse = |text: super::references::Text| match NamespacePattern::parse(&text.value) {
        Ok(pattern) => Some(pattern),
        Err(_) if text.unknown => None,
        Err(why) => {
            reader.scope.diagnostics.error(text.at, &text.key, format!("{} {why}", text.display()), advice);
            None
        }
    };
    Some(AllowedNamespaces::matching(texts.into_iter().filter_map(parse).collect()))
}

fn exempt(reader: &mut Reader<'_>) -> Vec<Exemption> {
    let texts = reader.list("exempt").unwrap_or_default();
    let read = |text: super::references::Text| {
        let exemption = Exemption::parse(&text.value);
        if exemption.is_none() && !text.unknown {
            let names: Vec<_> = Exemption::names().map(quote).collect();
            let message = format!("{} is not a known exemption", text.display());
            reader.scope.diagnostics.error(text.at, &text.key, message, format!("write {}", join_alternatives(&names)));
        }
        exemption
    };
    texts.into_iter().filter_map(read).collect()
}

/// Describes an API proxy for `keyward check`, one clause per entry.
pub(super) fn describe(options: &ApiProxyOptions, session: &str) -> Vec<String> {
    let mut does = vec![match options.token_mode {
        TokenMode::Always => format!("puts the token of session {session} on every request"),
        TokenMode::WhenMissing => format!("puts the token of session {session} on requests without a token"),
    }];
    let count = |rules: &[Rule], one: &str, many: &str| match rules.len() {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    if !options.rules.allow.is_empty() {
        does.push(format!("allows only requests that {}", count(&options.rules.allow, "rule allows", "rules allow")));
    }
    if !options.rules.deny.is_empty() {
        does.push(format!("denies requests that {}", count(&options.rules.deny, "rule denies", "rules deny")));
    }
    let exempted: Vec<_> = options.rules.exempt.iter().map(|exemption| exemption.name()).collect();
    let refused: Vec<_> = Exemption::names().filter(|name| !exempted.contains(name)).collect();
    if !refused.is_empty() {
        does.push(format!("refuses with that token: {}", refused.join(", ")));
    }
    if !exempted.is_empty() {
        does.push(format!("allows with that token, as exempt: {}", exempted.join(", ")));
    }
    if let Some(namespaces) = options.namespaces.describe() {
        does.push(format!("lets callers use only the namespaces {namespaces}"));
    }
    if !options.logins {
        does.push("refuses logins".to_owned());
    }
    if !options.request_header {
        does.push("accepts requests without X-Vault-Request".to_owned());
    }
    if let Some(cached) = &options.cache {
        let limits = cached.limits;
        let mut kinds = Vec::new();
        if !cached.values.is_empty() {
            let age = format_duration(limits.max_age);
            let stale = format_duration(limits.stale_if_error.max(limits.max_age));
            kinds.push(format!("values for {age}, while the server does not respond for {stale}"));
        }
        if !cached.leases.is_empty() {
            kinds.push("leases until they end".to_owned());
        }
        let kinds = if kinds.is_empty() { "no path is listed".to_owned() } else { kinds.join("; ") };
        does.push(format!("caches responses, at most {} MiB: {kinds}", limits.bytes / 1024 / 1024));
        if let Some(persist) = &cached.persist {
            does.push(format!("persists them across restarts, encrypted, in {}", persist.file.display()));
        }
    }
    does.push(format!("waits up to {} for a response of the server", format_duration(options.response_timeout)));
    does
}
