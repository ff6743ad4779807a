//! The request of a certificate: its key, the signing request (RFC 2986), and the fields that the server gets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::secret::{self, SecretFileError, ct_eq};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, RsaKeySize, SanType};

use crate::secrets::{PemBlock, SecretOp, SecretRequest};

/// Names, life and key of a certificate, and the role that issues it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Path of the PKI engine, such as `pki`.
    pub mount: String,
    /// Role of the engine.
    pub role: String,
    /// Common name of the subject.
    pub common_name: String,
    /// Further host names and mail addresses.
    pub alt_names: Vec<String>,
    /// IP addresses.
    pub ip_sans: Vec<IpAddr>,
    /// URIs, such as SPIFFE ids.
    pub uri_sans: Vec<String>,
    /// Life to ask for; `None` for the role's default.
    pub ttl: Option<Duration>,
    /// Origin of the key.
    pub key: KeyOrigin,
}

/// Origin of a certificate's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// A new one for each certificate is made here.
    Generated(KeyType),
    /// That of a PEM file, which stays the same.
    File(PathBuf),
    /// The server makes a new one for each certificate, and sends it with the answer.
    Server,
}

/// Type of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA on the curve P-256.
    #[default]
    EcP256,
    /// ECDSA on the curve P-384.
    EcP384,
    /// Ed25519.
    Ed25519,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// All types, each with the word of the configuration.
    pub const ALL: [(&'static str, Self); 6] = [
        ("ec-p256", Self::EcP256),
        ("ec-p384", Self::EcP384),
        ("ed25519", Self::Ed25519),
        ("rsa-2048", Self::Rsa2048),
        ("rsa-3072", Self::Rsa3072),
        ("rsa-4096", Self::Rsa4096),
    ];

    /// Returns the word of the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Makes a key. RSA takes up to some seconds of CPU time.
    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        match self {
            Self::EcP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::EcP384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
            Self::Rsa2048 => rsa(RsaKeySize::_2048),
            Self::Rsa3072 => rsa(RsaKeySize::_3072),
            Self::Rsa4096 => rsa(RsaKeySize::_4096),
        }
    }
}

/// A request to send, and the key that stays here.
#[derive(Debug)]
pub(super) struct PreparedRequest {
    pub(super) request: SecretRequest,
    /// The key in PEM; `None` if the answer has it.
    pub(super) key: Option<SecretString>,
}

/// Reason why there is no request to send.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    #[error("no key and no signing request can be made for these names")]
    Sign(#[from] rcgen::Error),
    #[error("cannot read the key in {}", path.display())]
    Read { path: PathBuf, source: SecretFileError },
    #[error("{} holds no PEM private key without a password that keyward can use", path.display())]
    NoKey { path: PathBuf },
}

impl CertificateRequest {
    /// Returns the path of the call, without `/v1/`.
    pub fn path(&self) -> String {
        let call = if self.key == KeyOrigin::Server { "issue" } else { "sign" };
        format!("{}/{call}/{}", self.mount, self.role)
    }

    /// Returns all names, the common name first, for people.
    pub fn names(&self) -> Vec<String> {
        let addresses = self.ip_sans.iter().map(IpAddr::to_string);
        let names = std::iter::once(self.common_name.clone()).chain(self.alt_names.iter().cloned());
        names.chain(addresses).chain(self.uri_sans.iter().cloned()).collect()
    }

    /// Makes or reads the key, and makes the request to sign it. Blocks for the time that this takes.
    pub(super) fn prepare(&self) -> Result<PreparedRequest, PrepareError> {
        let (pair, key) = match &self.key {
            KeyOrigin::Server => {
                let request = self.with_field("private_key_format", "pkcs8");
                return Ok(PreparedRequest { request, key: None });
            }
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
        let request = self.with_field("csr", &self.signing_request(&pair)?);
        Ok(PreparedRequest { request, key: Some(key) })
    }

    /// Returns true unless the key comes from a file that holds another one now.
    pub(super) fn has_key(&self, key: &SecretString) -> bool {
        match &self.key {
            // A key that cannot be read now takes no certificate away.
            KeyOrigin::File(path) => read_key(path).ok().is_none_or(|block| ct_eq(key, block.to_pem().as_bytes())),
            KeyOrigin::Generated(_) | KeyOrigin::Server => true,
        }
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

    /// Returns the request with its names, its life, and this field.
    fn with_field(&self, name: &str, value: &str) -> SecretRequest {
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
        if let Some(ttl) = self.ttl {
            fields.insert("ttl".to_owned(), format!("{}s", ttl.as_secs()));
        }
        SecretRequest { path: self.path(), op: SecretOp::Write(fields) }
    }

    /// Returns the digest of the request and of the server that gets it: a certificate that was issued for another one is not
    /// used again.
    pub(super) fn digest(&self, server: &str, namespace: Option<&str>) -> String {
        let mut text = String::new();
        // A file holds the digest: the form of this text does not change.
        let mut add = |name: &str, value: &str| text.extend([name, "=", value, "\n"]);
        add("server", server);
        add("namespace", namespace.unwrap_or_default());
        add("path", &self.path());
        add("key_type", self.key.name());
        add("ttl", &self.ttl.map(|ttl| ttl.as_secs().to_string()).unwrap_or_default());
        add("common_name", &self.common_name);
        self.alt_names.iter().for_each(|name| add("alt_name", name));
        self.ip_sans.iter().for_each(|address| add("ip_san", &address.to_string()));
        self.uri_sans.iter().for_each(|uri| add("uri_san", uri));
        encode_hex(digest(&SHA256, text.as_bytes()).as_ref())
    }
}

impl KeyOrigin {
    /// Returns a word for it: the type of the key, `file` or `server`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Generated(key_type) => key_type.name(),
            Self::File(_) => "file",
            Self::Server => "server",
        }
    }
}

