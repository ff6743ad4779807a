//! `[server.NAME]`: a Vault, OpenBao, Consul or keyward server and the connection to it.

use std::time::Duration;

use keyward_agent::server_client::{ServerClientOptions, ServerKind};
use keyward_http::client;
use keyward_http::client::{ClientCertificate, ProxyMode, ServerAddress, TlsOptions, is_loopback};
use keyward_telemetry::error_code::ErrorCode;
use url::{Host, Url};

use super::PathUse;
use super::diagnostic::Location;
use super::reader::Reader;
use super::values::{self, ValueError, invalid, invalid_secret};

const KINDS: [(&str, ServerKind); 4] = [
    ("vault", ServerKind::Vault),
    ("openbao", ServerKind::OpenBao),
    ("keyward", ServerKind::Keyward),
    ("consul", ServerKind::Consul),
];
/// Message about an `http://` address of another machine.
const UNENCRYPTED: &str = "would send tokens unencrypted";
/// Advice about it in a configuration.
const PLAIN_ADVICE: &str = "use https://; beyond loopback http:// needs allow_http = true";
const TENTH: Duration = Duration::from_millis(100);

/// Returns the configuration's word for a kind of server.
pub(super) fn kind(kind: ServerKind) -> &'static str {
    KINDS.iter().find(|(_, other)| *other == kind).map_or("", |(keyword, _)| *keyword)
}

/// Reads one server.
pub(super) fn read(name: String, mut reader: Reader<'_>) -> ServerClientOptions {
    if reader.locate("kind").is_none() {
        reader.missing("kind", "write kind = \"vault\", \"openbao\", \"keyward\" or \"consul\"");
    }
    let kind = reader.choice("kind", &KINDS).unwrap_or(ServerKind::Vault);
    let address = reader.required("address", "the server's address, such as \"https://secrets.example.com:8200\"");
    let allow_http = reader.flag("allow_http", false);
    let at = address.as_ref().map_or(reader.at, |text| text.at);
    let parse = |text: &str| {
        server_address(text, allow_http).map_err(|error| ValueError {
            advice: if error.message == UNENCRYPTED { PLAIN_ADVICE.to_owned() } else { error.advice },
            ..error
        })
    };
    let address = address.and_then(|text| reader.parse(&text, parse));
    if allow_http {
        check_plain_http(&mut reader, at, address.as_ref());
    }
    let tls = TlsOptions { allow_http, ..tls(&mut reader, address.as_ref()) };
    let proxy = reader.parse_text("proxy", proxy).unwrap_or(ProxyMode::Environment);
    if let (ProxyMode::Through(_), Some(ServerAddress::Url(url))) = (&proxy, &address) {
        if url.scheme() == "http" {
            reader.conflict("proxy", "an http:// address", "tokens would leave this machine unencrypted");
        } else if tls.server_name.is_some() {
            reader.conflict("server_name", "proxy", "a proxy looks up the address's host itself");
        }
    }
    let client = client::ClientOptions {
        address: address.unwrap_or_else(|| ServerAddress::Unix("/".into())),
        tls,
        proxy,
        connect_timeout: reader.duration("connect_timeout", Duration::from_secs(5), TENTH..=Duration::from_mins(5)),
        response_timeout: reader.duration("response_timeout", Duration::from_secs(10), TENTH..=Duration::from_mins(10)),
    };
    let login_timeout = reader.duration("login_timeout", Duration::from_secs(90), TENTH..=Duration::from_mins(10));
    reader.finish();
    ServerClientOptions { name, kind, client, login_timeout }
}

/// Warns of a server that is called without TLS, or reports that `allow_http` has no effect.
fn check_plain_http(reader: &mut Reader<'_>, address_at: Location, address: Option<&ServerAddress>) {
    match address {
        Some(ServerAddress::Url(url)) if url.scheme() == "http" && !is_loopback(url) => {
            let message = "logins, tokens and secrets cross the network unencrypted";
            let message = (ErrorCode::UnencryptedServer, message);
            let advice = "give the server a certificate, and write https://";
            reader.scope.diagnostics.warning(address_at, &reader.key("address"), message, advice);
        }
        Some(_) => {
            let at = reader.locate("allow_http").unwrap_or(reader.at);
            let message = "has no effect: only http:// to another machine needs it";
            reader.error(at, "allow_http", message, "leave it out");
        }
        None => {}
    }
}

fn tls(reader: &mut Reader<'_>, address: Option<&ServerAddress>) -> TlsOptions {
    let keys = ["ca_file", "ca_dir", "client_cert", "client_key", "server_name"];
    let plain = match address {
        Some(ServerAddress::Url(url)) => url.scheme() == "http",
        Some(ServerAddress::Unix(_)) => true,
        None => false,
    };
    if plain && let Some((key, at)) = keys.into_iter().find_map(|key| Some((key, reader.locate(key)?))) {
        let key = reader.key(key);
        reader.scope.diagnostics.error(at, &key, "not allowed without TLS", "leave it out, or use https://");
    }
    let certificate = (reader.locate("client_cert"), reader.file("client_cert"));
    let key = (reader.locate("client_key"), reader.key_file("client_key"));
    match (certificate.0, key.0) {
        (Some(_), None) => reader.missing("client_key", "the private key that belongs to client_cert"),
        (None, Some(_)) => reader.missing("client_cert", "the certificate that belongs to client_key"),
        _ => {}
    }
    let identity =
        certificate.1.zip(key.1).map(|(certificate, key)| ClientCertificate { certificate, key, is_awaited: false });
    TlsOptions {
        ca_file: reader.file("ca_file"),
        ca_pem: None,
        ca_dir: reader.folder("ca_dir", PathUse::ReadFolder),
        identity,
        server_name: reader.parse_text("server_name", server_name),
        allow_http: false,
    }
}

