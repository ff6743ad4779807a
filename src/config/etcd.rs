//! `[acl.etcd]`: the etcd cluster that stores the records of the ACL server.

use std::time::Duration;

use keyward_acl::store::etcd::{EtcdLogin, EtcdOptions, is_address, is_prefix};
use keyward_http::client::{ClientCertificate, is_loopback};
use url::Url;

use super::reader::Reader;
use super::values::{self, ValueError, invalid, invalid_secret};

const TENTH: Duration = Duration::from_millis(100);

/// Reads the section. Returns `None`, with errors recorded, if required settings are missing.
pub(super) fn read(mut reader: Reader<'_>) -> Option<EtcdOptions> {
    if reader.locate("endpoints").is_none() {
        reader.missing("endpoints", "the members of the cluster, such as [\"https://etcd-1.example:2379\"]");
    }
    let texts = reader.list("endpoints").unwrap_or_default();
    let endpoints: Vec<_> = texts.iter().filter_map(|text| reader.parse(text, endpoint)).collect();
    let https = endpoints.iter().filter(|url| url.scheme() == "https").count();
    if let (Some(text), true) = (texts.first(), https != 0 && https != endpoints.len()) {
        let message = "mixes https:// and http://: all members of a cluster use TLS, or none";
        reader.scope.diagnostics.error(text.at, &text.key, message, "write https:// for all");
    }
    let secured = https != 0;
    let keys = ["ca_file", "client_cert", "client_key"];
    if secured && reader.locate("ca_file").is_none() {
        reader.missing("ca_file", "the PEM file of the CA certificates that the cluster is trusted by");
    } else if !secured
        && endpoints.len() == texts.len()
        && let Some((key, at)) = keys.into_iter().find_map(|key| Some((key, reader.locate(key)?)))
    {
        let key = reader.key(key);
        reader.scope.diagnostics.error(at, &key, "not allowed without TLS", "leave it out, or use https://");
    }
    let ca_file = reader.file("ca_file");
    let certificate = (reader.locate("client_cert"), reader.file("client_cert"));
    let key = (reader.locate("client_key"), reader.key_file("client_key"));
    pair(
        &mut reader,
        [("client_cert", "the certificate that belongs to client_key"), ("client_key", "its private key")],
    );
    let identity =
        certificate.1.zip(key.1).map(|(certificate, key)| ClientCertificate { certificate, key, is_awaited: false });
    let user = reader.value("user");
    let password_file = reader.key_file("password_file");
    pair(&mut reader, [("user", "the user of password_file"), ("password_file", "the file of the user's password")]);
    let login = user.zip(password_file).map(|(user, password_file)| EtcdLogin { user, password_file });
    let prefix = reader.parse_text("prefix", prefix).unwrap_or_else(|| EtcdOptions::PREFIX.to_owned());
    let connect = EtcdOptions::CONNECT_TIMEOUT;
    let request = EtcdOptions::REQUEST_TIMEOUT;
    let connect_timeout = reader.duration("connect_timeout", connect, TENTH..=Duration::from_mins(1));
    let request_timeout = reader.duration("request_timeout", request, TENTH..=Duration::from_mins(1));
    reader.finish();
    let has_endpoints = !endpoints.is_empty();
    has_endpoints.then_some(EtcdOptions {
        endpoints,
        prefix,
        ca_file,
        identity,
        login,
        connect_timeout,
        request_timeout,
    })
}

/// Reports a key whose counterpart is missing.
fn pair(reader: &mut Reader<'_>, both: [(&'static str, &str); 2]) {
    let [first, second] = both;
    match (reader.locate(first.0), reader.locate(second.0)) {
        (Some(_), None) => reader.missing(second.0, second.1),
        (None, Some(_)) => reader.missing(first.0, first.1),
        _ => {}
    }
}

fn prefix(text: &str) -> Result<String, ValueError> {
    if is_prefix(text) {
        Ok(text.to_owned())
    } else {
        invalid("is not a key prefix", "write 2 to 128 letters, digits and -_./, one slash at the end")
    }
}

fn endpoint(text: &str) -> Result<Url, ValueError> {
    let form = "write \"https://HOST:2379\"";
    match Url::parse(text) {
        Ok(url) if is_address(&url) && url.scheme() == "http" && !is_loopback(&url) => {
            invalid("would send records unencrypted", "use https://; http:// is for loopback only")
        }
        Ok(url) if is_address(&url) => Ok(url),
        // Text with an @ may hold a name and a password, so the error must not quote it.
        _ if text.contains('@') => invalid_secret("is not an address; set user and password_file instead", form),
        _ => invalid("is not the address of a member", values::host_advice(text, form)),
    }
}
