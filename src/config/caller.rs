//! `[caller.NAME]`: processes of this machine, as the kernel identifies them, and the rights that each is granted.

use std::collections::BTreeSet;

use keyward_agent::api_proxy::{AllowedNamespaces, CallerProxyRules, Rule, Rules};
use keyward_agent::callers::{
    CallerGrants, CallerMatch, CallerPolicy, CallerRoute, CallerRule, CallerTokenScope, CgroupPattern, ExecutableRule,
    NamePattern, PodPattern, UNIT_KINDS,
};
use keyward_http::server::Endpoint;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::hex::decode_hex;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::api_proxy;
use super::derived_token;
use super::diagnostic::{Diagnostics, Location};
use super::identity::Identities;
use super::reader::Reader;
use super::references::Text;
use super::sink::Sessions;
use super::values::{self, ValueError, invalid, join_alternatives};
use super::{Credential, Listener, Serves};

/// A caller as it was read, before it is joined to listeners and credentials.
#[derive(Debug)]
pub(super) struct ReadCaller {
    rule: CallerRule,
    /// `[caller.NAME.proxy]`.
    rules: Rules,
    namespaces: Option<AllowedNamespaces>,
    at: Location,
}

/// Reads all callers, in the order in which they stand in the files: the first that matches is the caller.
pub(super) fn read_all(
    tables: Vec<(String, Reader<'_>)>,
    sessions: &Sessions,
    identities: &Identities,
) -> Vec<ReadCaller> {
    let mut callers: Vec<_> =
        tables.into_iter().map(|(name, reader)| read(name, reader, sessions, identities)).collect();
    callers.sort_by_key(|caller| caller.at);
    callers
}

fn read(name: String, mut reader: Reader<'_>, all_sessions: &Sessions, all_identities: &Identities) -> ReadCaller {
    let at = reader.at;
    let matches = read_match(&mut reader);
    let routes = read_routes(&mut reader);
    let sessions = reader.list("sessions").map(|texts| {
        let texts = texts.into_iter().filter(|text| all_sessions.exists(&reader, text));
        texts.map(|text| text.value).collect::<BTreeSet<_>>()
    });
    let identities = all_identities.read_names(&mut reader).map(|names| names.into_iter().collect());
    let derived_token = derived_token::read_for_caller(&mut reader, &name);
    if let Some(options) = &derived_token {
        check_derived(&mut reader, sessions.as_ref(), options.scope, &matches, &routes, all_sessions);
    }
    let requests_per_second = reader.number("requests_per_second", 1..=1_000_000);
    let requests_per_second = requests_per_second.and_then(|number| u32::try_from(number).ok());
    let connections = reader.number("connections", 1..=10_000);
    let mut rules = Rules::default();
    let mut namespaces = None;
    if let Some(mut table) = reader.table("proxy") {
        rules.allow = api_proxy::rules(&mut table, "allow");
        rules.deny = api_proxy::rules(&mut table, "deny");
        namespaces = api_proxy::namespaces(&mut table);
        if !routes.contains(&CallerRoute::Proxy) {
            let message = (ErrorCode::ConflictingKeys, "limits requests that the caller may not send");
            table.scope.diagnostics.error(
                table.at,
                &table.path,
                message,
                "add \"proxy\" to its routes, or leave it out",
            );
        }
        table.finish();
    }
    reader.finish();
    let grants = CallerGrants { routes, sessions, identities, requests_per_second, connections, derived_token };
    ReadCaller { rule: CallerRule { name, matches, grants }, rules, namespaces, at }
}

/// Reports a `derived_token` that no server can derive or that no route uses.
fn check_derived(
    reader: &mut Reader<'_>,
    sessions: Option<&BTreeSet<String>>,
    scope: CallerTokenScope,
    matches: &CallerMatch,
    routes: &BTreeSet<CallerRoute>,
    all_sessions: &Sessions,
) {
    for session in sessions.cloned().unwrap_or_else(|| all_sessions.plain().into_iter().collect()) {
        all_sessions.reject_derived(reader, "derived_token", &session);
    }
    let at = reader.locate("derived_token").unwrap_or(reader.at);
    let key = reader.key("derived_token");
    let uses =
        |route: &CallerRoute| matches!(route, CallerRoute::Token | CallerRoute::Proxy | CallerRoute::Credentials);
    if !routes.is_empty() && !routes.iter().any(uses) {
        let message = (ErrorCode::UnusedSection, "no route of this caller serves or uses a token");
        reader.scope.diagnostics.warning(
            at,
            &key,
            message,
            "add \"token\" or \"proxy\" to its routes, or leave it out",
        );
    }
    if scope == CallerTokenScope::Process && matches.is_everyone() {
        let message =
            (ErrorCode::ConflictingKeys, "everyone = true with scope = process: 64 processes use up all tokens");
        reader.scope.diagnostics.warning(at, &key, message, "match fewer processes, or write scope = \"caller\"");
    }
}

fn read_routes(reader: &mut Reader<'_>) -> BTreeSet<CallerRoute> {
    if reader.locate("routes").is_none() {
        let names: Vec<_> = CallerRoute::NAMES.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        reader.missing("routes", &format!("list what it may use: {}", join_alternatives(&names)));
    }
    let texts = reader.list("routes").unwrap_or_default();
    let route = |text: &Text| reader.parse(text, |text| values::choice(text, &CallerRoute::NAMES));
    texts.iter().filter_map(route).collect()
}

fn read_match(reader: &mut Reader<'_>) -> CallerMatch {
    let matches = CallerMatch {
        uids: reader.users("uid"),
        gids: reader.groups("gid"),
        groups: reader.groups("group"),
        units: read_each(reader, "unit", unit),
        cgroups: read_each(reader, "cgroup", |text| {
            CgroupPattern::parse(text)
                .or_else(|message| invalid(message, "write its path, such as \"/system.slice/web.service\""))
        }),
        pods: read_each(reader, "pod", |text| {
            PodPattern::parse(text)
                .or_else(|message| invalid(message, "write its metadata.uid, or \"*\" for every pod"))
        }),
        executables: executables(reader),
    };
    let everyone = reader.flag("everyone", false);
    if everyone && !matches.is_everyone() {
        reader.conflict("everyone", "its other criteria", "every process matches, or those that meet them");
    }
    let is_given = CRITERIA.into_iter().any(|key| reader.locate(key).is_some());
    // A criterion that could not be read has its own error.
    if !everyone && !is_given {
        let advice = "write uid, gid, group, unit, cgroup, pod or executable, or everyone = true for every process";
        reader.scope.diagnostics.missing(
            reader.at,
            &reader.path.clone(),
            "matches no process: it has no criterion",
            advice,
        );
    }
    if let Some((unit, cgroup)) = matches.contradiction() {
        let at = reader.locate("cgroup").unwrap_or(reader.at);
        let message = (ErrorCode::UnreachableRule, format!("no process of unit {unit} is in the cgroup {cgroup}"));
        reader.error(at, "cgroup", message, "keep one of the two, or correct it");
    }
    matches
}

/// Keys that say which processes match.
const CRITERIA: [&str; 7] = ["uid", "gid", "group", "unit", "cgroup", "pod", "executable"];

/// Reads one value or a list of them.
fn read_each<T>(reader: &mut Reader<'_>, name: &'static str, parse: impl Fn(&str) -> Result<T, ValueError>) -> Vec<T> {
    let texts = reader.one_or_more(name);
    texts.iter().filter_map(|text| reader.parse(text, &parse)).collect()
}

fn unit(text: &str) -> Result<NamePattern, ValueError> {
    match text.rsplit_once('.') {
        Some((stem, kind)) if !stem.is_empty() && !text.contains('/') && UNIT_KINDS.contains(&kind) => {
            Ok(NamePattern::new(text))
        }
        _ => invalid(
            "is not a unit with processes of its own",
            "write its whole name, such as \"nginx.service\" or \"session-*.scope\"",
        ),
    }
}

/// Reads `executable` and `sha256`, the digest of one executable.
fn executables(reader: &mut Reader<'_>) -> Vec<ExecutableRule> {
    let digest = reader.parse_text("sha256", sha256);
    let texts = reader.one_or_more("executable");
    if reader.locate("sha256").is_some() && texts.len() != 1 {
        let at = reader.locate("sha256").unwrap_or(reader.at);
        let message = "is the digest of one file, and executable does not name one";
        reader.error(at, "sha256", message, "name one executable, or leave the digest out");
    }
    let mut executables = Vec::new();
    for text in texts {
        let Some(path) = reader.parse(&text, values::path) else { continue };
        if !text.unknown && !path.is_file() {
            let message = format!("there is no file {}, so no process can run it", path.display());
            let advice = "install it; the agent must see the file under this path";
            reader.scope.diagnostics.optional_on_host(text.at, &text.key, message, advice);
        }
        executables.push(ExecutableRule { path, sha256: digest });
    }
    executables
}

fn sha256(text: &str) -> Result<[u8; 32], ValueError> {
    let mut digest = [0; 32];
    let is_digest = decode_hex(text.as_bytes(), &mut digest);
    if is_digest { Ok(digest) } else { invalid("is not a SHA-256 digest", "write the 64 digits that sha256sum prints") }
}

/// Joins callers to the listeners that serve tokens; returns them as a policy, `None` without any.
pub(super) fn attach(
    callers: Vec<ReadCaller>,
    listeners: &mut [Listener],
    credentials: &[Credential],
    diagnostics: &Diagnostics,
) -> Option<CallerPolicy> {
    check(&callers, listeners, diagnostics);
    for listener in listeners.iter_mut() {
        if let Serves::ApiProxy(options) = &mut listener.serves {
            let session = listener.sessions.first().map(String::as_str);
            options.callers = callers.iter().map(|caller| proxy_rules(caller, session?, credentials)).collect();
        }
    }
    let policy = CallerPolicy::new(callers.into_iter().map(|caller| caller.rule).collect())?;
    for listener in listeners.iter_mut().filter(|listener| has_callers(listener)) {
        listener.callers = Some(policy.clone());
    }
    Some(policy)
}

/// Returns true for listeners whose requests `[caller.NAME]` decides; credentials are requested by systemd only.
const fn has_callers(listener: &Listener) -> bool {
    matches!(listener.serves, Serves::LocalApi | Serves::ApiProxy(_) | Serves::Identity(_))
}

/// Returns true if a listener serves one of the routes.
fn serves_any(listener: &Listener, routes: &BTreeSet<CallerRoute>) -> bool {
    routes.iter().any(|route| match listener.serves {
        Serves::ApiProxy(_) => is_proxy_route(*route),
        Serves::Identity(_) => *route == CallerRoute::Identity,
        _ => !is_proxy_route(*route) && *route != CallerRoute::Identity,
    })
}

/// Returns true for routes of an API proxy; others are those of the local API, and that of an identity listener.
const fn is_proxy_route(route: CallerRoute) -> bool {
    matches!(route, CallerRoute::Proxy | CallerRoute::Credentials)
}

/// Returns the limits of a caller's requests to the server of a session; `None` if it may send none.
fn proxy_rules(caller: &ReadCaller, session: &str, credentials: &[Credential]) -> Option<CallerProxyRules> {
    let grants = &caller.rule.grants;
    let mut rules = caller.rules.clone();
    if !grants.permits_session(session) {
        return None;
    }
    let all = grants.routes.contains(&CallerRoute::Proxy) && rules.allow.is_empty();
    if grants.routes.contains(&CallerRoute::Credentials) && !all {
        rules
            .allow
            .extend(credentials.iter().filter(|credential| credential.session == session).filter_map(credential_rule));
    }
    // An empty list would allow everything.
    let any = all || !rules.allow.is_empty();
    any.then(|| CallerProxyRules { rules, namespaces: caller.namespaces.clone() })
}

/// Returns the rule for the one secret that the helpers of a credential read.
fn credential_rule(credential: &Credential) -> Option<Rule> {
    const PATTERN: AsciiSet = CONTROLS.add(b' ').add(b'*').add(b'+');
    Rule::parse(&format!("GET {}", utf8_percent_encode(&credential.path, &PATTERN))).ok()
}

/// Reports rules that an earlier one shadows, that no listener can tell, and rights that no listener serves.
fn check(callers: &[ReadCaller], listeners: &[Listener], diagnostics: &Diagnostics) {
    let serving: Vec<_> = listeners.iter().filter(|listener| has_callers(listener)).collect();
    let proxies = serving.iter().any(|listener| matches!(listener.serves, Serves::ApiProxy(_)));
    for (index, ReadCaller { rule, at, .. }) in callers.iter().enumerate() {
        let key = format!("caller.{}", rule.name);
        let warn = |code, message: String, advice: &str| diagnostics.warning(*at, &key, (code, message), advice);
        let mut serving_listeners =
            serving.iter().filter(|listener| serves_any(listener, &rule.grants.routes)).peekable();
        let only_tcp = serving_listeners.peek().is_some()
            && serving_listeners.all(|listener| matches!(listener.endpoint, Endpoint::Tcp(_)));
        let earlier = callers.iter().take(index).find(|earlier| earlier.rule.matches.covers(&rule.matches));
        if let Some(earlier) = earlier {
            let message = format!(
                "never matches: caller {}, at {}, matches first",
                earlier.rule.name,
                diagnostics.name(earlier.at)
            );
            warn(ErrorCode::UnreachableRule, message, "put the narrower rule first, or leave this one out");
        }
        if let Some(options) = &rule.grants.derived_token {
            check_listeners_of_derived(rule, options.scope, &serving, only_tcp, warn);
        }
        let matches = &rule.matches;
        let needs_unix_socket =
            !(matches.gids.is_empty() && matches.groups.is_empty() && matches.executables.is_empty());
        if only_tcp && needs_unix_socket {
            let message =
                "never matches: over TCP the kernel reports only the user and the cgroup of a caller".to_owned();
            warn(ErrorCode::UnreachableRule, message, "serve a unix socket, or match by uid, unit, cgroup or pod");
        }
        if !proxies && rule.grants.routes.iter().copied().any(is_proxy_route) {
            let message = "has a route to an API proxy, and there is none".to_owned();
            warn(
                ErrorCode::UnusedSection,
                message,
                "add a [listener.NAME] with kind = \"api_proxy\", or leave the route out",
            );
        }
        let has_identity = serving.iter().any(|listener| matches!(listener.serves, Serves::Identity(_)));
        if !has_identity && rule.grants.routes.contains(&CallerRoute::Identity) {
            let message = "has the route to an identity listener, and there is none".to_owned();
            warn(
                ErrorCode::UnusedSection,
                message,
                "add a [listener.NAME] with kind = \"identity\", or leave the route out",
            );
        }
        if serving.is_empty() {
            warn(ErrorCode::UnusedSection, "no listener serves callers".to_owned(), "add a [listener.NAME]");
        }
    }
}

/// Reports listeners whose own derived token the caller's replaces, and a scope that no listener can tell.
fn check_listeners_of_derived(
    rule: &CallerRule,
    scope: CallerTokenScope,
    serving: &[&Listener],
    only_tcp: bool,
    warn: impl Fn(ErrorCode, String, &str),
) {
    let both: Vec<_> = serving
        .iter()
        .filter(|listener| listener.derived_token.is_some())
        .map(|listener| listener.name.as_str())
        .collect();
    if !both.is_empty() {
        let message = format!(
            "has a derived_token, as the listener {} has: the caller's own is used there for {}",
            both.join(", "),
            rule.name
        );
        warn(ErrorCode::ConflictingKeys, message, "leave one of the two out, unless other callers need the listener's");
    }
    if scope == CallerTokenScope::Process && only_tcp {
        let message = "gets no token: the kernel does not report the process behind a TCP connection".to_owned();
        warn(ErrorCode::UnreachableRule, message, "serve a unix socket, or write scope = \"caller\"");
    }
}

/// Describes the token that a caller gets from a configuration with these listeners, in words that follow `it gets`.
pub fn describe_token(listeners: &[Listener], grants: &CallerGrants) -> String {
    if let Some(options) = &grants.derived_token {
        return derived_token::describe_for_caller(options);
    }
    let derives = |listener: &&Listener| has_callers(listener) && listener.derived_token.is_some();
    let listeners: Vec<_> = listeners.iter().filter(derives).map(|listener| listener.name.as_str()).collect();
    match listeners.as_slice() {
        [] => "the session's token".to_owned(),
        listeners => format!("the session's token, and on the listener {} its derived token", listeners.join(", ")),
    }
}

/// Describes a caller for `keyward check`, one clause per entry.
pub(super) fn describe(rule: &CallerRule) -> Vec<String> {
    let mut does = vec![format!("is each process that matches {}", rule.matches)];
    does.push(format!("may use {}", rule.grants.route_names().join(", ")));
    does.extend(rule.grants.sessions.as_ref().map(|sessions| {
        format!("may use only the sessions {}", sessions.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }));
    does.extend(rule.grants.identities.as_ref().map(|identities| {
        let identities = identities.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("may use only the identities {identities}")
    }));
    does.extend(
        rule.grants
            .derived_token
            .as_ref()
            .map(|options| format!("gets {}", derived_token::describe_for_caller(options))),
    );
    does.extend(rule.grants.requests_per_second.map(|rate| format!("may send {rate} requests a second")));
    does.extend(rule.grants.connections.map(|max| format!("may open {max} connections")));
    does
}