fn server_name(text: &str) -> Result<String, ValueError> {
    let form = "write the name in the server's certificate, without scheme and port";
    match Host::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => invalid("is not a host name", values::host_advice(text, form)),
    }
}

/// Parses the address of a server on a command line: `https://`, `http://` on loopback, `unix:///path` or `/path`.
pub fn address(text: &str) -> Result<ServerAddress, String> {
    let scheme = if text.starts_with('/') { "unix://" } else { "" };
    server_address(&format!("{scheme}{text}"), false).map_err(|error| format!("it {}: {}", error.message, error.advice))
}

/// A server's address: `https://`, `http://` on loopback or where it is allowed, or `unix:///path`.
fn server_address(text: &str, allow_http: bool) -> Result<ServerAddress, ValueError> {
    let forms = "write \"https://HOST:PORT\", or \"unix:///PATH\" for a socket on this machine";
    if let Some(path) = text.strip_prefix("unix://") {
        return values::path(path).map(ServerAddress::Unix);
    }
    let url = match Url::parse(text) {
        Ok(url) if text.contains("://") => url,
        // Text with an @ may hold a name and a password, so the error must not quote it.
        _ if text.contains('@') => return invalid_secret("is not an address", forms),
        _ => return invalid("is not an address", values::host_advice(text, forms)),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return invalid_secret(
            "contains a user or a password",
            "leave both out: the agent logs in by the cloud's identity",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return invalid_secret("has a query or a fragment", "end the address before ? and #");
    }
    if url.path().trim_end_matches('/').ends_with("/v1") {
        return invalid("ends with /v1", "leave that off: it is put before every path");
    }
    match url.scheme() {
        "https" => Ok(ServerAddress::Url(url)),
        "http" if allow_http || is_loopback(&url) => Ok(ServerAddress::Url(url)),
        "http" => invalid(UNENCRYPTED, "use https://; http:// is for loopback only"),
        _ => invalid("is not an address", forms),
    }
}

/// `environment`, `direct`, or the URL of a proxy.
pub(super) fn proxy(text: &str) -> Result<ProxyMode, ValueError> {
    match text {
        "environment" => return Ok(ProxyMode::Environment),
        "direct" => return Ok(ProxyMode::Direct),
        _ => {}
    }
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(ProxyMode::Through(url)),
        _ => invalid_secret("is not a proxy", "write \"environment\", \"direct\" or the proxy's \"http://HOST:PORT\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_in_the_clear_over_loopback_and_sockets_only() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = server_address(text, false).map(|address| match address {
                ServerAddress::Url(url) => url.to_string(),
                ServerAddress::Unix(path) => path.display().to_string(),
            });
            let found = found.as_ref().map(String::as_str).map_err(|error| error.message.as_str());
            assert_eq!(found, expected, "{text}");
        };
        check("https://secrets.example.com:8200", Ok("https://secrets.example.com:8200/"));
        check("https://secrets.example.com/vault/", Ok("https://secrets.example.com/vault/"));
        check("http://127.0.0.1:8200", Ok("http://127.0.0.1:8200/"));
        check("http://127.1.2.3", Ok("http://127.1.2.3/"));
        check("http://[::1]:8200", Ok("http://[::1]:8200/"));
        check("http://localhost:8200", Ok("http://localhost:8200/"));
        check("unix:///run/vault//api.sock", Ok("/run/vault/api.sock"));
        check("http://10.0.0.1", Err("would send tokens unencrypted"));
        check("http://localhost.example.com", Err("would send tokens unencrypted"));
        check("http://127.0.0.1.example.com", Err("would send tokens unencrypted"));
        check("https://me:hush@secrets.example.com", Err("contains a user or a password"));
        check("https://secrets.example.com/v1/", Err("ends with /v1"));
        check("https://secrets.example.com/?token=a", Err("has a query or a fragment"));
        check("unix://run/api.sock", Err("is not an absolute path"));
        check("ftp://secrets.example.com", Err("is not an address"));
        check("secrets.example.com:8200", Err("is not an address"));
        check("", Err("is not an address"));
        check("https://xn--caf-dma.example.com", Ok("https://xn--caf-dma.example.com/"));
        check("https://caf\u{e9}.example.com", Err("is not an address"));
        check("https://A\u{2de0}.example.com", Err("is not an address"));
    }

    #[test]
    fn a_name_with_letters_beyond_ascii_is_asked_for_as_dns_has_it() {
        let results = [
            server_address("https://caf\u{e9}.example.com", false).map(|_| ()),
            server_name("caf\u{e9}.fr").map(|_| ()),
        ];
        for result in results {
            assert!(result.unwrap_err().advice.contains("xn--"));
        }
    }
}
