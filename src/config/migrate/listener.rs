//! `listener "tcp" {}`, `listener "unix" {}`, `api_proxy {}`, `cache {}` -> `[listener.NAME]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::MAIN;
use super::input::{Block, InputValue, NO_FLAG};
use super::output::{Document, Outcome, Section};
use super::{sink, tls};

/// `use_auto_auth_token`: requests that get the session's token.
enum TokenUse {
    /// Only the caller's own token.
    Never,
    WhenMissing,
    Always,
}

pub(super) fn read(top: &mut Block<'_>, document: &mut Document) {
    let (token_use, cache, prepends_namespace) = api_proxy(top);
    let namespace = document.value(&format!("session.{MAIN}"), "namespace").map(str::to_owned);
    let namespace = namespace.filter(|_| !prepends_namespace);
    let mut kinds = [0; 2];
    for (kind, mut listener) in top.labelled_blocks("listener") {
        let (count, tcp) = match kind.as_str() {
            "tcp" | "" => (&mut kinds[0], true),
            "unix" => (&mut kinds[1], false),
            other => {
                listener.drop_all(
                    Outcome::Action,
                    &format!("{other:?} is not supported: write a [listener.NAME] for tcp or unix"),
                );
                continue;
            }
        };
        *count += 1;
        let name = format!("listener.{}-{count}", if tcp { "tcp" } else { "unix" });
        let metrics = listener.take("role").is_some_and(|role| {
            let metrics = role.text() == Some("metrics_only");
            role.record_kept(if metrics { "kind = \"health\", with /metrics" } else { "" });
            metrics
        });
        listener.record(Outcome::Kept, format!("[{name}]"));
        let section = document.section(&name);
        section.begin(listener.origin()).text("kind", if metrics { "health" } else { "api_proxy" });
        if tcp {
            address(&mut listener, section, metrics);
            if !metrics {
                let detail = "Every user of this machine may call, as before. key_file = \"/PATH\" restricts it to callers with a key.";
                section.comment(detail).flag("any_local_user", true);
                let detail = "any_local_user = true: every user of this machine may call, as before; a unix socket or key_file is safer";
                listener.record(Outcome::Changed, detail);
            }
        } else {
            socket(&mut listener, section);
        }
        if !metrics {
            token(&listener, section, &token_use);
            header(&mut listener, section);
            if let Some(namespace) = &namespace {
                report_namespace(&listener, namespace);
            }
            if let Some(cache) = &cache {
                cache.write(document.section(&format!("{name}.cache")));
            }
        }
        if metrics {
            listener.drop_keys(&["require_request_header"], "/metrics and the probes need no header");
        }
        migrate_other_keys(&mut listener, tcp, metrics, document.section(&name));
        listener.finish();
    }
}

/// Keys of `cache {}` that Vault Proxy has and Vault Agent has not.
const PROXY_CACHE_KEYS: [&str; 4] = [
    "cache_static_secrets",
    "disable_caching_dynamic_secrets",
    "static_secret_token_capability_refresh_interval",
    "static_secret_token_capability_refresh_behavior",
];

/// Reads `api_proxy {}` and `cache {}`: the token on requests, the cache, and true if the session's namespace is prepended.
fn api_proxy(top: &mut Block<'_>) -> (TokenUse, Option<Cache>, bool) {
    let mut token_use = TokenUse::Never;
    let mut cache_options = None;
    let mut prepends_namespace = false;
    // Vault Agent copies the cache's key to an `api_proxy {}` of its own making, and only if there is none.
    let has_proxy = top.has("api_proxy");
    for name in ["cache", "api_proxy"] {
        let Some(mut block) = top.block(name) else { continue };
        if let Some(input) = block.take("use_auto_auth_token") {
            if name == "cache" && has_proxy {
                input.not_supported("has no effect beside api_proxy {}, whose own use_auto_auth_token counts");
            } else if name == "cache" && PROXY_CACHE_KEYS.iter().any(|key| block.has(key)) {
                input.not_supported("Vault Proxy, which this cache is of, has this key in api_proxy {} alone");
            } else {
                token_use = read_token_use(&input).unwrap_or(token_use);
            }
        }
        let why = "the proxy adds no consistency: send X-Vault-Index yourself";
        block.drop_keys(&["enforce_consistency", "when_inconsistent"], why);
        if let Some(input) = block.take("prepend_configured_namespace") {
            prepends_namespace = input.flag() == Some(true);
            match input.flag() {
                Some(true) => input.record_changed(
                    "a request that names no namespace goes to the session's; one that names its own is not prefixed",
                ),
                Some(false) => input.record_kept("see the listeners"),
                None => input.not_supported(NO_FLAG),
            }
        }
        if name == "cache" {
            cache_options = cache(&mut block);
        }
        block.finish();
    }
    (token_use, cache_options, prepends_namespace)
}

