//! `tls_*` keys of a listener -> the certificate of an API proxy, and the authorities of its clients.

use super::input::Block;
use super::output::{Outcome, Section};

/// Reads the keys; a listener that would serve callers without the certificates that it asked for is written commented out.
pub(super) fn read(listener: &mut Block<'_>, tcp: bool, metrics: bool, section: &mut Section) {
    let disable = listener.take("tls_disable");
    let plain = disable.as_ref().is_some_and(|disable| disable.flag() == Some(true));
    let has_tls = !plain && ["tls_cert_file", "tls_key_file"].iter().any(|key| listener.has(key));
    client_certificates(listener, plain, has_tls && tcp && !metrics, metrics, section);
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

/// Writes the authorities of client certificates of an API proxy with TLS. Another listener that demands them is disabled.
fn client_certificates(listener: &mut Block<'_>, plain: bool, can_have: bool, metrics: bool, section: &mut Section) {
    let required = listener.take("tls_require_and_verify_client_cert");
    let authorities = listener.take("tls_client_ca_file");
    if can_have
        && let (Some(required), Some(authorities)) = (&required, &authorities)
        && required.flag() == Some(true)
        && let Some(text) = authorities.required_text()
    {
        section.at(authorities.origin()).text("client_ca_file", text);
        authorities.record_changed("client_ca_file; user keyward must be able to read the file");
        required.record_kept("with client_ca_file");
        return;
    }
    for input in [required, authorities].into_iter().flatten() {
        if plain || input.flag() == Some(false) {
            input.not_supported("has no effect with tls_disable, or where it is false");
            continue;
        }
        section.disable();
        let (what, instead) = match (can_have, metrics) {
            (true, _) => {
                ("verified by the authorities of a file alone", "set client_ca_file, or use a unix socket, or key_file")
            }
            (false, true) => ("not supported on this listener", "use a unix socket, or a loopback address"),
            (false, false) => ("not supported without TLS", "use a unix socket, or key_file"),
        };
        input.action(format!("client certificates are {what}: the listener is written commented out; {instead}"));
    }
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
