//! `auto_auth { method {} }` -> `[session.main]` and its method.

use std::time::Duration;

use super::cloud_method;
use super::input::{Block, InputValue, NO_FLAG, format_span};
use super::output::{Document, Outcome, Section};
use super::{MAIN, TOKEN_FILE};

/// Reads the method, and leaves the sinks.
pub(super) fn read<'a>(top: &mut Block<'a>, document: &mut Document) -> Option<MigratedMethod<'a>> {
    let mut auto_auth = top.block("auto_auth")?;
    let mut methods = auto_auth.labelled_blocks("method");
    let key = "enable_reauth_on_new_credentials";
    let repeated = [auto_auth.take(key), methods.last_mut().and_then(|(_, method)| method.take(key))];
    for key in repeated.into_iter().flatten() {
        key.record_changed("each login reads its files again");
    }
    let mut wrapping = Wrapping::None;
    let last = methods.pop();
    for (_, other) in methods {
        other.drop_all(Outcome::NotSupported, "a session has one method: write a second [session.NAME] for it");
    }
    if let Some((kind, mut method)) = last {
        wrapping = session(&kind, &mut method, document);
        method.finish();
    }
    Some(MigratedMethod { wrapping, sinks: auto_auth })
}

/// Rest of `auto_auth` once the method is read.
pub(super) struct MigratedMethod<'a> {
    pub(super) wrapping: Wrapping,
    pub(super) sinks: Block<'a>,
}

/// Wrapping of the session's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapping {
    None,
    Session,
    /// The session cannot wrap its token: sinks that held a wrapped one are disabled.
    CannotWrap,
}

fn session(kind: &str, method: &mut Block<'_>, document: &mut Document) -> Wrapping {
    // A token file has no login, so `mount` and `wrap_ttl` are not allowed with it. It also stands in for methods
    // that keyward does not have.
    let has_login = supported(kind).is_some_and(|name| name != "token_file");
    let section = document.section(&format!("session.{MAIN}"));
    section.begin(method.origin());
    if let Some(mount) = method.take("mount_path")
        && let Some(text) = mount.required_text()
    {
        let text = text.trim_matches('/').trim_start_matches("auth/");
        if has_login {
            section.at(mount.origin()).text("mount", text);
            mount.record_kept("session.main.mount");
        } else {
            section.disabled_text("mount", text);
            mount.record_changed("session.main.mount, written commented out: a token file has no login");
        }
    }
    if let Some(namespace) = method.take("namespace")
        && let Some(text) = namespace.required_text()
    {
        // The server's own namespace was read before, and comes before this one in Vault Agent too.
        if section.has("namespace") {
            namespace.not_supported("vault.namespace takes precedence");
        } else {
            section.at(namespace.origin()).text("namespace", text);
            namespace.record_kept("session.main.namespace");
        }
    }
    let wrapping = wrap_ttl(method, section, has_login);
    retries(method);
    let config = method.block("config");
    let Some(name) = supported(kind) else {
        method.record(
            Outcome::Action,
            format!(
                "{kind:?} is not supported: write a token to {TOKEN_FILE}, mode 0600, or replace [session.{MAIN}.token_file] \
                 by cloud (Azure), aws, gcp, jwt, kubernetes, approle or cert"
            ),
        );
        let section = document.section(&format!("session.{MAIN}.token_file"));
        section.begin(method.origin()).text("file", TOKEN_FILE);
        if let Some(config) = config {
            config.drop_all(Outcome::NotSupported, "dropped with its method");
        }
        return wrapping;
    };
    let name = format!("session.{MAIN}.{name}");
    method.record(Outcome::Kept, format!("[{name}]"));
    document.section(&name).begin(method.origin());
    if let Some(config) = config {
        method_config(kind, config, &name, document);
    }
    wrapping
}

fn wrap_ttl(method: &mut Block<'_>, section: &mut Section, has_login: bool) -> Wrapping {
    let Some(wrap) = method.take("wrap_ttl") else { return Wrapping::None };
    match wrap.span() {
        Some(Duration::ZERO) => {
            wrap.record_kept("zero: not wrapped");
            Wrapping::None
        }
        Some(span) if has_login => {
            section.at(wrap.origin()).text("wrap_ttl", &format_span(span));
            wrap.record_changed("session.main.wrap_ttl; a new one is made before it expires");
            Wrapping::Session
        }
        Some(span) => {
            section.disabled_text("wrap_ttl", &format_span(span));
            wrap.action("session.main.wrap_ttl, written commented out: a token file cannot be wrapped");
            Wrapping::CannotWrap
        }
        None => {
            wrap.action("not a duration: the sinks are written commented out, as their token would not be wrapped");
            Wrapping::CannotWrap
        }
    }
}

fn retries(method: &mut Block<'_>) {
    for key in ["min_backoff", "max_backoff"] {
        if let Some(input) = method.take(key) {
            input.record_changed(
                "not configurable: three quick tries about 1, 5 and 15 s apart, then exponential backoff up to 5 min with full jitter; a \
                 change of a file that the login reads ends the wait",
            );
        }
    }
    if let Some(exit) = method.take("exit_on_err") {
        match exit.flag() {
            Some(false) => exit.record_kept("logins are retried"),
            _ => {
                exit.not_supported("logins are retried; `keyward login` and `keyward wait --timeout` report a failure");
            }
        }
    }
}

