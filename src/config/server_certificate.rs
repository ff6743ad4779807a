//! Keys of the certificate of a server, and of the authorities of its clients.

use keyward_agent::certificates::CertificateOptions;
use keyward_http::tls::{ClientAuthorities, ServerCertificate};
use keyward_telemetry::error_code::ErrorCode;

use super::Certificate;
use super::reader::Reader;
use super::tree::quote;
use super::values;

/// The keys of this file.
pub(super) const KEYS: [&str; 5] = ["certificate", "tls_cert", "tls_key", "client_ca", "client_ca_file"];

/// Reads `certificate`, the name of one of these, or `tls_cert` and `tls_key`, of which one without the other is an error; and
/// `client_ca` or `client_ca_file`.
pub(super) fn read(reader: &mut Reader<'_>, certificates: &[Certificate]) -> Option<ServerCertificate> {
    let pair = read_pair(reader, certificates);
    let client_ca = read_client_ca(reader, certificates);
    let has_pair = ["certificate", "tls_cert", "tls_key"].into_iter().any(|key| reader.locate(key).is_some());
    for key in ["client_ca", "client_ca_file"] {
        if let Some(at) = reader.locate(key).filter(|_| !has_pair) {
            let advice = "set certificate, or tls_cert and tls_key, or leave it out";
            reader.error(at, key, "has no effect without TLS", advice);
        }
    }
    let is_given = ["client_ca", "client_ca_file"].into_iter().any(|key| reader.locate(key).is_some());
    // Authorities that could not be read were reported; without them the server must not be open to all.
    let pair = pair.filter(|_| !is_given || client_ca.is_some())?;
    Some(ServerCertificate { client_ca, ..pair })
}

fn read_pair(reader: &mut Reader<'_>, certificates: &[Certificate]) -> Option<ServerCertificate> {
    if reader.locate("certificate").is_some() {
        for key in ["tls_cert", "tls_key"] {
            if reader.locate(key).is_some() {
                reader.conflict(key, "certificate", "a server has one certificate");
            }
        }
        // Its files may not be there yet.
        let (certificate, key) = read_name(reader, "certificate", certificates, |options| options.output.pair())?;
        return Some(ServerCertificate { certificate, key, is_awaited: true, client_ca: None });
    }
    let certificate = (reader.locate("tls_cert"), reader.file("tls_cert"));
    let key = (reader.locate("tls_key"), reader.key_file("tls_key"));
    match (certificate.0, key.0) {
        (Some(_), None) => reader.missing("tls_key", "the private key that belongs to tls_cert"),
        (None, Some(_)) => reader.missing("tls_cert", "the certificate that belongs to tls_key"),
        _ => {}
    }
    let pair = certificate.1.zip(key.1);
    pair.map(|(certificate, key)| ServerCertificate { certificate, key, is_awaited: false, client_ca: None })
}

/// Reads the authorities of clients; `None` without them, and after an error.
fn read_client_ca(reader: &mut Reader<'_>, certificates: &[Certificate]) -> Option<ClientAuthorities> {
    if reader.locate("client_ca").is_some() {
        if reader.locate("client_ca_file").is_some() {
            reader.conflict("client_ca_file", "client_ca", "clients have one set of authorities");
        }
        let chain = read_name(reader, "client_ca", certificates, |options| options.output.chain_file());
        return chain.map(|file| ClientAuthorities { file, is_awaited: true });
    }
    reader.file("client_ca_file").map(|file| ClientAuthorities { file, is_awaited: false })
}

/// Reads the name of a `[certificate.NAME]`, and returns files of it.
fn read_name<T>(
    reader: &mut Reader<'_>,
    key: &'static str,
    certificates: &[Certificate],
    files: impl Fn(&CertificateOptions) -> Option<T>,
) -> Option<T> {
    let text = reader.text(key)?;
    if let Some(found) = certificates.iter().find(|certificate| certificate.options.name == text.value) {
        let files = files(&found.options);
        if files.is_none() {
            let message = format!("the certificate {} has no such files in PEM", quote(&text.value));
            reader.error(
                text.at,
                key,
                message,
                "name one of a PKI engine with folder, or with bundle for a server's own",
            );
        }
        return files;
    }
    let names: Vec<_> = certificates.iter().map(|certificate| certificate.options.name.as_str()).collect();
    let advice = values::did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
        [] => "define it with [certificate.NAME]".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    });
    let message = (ErrorCode::UnknownName, format!("there is no certificate {}", quote(&text.value)));
    reader.error(text.at, key, message, advice);
    None
}

/// Describes the TLS of a server for `keyward check`: a clause that begins with a comma, or nothing.
pub(super) const fn describe(tls: Option<&ServerCertificate>) -> &'static str {
    match tls {
        None => "",
        Some(ServerCertificate { client_ca: None, .. }) => ", over TLS",
        Some(ServerCertificate { client_ca: Some(_), .. }) => ", over TLS, to clients with a certificate",
    }
}