/// Reads `use_auto_auth_token`; `None` for a value that it cannot have.
fn read_token_use(input: &InputValue<'_>) -> Option<TokenUse> {
    let (token_use, detail) = match (input.flag(), input.text()) {
        (_, Some(text)) if text.eq_ignore_ascii_case("force") => {
            (TokenUse::Always, "token = \"always\" on each listener")
        }
        (Some(true), _) => (TokenUse::WhenMissing, "token = \"when_missing\" on each listener"),
        (Some(false), _) => (TokenUse::Never, "see the listeners"),
        (None, _) => {
            input.not_supported(format!("{NO_FLAG}, nor \"force\""));
            return None;
        }
    };
    input.record_kept(detail);
    Some(token_use)
}

/// `[listener.NAME.cache]` of each listener.
struct Cache {
    /// Age of values of a key-value store.
    max_age: &'static str,
    /// False if responses with a lease are not cached.
    has_leases: bool,
}

impl Cache {
    fn write(&self, section: &mut Section) {
        section.text("max_age", self.max_age);
        if !self.has_leases {
            section.texts("leases", &[]);
        }
    }
}

/// Reads `cache {}`; `None` if it caches nothing.
fn cache(block: &mut Block<'_>) -> Option<Cache> {
    let mut max_age = "0s";
    if let Some(values) = block.take("cache_static_secrets") {
        match values.flag() {
            Some(true) => {
                max_age = "1m";
                values.record_changed(
                    "max_age = \"1m\": values are read again after that, as there are no change events",
                );
            }
            Some(false) => values.record_kept("max_age = \"0s\": values are read at each request"),
            None => values.not_supported(NO_FLAG),
        }
    }
    let mut has_leases = true;
    if let Some(off) = block.take("disable_caching_dynamic_secrets") {
        match off.flag() {
            Some(true) => {
                has_leases = false;
                off.record_kept("leases = []: responses with a lease are not cached");
            }
            Some(false) => off.record_kept("leases are cached"),
            None => off.not_supported(NO_FLAG),
        }
    }
    let is_used = has_leases || max_age != "0s";
    let detail = match (has_leases, is_used) {
        (true, _) => "[listener.NAME.cache] of each listener: leases are shared and renewed",
        (false, true) => "[listener.NAME.cache] of each listener: only values",
        (false, false) => "no [listener.NAME.cache]: neither leases nor values are cached",
    };
    block.record(Outcome::Kept, detail);
    if let Some(mut persist) = block.block("persist") {
        if is_used {
            let detail = "set seal_key_file on the session, persist = true in the listener's cache, and for templates persist = true in [templates]";
            persist.record(Outcome::Action, detail);
        } else {
            persist.record(Outcome::NotSupported, "nothing is cached");
        }
        persist.drop_keys(
            &["type", "path", "keep_after_import", "exit_on_err", "service_account_token_file"],
            "dropped with its block",
        );
        for kind in persist.blocks("kubernetes") {
            kind.drop_all(Outcome::NotSupported, "dropped with its block");
        }
        persist.finish();
    }
    let tokens = ["static_secret_token_capability_refresh_interval", "static_secret_token_capability_refresh_behavior"];
    block.drop_keys(&tokens, "values read with a caller's token are cached for that token only, for max_age");
    is_used.then_some(Cache { max_age, has_leases })
}

fn address(listener: &mut Block<'_>, section: &mut Section, metrics: bool) {
    let Some(input) = listener.take("address") else {
        section.text("address", "tcp://127.0.0.1:8200");
        listener.record(Outcome::Changed, "no address: Vault Agent's default, 127.0.0.1:8200, is written");
        return;
    };
    let Some(text) = input.required_text() else { return };
    let text = text.replace("localhost:", "127.0.0.1:");
    // An address without a host is on all interfaces.
    let full_address = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text };
    let Ok(parsed) = full_address.parse::<SocketAddr>() else {
        return input.action("not an IP address and port: write address = \"tcp://127.0.0.1:PORT\"");
    };
    if parsed.ip().is_loopback() || metrics {
        section.at(input.origin()).text("address", &format!("tcp://{parsed}"));
        input.record_kept(format!("address = \"tcp://{parsed}\""));
    } else {
        let loopback = match parsed.ip() {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, parsed.port())),
            IpAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, parsed.port())),
        };
        section.at(input.origin()).text("address", &format!("tcp://{loopback}"));
        input.action(format!(
            "{} is open to other machines, to which keyward serves no tokens: written as tcp://{loopback}; run keyward on each machine \
             that called it",
            parsed.ip()
        ));
    }
}