/// Writes the section `name` of the method from its `config {}`.
fn method_config(kind: &str, mut config: Block<'_>, name: &str, document: &mut Document) {
    let section = document.section(name);
    match kind {
        "azure" => azure(&mut config, section),
        "aws" => cloud_method::aws(&mut config, section),
        "gcp" => cloud_method::gcp(&mut config, section),
        "jwt" => {
            copy_keys(&mut config, section, &[("role", "role"), ("path", "file")]);
            migrate_removal(&mut config, section, "remove_jwt_after_reading", "remove_after_reading");
            config.drop_keys(&["remove_jwt_follows_symlinks"], "the path itself is removed, even if it is a symlink");
            config.drop_keys(&["jwt_read_period"], "each login reads the file again");
        }
        "kubernetes" => copy_keys(&mut config, section, &[("role", "role"), ("token_path", "file")]),
        "approle" => {
            let keys = [
                ("secret_id_file_path", "secret_id_file"),
                ("role_id_file_path", "role_id_file"),
                ("secret_id_response_wrapping_path", "secret_id_wrapping_path"),
            ];
            copy_keys(&mut config, section, &keys[..1]);
            let removal = "remove_secret_id_file_after_reading";
            if section.has("secret_id_file") {
                migrate_removal(&mut config, section, removal, "remove_secret_id_after_reading");
            } else {
                let why = "has no effect without secret_id_file_path";
                config.drop_keys(&[removal, "secret_id_response_wrapping_path"], why);
            }
            copy_keys(&mut config, section, &keys[1..]);
        }
        "token_file" => copy_keys(&mut config, section, &[("token_file_path", "file")]),
        _ => cert(&mut config, name, document),
    }
    config.finish();
}

/// Returns the name of the method in `[session.NAME.METHOD]`.
fn supported(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "azure" => "cloud",
        "aws" => "aws",
        "gcp" => "gcp",
        "jwt" => "jwt",
        "kubernetes" => "kubernetes",
        "approle" => "approle",
        "cert" => "cert",
        "token_file" => "token_file",
        _ => return None,
    })
}

/// Reads the method `cert`. Vault Agent has a client of its own for the login, which alone uses these files
/// (command/agentproxyshared/auth/cert/cert.go); keyward has one for the session.
fn cert(config: &mut Block<'_>, name: &str, document: &mut Document) {
    let section = document.section(name);
    copy_keys(config, section, &[("name", "role")]);
    for key in ["client_cert", "client_key"] {
        if let Some(input) = config.take(key)
            && let Some(text) = input.required_text()
        {
            section.at(input.origin()).text(key, text);
            input.record_changed(format!("{key} of [{name}]: for each connection of the session, not only the login"));
        }
    }
    if let Some(input) = config.take("ca_cert")
        && let Some(text) = input.required_text()
    {
        authority(&input, text, document.section(&format!("server.{MAIN}")));
    }
    for key in ["reload", "reload_period"] {
        if let Some(reload) = config.take(key) {
            reload.record_changed("connections use a renewed certificate without it");
        }
    }
}

/// Writes the authority of the login to the server's section, unless that has another one.
fn authority(input: &InputValue<'_>, file: &str, server: &mut Section) {
    if server.has_text("ca_file", file) {
        input.record_kept("ca_file of [server.main], the same file");
    } else if server.has("ca_file") || server.has("ca_dir") {
        input.action(
            "not written: all connections use the authority of [server.main]; if the login needs another one, write both to its ca_file",
        );
    } else {
        server.at(input.origin()).text("ca_file", file);
        input.record_changed("ca_file of [server.main]: for each connection, not only the login");
    }
}

fn azure(config: &mut Block<'_>, section: &mut Section) {
    let keys = ["role", "resource", "object_id", "client_id", "scope"];
    copy_keys(config, section, &keys.map(|key| (key, key)));
    if let Some(input) = config.take("authenticate_from_environment") {
        match input.flag() {
            Some(flag) => {
                section.flag("authenticate_from_environment", flag);
                input.record_kept("authenticate_from_environment; the metadata service is not used then");
            }
            None => input.not_supported(NO_FLAG),
        }
    }
}

/// Keys whose value is a string with the same meaning.
fn copy_keys(config: &mut Block<'_>, section: &mut Section, keys: &[(&'static str, &'static str)]) {
    for (source_key, key) in keys {
        if let Some(input) = config.take(source_key) {
            put(&input, section, key);
        }
    }
}

fn put(input: &InputValue<'_>, section: &mut Section, key: &'static str) {
    // Vault Agent treats an empty string as none.
    match input.text() {
        Some(text) => {
            section.at(input.origin()).text(key, text);
            input.record_kept(key);
        }
        None => drop(input.required_text()),
    }
}

/// A file that the other agent removes by default, and keyward only if configured.
fn migrate_removal(config: &mut Block<'_>, section: &mut Section, source_key: &str, key: &'static str) {
    let input = config.take(source_key);
    let remove = input.as_ref().and_then(InputValue::flag).unwrap_or(true);
    if remove {
        section.at(input.as_ref().map_or_else(|| config.origin(), InputValue::origin)).flag(key, true);
    }
    let needs = format!(
        "{key} = true: the other agent has removed the file if it has run, so put a new one there before keyward starts, in a folder \
         that user keyward may write; without this key the file stays"
    );
    match &input {
        Some(input) if input.flag().is_none() => input.action(format!("{NO_FLAG}, so the file is removed: {needs}")),
        Some(input) if remove => input.action(needs),
        Some(input) => input.record_kept("false is the default"),
        None => config.record_as(source_key, Outcome::Action, format!("true by default there: {needs}")),
    }
}
