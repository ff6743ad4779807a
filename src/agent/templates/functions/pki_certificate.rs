//! The result of `pkiCert`: the PEM blocks of a PKI engine's answer, sorted as consul-template sorts them.
//!
//! Servers trim the newline at the end of each field; consul-template writes one after each block. With `format=pem_bundle`
//! the field `certificate` holds the key and the chain too.

use keyward_http::tls::CertificateFacts;
use serde_json::Value as Json;

use crate::secrets::{PemBlock, SecretResponse};
use crate::templates::engine::{MapType, Value};

/// Parts of an answer; empty where it has none.
#[derive(Default)]
struct Parts {
    certificate: String,
    key: String,
    ca: String,
    chain: Vec<String>,
}

/// Converts a certificate and its key, with the field names of consul-template. The error tells what is wrong with the answer.
pub(super) fn certificate_value(response: &SecretResponse) -> Result<Value, &'static str> {
    let parts = Parts::parse(response)?;
    let fields = |data: Option<Value>| {
        let text = |part: &str| Value::text(part);
        let fields = [("Cert", text(&parts.certificate)), ("Key", text(&parts.key)), ("CA", text(&parts.ca))];
        let chain = Value::texts(parts.chain.iter().map(String::as_str));
        let fields = fields.into_iter().chain([("CAChain", chain)]).chain(data.map(|data| ("Data", data)));
        Value::map_of(MapType::Struct("dependency.PemEncoded"), fields)
    };
    Ok(fields(Some(fields(None))))
}

impl Parts {
    fn parse(response: &SecretResponse) -> Result<Self, &'static str> {
        let data = response.data.as_map();
        let mut parts = Self::default();
        // consul-template reads the fields in the random order of Go's maps. The issuer comes first, so that it is `.CA`.
        let first = FIRST.iter().filter_map(|name| data.get(*name));
        let others = data.iter().filter(|(name, _)| !FIRST.contains(&name.as_str())).map(|(_, value)| value);
        for value in first.chain(others.filter(|value| value.is_string())) {
            match value {
                Json::String(field) => parts.add(field)?,
                Json::Array(items) => items.iter().filter_map(Json::as_str).try_for_each(|item| parts.add(item))?,
                _ => {}
            }
        }
        if parts.certificate.is_empty() {
            // An authority that another one has signed.
            let certificate =
                data.get("certificate").and_then(Json::as_str).map(PemBlock::parse_all).unwrap_or_default();
            let Some(certificate) = certificate.first() else { return Err("the answer has no certificate in PEM") };
            parts.certificate = certificate.to_pem();
        }
        Ok(parts)
    }

    fn add(&mut self, field: &str) -> Result<(), &'static str> {
        for block in PemBlock::parse_all(field) {
            let pem = block.to_pem();
            if block.label.ends_with("PRIVATE KEY") {
                self.key = pem;
                continue;
            }
            let facts = CertificateFacts::parse(&block.content)
                .ok_or("the answer has a PEM block that is no certificate and no key")?;
            if !facts.is_ca {
                self.certificate = pem;
                continue;
            }
            if self.ca.is_empty() {
                self.ca.clone_from(&pem);
            }
            if !self.chain.contains(&pem) {
                self.chain.push(pem);
            }
        }
        Ok(())
    }
}

/// Fields in the order in which they are read.
const FIRST: [&str; 5] = ["issuing_ca", "ca_chain", "certificate", "private_key", "ca"];
