//! `[session.NAME.cert]`: a login with a client certificate.

use std::path::PathBuf;

use keyward_agent::identity::AwaitedCertificate;
use keyward_agent::server_client::ServerClientOptions;
use keyward_http::client::{ClientCertificate, ServerAddress};
use keyward_telemetry::error_code::ErrorCode;

use super::reader::Reader;
use super::references::Text;
use super::tree::quote;
use super::{Certificate, CertificateIssuer, values};

/// Reads the section. Returns the role, the certificate (`None` for that of the server's section, and after an error), and what it is if it
/// is one of the Workload API.
pub(super) fn read(
    mut table: Reader<'_>,
    server: Option<&ServerClientOptions>,
    certificates: &[&Certificate],
) -> (String, Option<ClientCertificate>, Option<AwaitedCertificate>) {
    let role = table.value("role").unwrap_or_default();
    let by_name = table.text("certificate");
    let pair = (table.locate("client_cert"), table.locate("client_key"));
    let certificate = table.file("client_cert").zip(table.key_file("client_key"));
    match pair {
        (Some(_), None) => table.missing("client_key", "the private key that belongs to client_cert"),
        (None, Some(_)) => table.missing("client_cert", "the certificate that belongs to client_key"),
        (None, None) if by_name.is_none() && server.is_some_and(|server| server.client.tls.identity.is_none()) => {
            table.missing(
                "client_cert",
                "the certificate to log in with, and client_key; the server's section has none",
            );
        }
        _ => {}
    }
    if let Some(server) = server
        && !matches!(&server.client.address, ServerAddress::Url(url) if url.scheme() == "https")
    {
        let message = "a client certificate needs TLS";
        let advice = "log in to an https:// address, or by another method";
        table.scope.diagnostics.error(table.at, &table.path, message, advice);
    }
    for key in ["client_cert", "client_key"] {
        if by_name.is_some() && table.locate(key).is_some() {
            table.conflict(key, "certificate", "a login has one certificate");
        }
    }
    let pair = |(certificate, key), is_awaited| ClientCertificate { certificate, key, is_awaited };
    let (certificate, awaited) = match by_name {
        None => (certificate.map(|files| pair(files, false)), None),
        Some(name) => {
            certificate_of_api(&table, &name, certificates).map(|(files, awaited)| (pair(files, true), awaited)).unzip()
        }
    };
    table.finish();
    (role, certificate, awaited)
}

/// Returns the files of a certificate of the Workload API, and what it is.
fn certificate_of_api(
    table: &Reader<'_>,
    name: &Text,
    certificates: &[&Certificate],
) -> Option<((PathBuf, PathBuf), AwaitedCertificate)> {
    let fail = |code: ErrorCode, message: String, advice: String| {
        table.scope.diagnostics.error(name.at, &name.key, (code, message), advice);
    };
    let found = certificates.iter().find(|certificate| certificate.options.name == name.value);
    let found = found.and_then(|certificate| match &certificate.issuer {
        CertificateIssuer::WorkloadApi(svid) => Some((&certificate.options, svid)),
        CertificateIssuer::Engine(_) => None,
    });
    let Some((options, svid)) = found else {
        let names: Vec<_> = certificates.iter().map(|certificate| certificate.options.name.as_str()).collect();
        let advice = values::did_you_mean(&name.value, &names).unwrap_or_else(|| {
            "name one of the kind spiffe; those of an engine need the session that they would log in".to_owned()
        });
        let message = format!("there is no certificate {} of the kind spiffe", quote(&name.value));
        fail(ErrorCode::UnknownName, message, advice);
        return None;
    };
    let Some(files) = options.output.pair() else {
        let message = format!("the certificate {} has no files in PEM", quote(&name.value));
        fail(ErrorCode::InvalidValue, message, "give it a folder or a bundle".to_owned());
        return None;
    };
    let awaited = AwaitedCertificate { file: files.0.clone(), svid: svid.clone() };
    Some((files, awaited))
}
