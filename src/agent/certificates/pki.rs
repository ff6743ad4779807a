//! Requests of a PKI engine: the signing request (RFC 2986), and the fields that the server gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use keyward_machine::secret_string::SecretString;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::key::{KeyOrigin, PrepareError, read_key};
use crate::secrets::SecretOp;

/// Names of an X.509 certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PkiSubject {
    /// Common name of the subject.
    pub common_name: String,
    /// Further host names and mail addresses.
    pub alt_names: Vec<String>,
    /// IP addresses.
    pub ip_sans: Vec<IpAddr>,
    /// URIs, such as SPIFFE ids.
    pub uri_sans: Vec<String>,
}

impl PkiSubject {
    /// Returns all names, the common name first.
    pub(super) fn names(&self) -> Vec<String> {
        let addresses = self.ip_sans.iter().map(IpAddr::to_string);
        let names = std::iter::once(self.common_name.clone()).chain(self.alt_names.iter().cloned());
        names.chain(addresses).chain(self.uri_sans.iter().cloned()).collect()
    }

    /// Makes or reads the key, and makes the request to sign it. Returns the key in PEM; `None` if the answer has it.
    pub(super) fn prepare(
        &self,
        origin: &KeyOrigin,
        ttl: Option<String>,
    ) -> Result<(SecretOp, Option<SecretString>), PrepareError> {
        let (pair, key) = match origin {
            KeyOrigin::Server => return Ok((self.with_field("private_key_format", "pkcs8", ttl), None)),
            KeyOrigin::Generated(key_type) => {
                let pair = key_type.generate()?;
                let key = SecretString::from(pair.serialize_pem());
                (pair, key)
            }
            KeyOrigin::File(path) => {
                let block = read_key(path)?;
                let pair = KeyPair::try_from(block.content.as_slice());
                let pair = pair.map_err(|_| PrepareError::NoKey { path: path.clone() })?;
                (pair, SecretString::from(block.to_pem()))
            }
        };
        Ok((self.with_field("csr", &self.signing_request(&pair)?, ttl), Some(key)))
    }

    /// Returns the signing request in PEM. It has the names too: a role takes them from there unless it says otherwise
    /// (`use_csr_common_name`, `use_csr_sans`).
    fn signing_request(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        for name in &self.alt_names {
            let text = name.as_str().try_into()?;
            params.subject_alt_names.push(if name.contains('@') {
                SanType::Rfc822Name(text)
            } else {
                SanType::DnsName(text)
            });
        }
        params.subject_alt_names.extend(self.ip_sans.iter().copied().map(SanType::IpAddress));
        for uri in &self.uri_sans {
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        }
        params.serialize_request(key)?.pem()
    }

    /// Returns a write of the names, the life, and this field.
    fn with_field(&self, name: &str, value: &str, ttl: Option<String>) -> SecretOp {
        let mut fields = BTreeMap::from([
            ("common_name".to_owned(), self.common_name.clone()),
            (name.to_owned(), value.to_owned()),
            ("format".to_owned(), "pem".to_owned()),
        ]);
        let addresses: Vec<_> = self.ip_sans.iter().map(IpAddr::to_string).collect();
        for (name, values) in [("alt_names", &self.alt_names), ("ip_sans", &addresses), ("uri_sans", &self.uri_sans)] {
            if !values.is_empty() {
                fields.insert(name.to_owned(), values.join(","));
            }
        }
        if let Some(ttl) = ttl {
            fields.insert("ttl".to_owned(), ttl);
        }
        SecretOp::Write(fields)
    }

    /// Adds the names to the digest of a request.
    pub(super) fn add_to_digest(&self, mut add: impl FnMut(&str, &str)) {
        add("common_name", &self.common_name);
        self.alt_names.iter().for_each(|name| add("alt_name", name));
        self.ip_sans.iter().for_each(|address| add("ip_san", &address.to_string()));
        self.uri_sans.iter().for_each(|uri| add("uri_san", uri));
    }
}