/// Reads the first private key of a file.
fn read_key(path: &Path) -> Result<PemBlock, PrepareError> {
    let text = secret::read_text(path).map_err(|source| PrepareError::Read { path: path.to_owned(), source })?;
    let key = PemBlock::parse_all(text.expose_secret()).into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    key.ok_or_else(|| PrepareError::NoKey { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CertificateRequest {
        CertificateRequest {
            mount: "pki".to_owned(),
            role: "web".to_owned(),
            common_name: "web.example.com".to_owned(),
            alt_names: vec!["www.example.com".to_owned(), "root@example.com".to_owned()],
            ip_sans: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            uri_sans: vec!["spiffe://example.com/web".to_owned()],
            ttl: Some(Duration::from_hours(720)),
            key: KeyOrigin::Generated(KeyType::EcP256),
        }
    }

    #[test]
    fn a_request_has_all_names_and_no_key() {
        let prepared = request().prepare().unwrap();
        let SecretOp::Write(fields) = &prepared.request.op else { panic!() };
        let field = |name: &str| fields.get(name).map(String::as_str);
        assert_eq!(prepared.request.path, "pki/sign/web");
        assert_eq!(field("common_name"), Some("web.example.com"));
        assert_eq!(field("alt_names"), Some("www.example.com,root@example.com"));
        assert_eq!(field("ip_sans"), Some("10.0.0.1,::1"));
        assert_eq!(field("uri_sans"), Some("spiffe://example.com/web"));
        assert_eq!((field("ttl"), field("format")), (Some("2592000s"), Some("pem")));
        assert!(field("csr").unwrap().starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        assert_eq!(fields.len(), 7);
        let key = prepared.key.as_ref().unwrap().expose_secret();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let key: Vec<&str> = key.lines().collect();
        assert!(!fields.values().any(|field| field.contains(key[1])));
        assert!(!format!("{prepared:?}").contains(key[1]));
    }

    #[test]
    fn every_type_of_key_signs_its_request_and_each_key_is_another() {
        for (name, key_type) in KeyType::ALL {
            assert_eq!(key_type.name(), name);
            let request = CertificateRequest { key: KeyOrigin::Generated(key_type), ..request() };
            let keys = [request.prepare().unwrap().key.unwrap(), request.prepare().unwrap().key.unwrap()];
            assert_ne!(keys[0].expose_secret(), keys[1].expose_secret(), "{name}");
        }
    }

    #[test]
    fn a_key_of_a_file_stays_and_one_of_the_server_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let request = CertificateRequest { key: KeyOrigin::File(path.clone()), ..request() };
        assert!(matches!(request.prepare(), Err(PrepareError::Read { .. })));
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(request.prepare(), Err(PrepareError::NoKey { .. })));
        for (_, key_type) in KeyType::ALL {
            let pem = key_type.generate().unwrap().serialize_pem();
            // As `openssl ecparam -genkey` writes it.
            std::fs::write(&path, format!("-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n{pem}"))
                .unwrap();
            let key = request.prepare().unwrap().key.unwrap();
            assert_eq!(key.expose_secret(), pem);
            assert!(request.has_key(&key));
        }
        let other = KeyType::EcP256.generate().unwrap().serialize_pem();
        assert!(!request.has_key(&SecretString::from(other)));
        let request = CertificateRequest { key: KeyOrigin::Server, ..request };
        let prepared = request.prepare().unwrap();
        assert!(prepared.key.is_none() && prepared.request.path == "pki/issue/web");
        let SecretOp::Write(fields) = &prepared.request.op else { panic!() };
        assert!(fields["private_key_format"] == "pkcs8" && !fields.contains_key("csr"));
    }

    #[test]
    fn a_name_that_a_certificate_cannot_hold_is_an_error() {
        let request = CertificateRequest { alt_names: vec!["b\u{fc}ro.example".to_owned()], ..request() };
        assert!(request.prepare().is_err());
    }

    #[test]
    fn the_digest_changes_with_each_setting_and_with_the_server() {
        let same = request().digest("https://vault.example.com", None);
        assert_eq!(same, request().digest("https://vault.example.com", None));
        let others = [
            request().digest("https://other.example.com", None),
            request().digest("https://vault.example.com", Some("team")),
            CertificateRequest { role: "api".to_owned(), ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { alt_names: Vec::new(), ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { ttl: None, ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { key: KeyOrigin::Server, ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { key: KeyOrigin::Generated(KeyType::Rsa2048), ..request() }
                .digest("https://vault.example.com", None),
        ];
        assert!(others.iter().all(|other| *other != same));
    }
}
