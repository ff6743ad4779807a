//! `auto_auth { method {} }` -> `[session.main]` and its method.

use std::time::Duration;

use super::MAIN;
use super::input::{Block, NO_FLAG, Taken, written};
use super::output::{Document, Outcome, Section};

/// Reads the method, and leaves the sinks. Tells whether the session's token is wrapped.
pub(super) fn read<'a>(top: &mut Block<'a>, document: &mut Document) -> Option<Read<'a>> {
    let mut auto_auth = top.block("auto_auth")?;
    let mut methods = auto_auth.labelled("method");
    let again = "enable_reauth_on_new_credentials";
    let again = [auto_auth.take(again), methods.last_mut().and_then(|(_, method)| method.take(again))];
    for key in again.into_iter().flatten() {
        key.changed("each login reads its files anew here");
    }
    let mut wrapped = false;
    let last = methods.pop();
    for (_, other) in methods {
        other.drop_all("a session has one method: write another [session.NAME] for it");
    }
    if let Some((kind, mut method)) = last {
        wrapped = session(&kind, &mut method, document);
        method.finish();
    }
    Some(Read { wrapped, sinks: auto_auth })
}

/// Rest of `auto_auth` once the method is read.
pub(super) struct Read<'a> {
    pub(super) wrapped: bool,
    pub(super) sinks: Block<'a>,
}

fn session(kind: &str, method: &mut Block<'_>, document: &mut Document) -> bool {
    let section = document.section(&format!("session.{MAIN}"));
    if let Some(mount) = method.take("mount_path")
        && let Some(text) = mount.required_text()
    {
        section.text("mount", text.trim_matches('/').trim_start_matches("auth/"));
        mount.kept("session.main.mount");
    }
    if let Some(namespace) = method.take("namespace")
        && let Some(text) = namespace.required_text()
    {
        // The server's own namespace was read before, and comes before this one there too.
        if section.has("namespace") {
            namespace.not_supported("vault.namespace counts beside it");
        } else {
            section.text("namespace", text);
            namespace.kept("session.main.namespace");
        }
    }
    let wrap = method.take("wrap_ttl");
    let wrapped = wrap.as_ref().and_then(Taken::span).is_some_and(|span| !span.is_zero());
    if let Some(wrap) = &wrap {
        match wrap.span() {
            Some(Duration::ZERO) => wrap.kept("not wrapped, as without it"),
            Some(span) => {
                section.text("wrap_ttl", &written(span));
                wrap.changed("session.main.wrap_ttl; a new one is made before it ends, while theirs waits for ever");
            }
            None => wrap.not_supported("no duration"),
        }
    }
    for key in ["min_backoff", "max_backoff"] {
        if let Some(taken) = method.take(key) {
            taken.changed(
                "not set here: 1 s to 5 min with full jitter, and at most 200 calls in the first hour of an incident",
            );
        }
    }
    if let Some(exit) = method.take("exit_on_err") {
        match exit.flag() {
            Some(false) => exit.kept("it tries on"),
            _ => exit.not_supported("it tries on; `keyward login` and `keyward wait --timeout` tell of a failure"),
        }
    }
    let config = method.block("config");
    let name = format!("session.{MAIN}.{}", ours(kind).unwrap_or("cloud"));
    if ours(kind).is_none() {
        method.tell(
            Outcome::Action,
            format!(
                "{kind:?} is no method here: choose one of cloud (Azure), jwt, kubernetes, approle, cert and token_file"
            ),
        );
        if let Some(config) = config {
            config.drop_all("with its method");
        }
        return wrapped;
    }
    method.tell(Outcome::Kept, format!("[{name}]"));
    let section = document.section(&name);
    let Some(mut config) = config else { return wrapped };
    match kind {
        "azure" => azure(&mut config, section),
        "jwt" => {
            same(&mut config, section, &[("role", "role"), ("path", "file")]);
            removed(&mut config, section, "remove_jwt_after_reading", "remove_after_reading");
            config.drop_keys(&["remove_jwt_follows_symlinks"], "what the path names is removed, a symlink too");
            config.drop_keys(&["jwt_read_period"], "each login reads the file anew");
        }
        "kubernetes" => same(&mut config, section, &[("role", "role"), ("token_path", "file")]),
        "approle" => {
            let keys = [
                ("role_id_file_path", "role_id_file"),
                ("secret_id_file_path", "secret_id_file"),
                ("secret_id_response_wrapping_path", "secret_id_wrapping_path"),
            ];
            let secret = config.take("secret_id_file_path");
            if let Some(secret) = &secret {
                put(secret, section, "secret_id_file");
                removed(&mut config, section, "remove_secret_id_file_after_reading", "remove_secret_id_after_reading");
            } else {
                config.drop_keys(&["remove_secret_id_file_after_reading"], "there is no secret_id_file_path");
            }
            same(&mut config, section, &keys);
        }
        "token_file" => same(&mut config, section, &[("token_file_path", "file")]),
        _ => {
            same(
                &mut config,
                section,
                &[("name", "role"), ("client_cert", "client_cert"), ("client_key", "client_key")],
            );
            if let Some(authority) = config.take("ca_cert") {
                put(&authority, document.section(&format!("server.{MAIN}")), "ca_file");
            }
            if let Some(reload) = config.take("reload") {
                reload.changed("a reload (SIGHUP) takes a renewed certificate; it is not looked at before each login");
            }
        }
    }
    config.finish();
    wrapped
}

fn ours(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "azure" => "cloud",
        "jwt" => "jwt",
        "kubernetes" => "kubernetes",
        "approle" => "approle",
        "cert" => "cert",
        "token_file" => "token_file",
        _ => return None,
    })
}

fn azure(config: &mut Block<'_>, section: &mut Section) {
    let keys = ["role", "resource", "object_id", "client_id", "scope"];
    same(config, section, &keys.map(|key| (key, key)));
    if let Some(taken) = config.take("authenticate_from_environment") {
        match taken.flag() {
            Some(flag) => {
                section.flag("authenticate_from_environment", flag);
                taken.kept("authenticate_from_environment; the machine's metadata service is not needed then");
            }
            None => taken.not_supported(NO_FLAG),
        }
    }
}

/// Keys whose value is a text and means the same.
fn same(config: &mut Block<'_>, section: &mut Section, keys: &[(&'static str, &'static str)]) {
    for (theirs, ours) in keys {
        if let Some(taken) = config.take(theirs) {
            put(&taken, section, ours);
        }
    }
}

fn put(taken: &Taken<'_>, section: &mut Section, ours: &'static str) {
    // An empty text is as good as none there.
    match taken.text() {
        Some(text) => {
            section.text(ours, text);
            taken.kept(ours);
        }
        None => drop(taken.required_text()),
    }
}

/// A file that they remove unless they are told otherwise, and we do not unless we are told to.
fn removed(config: &mut Block<'_>, section: &mut Section, theirs: &str, ours: &'static str) {
    let taken = config.take(theirs);
    let remove = taken.as_ref().and_then(Taken::flag).unwrap_or(true);
    if remove {
        section.flag(ours, true);
    }
    match &taken {
        Some(taken) if taken.flag().is_none() => taken.not_supported(format!("{NO_FLAG}: the file is removed")),
        Some(taken) => taken.kept(if remove { ours } else { "files stay unless it is asked for" }),
        None => {
            config
                .tell(Outcome::Changed, format!("{ours} = true is written out: the file is removed there by default"));
        }
    }
}
