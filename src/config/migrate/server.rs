//! `vault {}` -> `[server.main]`.

use keyward_http::client::is_loopback;
use url::Url;

use super::MAIN;
use super::consul_template::{self, NO_TLS};
use super::input::Block;
use super::output::{Document, Outcome, Section};

/// Default address of Vault Agent and consul-template.
const ADDRESS: &str = "https://127.0.0.1:8200";

/// Report of a missing address, which the other agents may have from their environment.
const NO_ADDRESS: &str = "no address: the default, https://127.0.0.1:8200, is written, as variables such as VAULT_ADDR are ignored; write the server's address";

pub(super) fn read(top: &mut Block<'_>, document: &mut Document, openbao: bool) {
    let section = document.section(&format!("server.{MAIN}"));
    section.text("kind", if openbao { "openbao" } else { "vault" });
    let Some(mut vault) = top.block("vault") else {
        section.text("address", ADDRESS);
        top.record_as("vault", Outcome::Action, NO_ADDRESS);
        return;
    };
    vault.record(Outcome::Kept, "[server.main]; variables such as VAULT_ADDR are ignored");
    section.begin(vault.origin());
    let has_tls = address(&mut vault, section);
    for (source_key, key) in [
        ("ca_cert", "ca_file"),
        ("ca_path", "ca_dir"),
        ("client_cert", "client_cert"),
        ("client_key", "client_key"),
        ("tls_server_name", "server_name"),
    ] {
        let Some(taken) = vault.take(source_key) else { continue };
        if !has_tls {
            taken.not_supported(NO_TLS);
        } else if let Some(text) = taken.required_text() {
            section.at(taken.origin()).text(key, text);
            taken.record_kept(key);
        }
    }
    if let Some(skip) = vault.take("tls_skip_verify") {
        match skip.flag() {
            _ if !has_tls => skip.not_supported(NO_TLS),
            Some(false) => skip.record_kept("the server is always verified"),
            _ => skip.action("the server is always verified: set ca_file to its authority"),
        }
    }
    if let Some(namespace) = vault.take("namespace")
        && let Some(text) = namespace.required_text()
    {
        document.section(&format!("session.{MAIN}")).at(namespace.origin()).text("namespace", text);
        namespace.record_kept("session.main.namespace");
    }
    if let Some(mut retry) = vault.block("retry") {
        if let Some(retries) = retry.take("num_retries") {
            retries.record_changed(
                "not configurable: sessions and templates retry with backoff; the proxy retries safe requests",
            );
        }
        retry.drop_keys(&["attempts", "backoff", "max_backoff", "enabled"], "retries follow the kind of failure");
        retry.finish();
    }
    if top.has("auto_auth") {
        consul_template::drop_login(&mut vault);
    } else {
        consul_template::login(&mut vault, document);
    }
    consul_template::server(&mut vault, document, has_tls);
    vault.finish();
}

/// Writes the address; false if connections to it have no TLS.
fn address(vault: &mut Block<'_>, section: &mut Section) -> bool {
    let Some(address) = vault.take("address") else {
        section.text("address", ADDRESS);
        vault.record_as("address", Outcome::Action, NO_ADDRESS);
        return true;
    };
    let Some(text) = address.required_text() else { return true };
    // Clients take `unix:///path` with a host that means nothing.
    section.at(address.origin()).text("address", text);
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http");
    if url.as_ref().is_some_and(|url| !is_loopback(url)) {
        section.at(address.origin()).flag("allow_http", true);
        address.action(
            "allow_http = true is written: logins, tokens and secrets cross the network unencrypted, and each start warns of it; give \
             the server a certificate, write https:// and ca_file, and remove allow_http",
        );
    } else {
        address.record_kept("address");
    }
    url.is_none() && !text.starts_with("unix://")
}
