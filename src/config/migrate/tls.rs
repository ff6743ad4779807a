//! `tls_*` keys of a listener -> the certificate of an API proxy, and the client certificates that keyward lacks.

use super::input::Block;
use super::output::{Outcome, Section};

/// Reads the keys; a listener that would serve callers without the certificates that it asked for is written commented out.
pub(super) fn read(listener: &mut Block<'_>, tcp: bool, metrics: bool, section: &mut Section) {
    let disable = listener.take("tls_disable");
    let plain = disable.as_ref().is_some_and(|disable| disable.flag() == Some(true));
    for key in ["tls_require_and_verify_client_cert", "tls_client_ca_file"] {
        let Some(input) = listener.take(key) else { continue };
        if plain || input.flag() == Some(false) {
            input.not_supported("has no effect with tls_disable, or where it is false");
            continue;
        }
        section.disable();
        let instead = if metrics { "a loopback address" } else { "key_file" };
        input.action(format!(
            "client certificates are not supported: the listener is written commented out; use a unix socket, or {instead}"
        ));
    }
    let has_tls = !plain && ["tls_cert_file", "tls_key_file"].iter().any(|key| listener.has(key));
    match disable {
        Some(disable) if has_tls => disable.record_kept("see the certificate"),
        Some(disable) => disable.record_kept("plain HTTP on this machine"),
        None if has_tls => {}
        None => {
            let place = if metrics { "" } else { " on this machine" };
            listener.record(Outcome::Changed, format!("plain HTTP{place}: clients use http://"));
        }
    }
    certificate(listener, has_tls, tcp && !metrics, section);
}

/// Writes the certificate of an API proxy on TCP; other listeners of keyward have no TLS.
fn certificate(listener: &mut Block<'_>, has_tls: bool, can_have_tls: bool, section: &mut Section) {
    let details = [
        "tls_min_version",
        "tls_max_version",
        "tls_cipher_suites",
        "tls_disable_client_certs",
        "tls_auto_reload",
        "tls_auto_reload_interval",
    ];
    let files = [("tls_cert_file", "tls_cert"), ("tls_key_file", "tls_key")];
    if has_tls && can_have_tls {
        for (source_key, key) in files {
            if let Some(input) = listener.take(source_key)
                && let Some(text) = input.required_text()
            {
                section.at(input.origin()).text(key, text);
                input.record_changed(format!("{key}; user keyward must be able to read the file"));
            }
        }
        listener.drop_keys(
            &details,
            "TLS 1.2 and 1.3 with their usual ciphers; changed files are read for the next connection",
        );
        return;
    }
    if has_tls {
        let detail = "only an API proxy on TCP has TLS: clients use http:// or the socket; change their addresses, or keep the other agent \
                      for them";
        listener.record(Outcome::Action, detail);
    }
    let why = "without TLS here: a unix socket's mode and owner decide who may connect";
    listener.drop_keys(&files.map(|(source_key, _)| source_key), why);
    listener.drop_keys(&details, why);
}