fn socket(listener: &mut Block<'_>, section: &mut Section) {
    if let Some(input) = listener.take("address")
        && let Some(text) = input.required_text()
    {
        section.at(input.origin()).text("address", &format!("unix://{text}"));
        input.record_kept(format!("address = \"unix://{text}\""));
    }
    let mut all = ["socket_mode", "socket_user", "socket_group"].map(|key| {
        let input = listener.take(key)?;
        let empty = matches!(input.value, keyward_hcl::Value::Text(text) if text.is_empty());
        if empty {
            input.record_kept("empty: no effect");
        }
        (!empty).then_some(input)
    });
    if all.iter().any(Option::is_none) {
        // Vault Agent's socket is then 0755 less the umask: only its owner may connect.
        section.text("mode", "0600");
        let detail = "has no effect in Vault Agent unless mode, user and group are all set: mode = \"0600\" is written, so that only the agent's user may connect";
        for input in all.iter_mut().filter_map(Option::take) {
            input.record_changed(detail);
        }
        listener.record(Outcome::Changed, "mode = \"0600\", as before: set group and mode to let others connect");
    }
    for (input, key) in all.iter().zip(["mode", "owner", "group"]) {
        let Some(input) = input else { continue };
        match (key, input.value) {
            ("mode", _) => sink::mode(input, section),
            (_, keyward_hcl::Value::Text(text) | keyward_hcl::Value::Number(text)) => {
                section.at(input.origin()).text(key, text);
                input.record_kept(key);
            }
            _ => input.not_supported("not a name or a number"),
        }
    }
}

fn token(listener: &Block<'_>, section: &mut Section, token_use: &TokenUse) {
    match token_use {
        TokenUse::Always => drop(section.text("token", "always")),
        TokenUse::WhenMissing => drop(section.text("token", "when_missing")),
        TokenUse::Never => {
            section.text("token", "when_missing").disable();
            section.comment(
                "Callers send their own token to Vault Agent. keyward uses the session's token if they send none.",
            );
            let detail = "without use_auto_auth_token, callers send their own token to Vault Agent; keyward uses the session's token if they \
                         send none, so the listener is written commented out: remove the # if you want that, or the section";
            listener.record(Outcome::Action, detail);
        }
    }
    let detail = "requests that could reveal, revoke or outlive the session's token are refused unless `exempt` lists them: \
                 auth/token/create, revoke-self, renew-self, sys/seal, sys/raw, sys/rotate, sys/wrapping";
    listener.record(Outcome::Changed, detail);
}

/// Reports the namespace of requests without one. The other proxies send the caller's headers alone, without their own
/// namespace (`cache/api_proxy.go`).
fn report_namespace(listener: &Block<'_>, namespace: &str) {
    let detail = format!(
        "a request without X-Vault-Namespace went to the root namespace, and goes to {namespace} here: take it out of paths, or send \
         the header; `namespaces` lists those outside of it that callers may name"
    );
    listener.record(Outcome::Changed, detail);
}

fn header(listener: &mut Block<'_>, section: &mut Section) {
    let input = listener.take("require_request_header");
    let flag = input.as_ref().map(InputValue::flag);
    // For any other value, the stricter setting applies.
    section.flag("require_request_header", flag.is_some_and(|flag| flag.unwrap_or(true)));
    match &input {
        Some(input) if input.flag().is_none() => input.not_supported(format!("{NO_FLAG}: written as true")),
        Some(input) => input.record_kept("require_request_header"),
        None => {
            listener.record(
                Outcome::Kept,
                "require_request_header = false is written, since the default of keyward is true",
            );
        }
    }
}

fn migrate_other_keys(listener: &mut Block<'_>, tcp: bool, metrics: bool, section: &mut Section) {
    tls::read(listener, tcp, metrics, section);
    for api in ["agent_api", "proxy_api"] {
        if let Some(mut block) = listener.block(api) {
            block.drop_keys(&["enable_quit"], "stop it with SIGTERM, as service managers do");
            block.finish();
        }
    }
    let ignored_keys = [
        "http_read_header_timeout",
        "http_read_timeout",
        "http_write_timeout",
        "http_idle_timeout",
        "max_request_size",
        "max_request_duration",
        "proxy_protocol_behavior",
        "proxy_protocol_authorized_addrs",
        "x_forwarded_for_authorized_addrs",
        "custom_response_headers",
        "purpose",
    ];
    listener.drop_keys(&ignored_keys, "has no effect in Vault Agent either");
}
