//! The request of a certificate: for whom, by which role, with which key.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::secret::ct_eq;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;

use super::facts::Unusable;
use super::issued::{Content, IssuedCertificate};
use super::key::{KeyOrigin, PrepareError, read_key};
use super::pki::PkiSubject;
use super::ssh::{SshKey, SshSubject};
use super::x509::X509Files;
use crate::secrets::{SecretFields, SecretRequest};

/// Names, life and key of a certificate, and the role that issues it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Path of the engine, such as `pki`.
    pub mount: String,
    /// Role of the engine.
    pub role: String,
    /// Life to ask for; `None` for the role's default.
    pub ttl: Option<Duration>,
    /// Origin of the key.
    pub key: KeyOrigin,
    /// Kind of the certificate, and its names.
    pub subject: CertificateSubject,
}

/// Kind of a certificate, and its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSubject {
    /// X.509, of a PKI engine.
    Pki(PkiSubject),
    /// OpenSSH, of an SSH engine.
    Ssh(SshSubject),
}

/// A request to send, and the key that stays here.
#[derive(Debug)]
pub(super) struct PreparedRequest {
    pub(super) request: SecretRequest,
    pub(super) key: PreparedKey,
}

/// The key of a request.
#[derive(Debug)]
pub(super) enum PreparedKey {
    /// In PEM; `None` if the answer has it.
    Pki(Option<SecretString>),
    /// For OpenSSH.
    Ssh(SshKey),
}

impl CertificateRequest {
    /// Returns the path of the call, without `/v1/`.
    pub fn path(&self) -> String {
        let call = if self.key == KeyOrigin::Server { "issue" } else { "sign" };
        format!("{}/{call}/{}", self.mount, self.role)
    }

    /// Returns all names, the first one first, for people.
    pub fn names(&self) -> Vec<String> {
        match &self.subject {
            CertificateSubject::Pki(subject) => subject.names(),
            CertificateSubject::Ssh(subject) => subject.names(),
        }
    }

    /// Makes or reads the key, and makes the request to sign it. Blocks for the time that this takes.
    pub(super) fn prepare(&self) -> Result<PreparedRequest, PrepareError> {
        let ttl = self.ttl.map(|ttl| format!("{}s", ttl.as_secs()));
        let (op, key) = match &self.subject {
            CertificateSubject::Pki(subject) => {
                let (op, key) = subject.prepare(&self.key, ttl)?;
                (op, PreparedKey::Pki(key))
            }
            CertificateSubject::Ssh(subject) => {
                let (op, key) = subject.prepare(&self.key, ttl)?;
                (op, PreparedKey::Ssh(key))
            }
        };
        Ok(PreparedRequest { request: SecretRequest { path: self.path(), op }, key })
    }

    /// Reads the answer to a prepared request.
    pub(super) fn accept(
        &self,
        data: &SecretFields,
        key: PreparedKey,
        now: SystemTime,
    ) -> Result<IssuedCertificate, Unusable> {
        match (&self.subject, key) {
            (CertificateSubject::Ssh(subject), PreparedKey::Ssh(key)) => {
                IssuedCertificate::ssh(subject.accept(data, key, now))
            }
            (CertificateSubject::Pki(_), PreparedKey::Pki(key)) => {
                IssuedCertificate::x509(X509Files::from_answer(data, key, now))
            }
            // The key of another request.
            _ => Err(Unusable::NoKey),
        }
    }

    /// Returns true unless the key comes from a file that holds another one now.
    pub(super) fn has_key(&self, certificate: &IssuedCertificate) -> bool {
        let KeyOrigin::File(path) = &self.key else { return true };
        // A key that cannot be read now takes no certificate away.
        match &certificate.content {
            Content::X509(files) => {
                read_key(path).ok().is_none_or(|block| ct_eq(files.key(), block.to_pem().as_bytes()))
            }
            Content::Ssh(files) => SshKey::read(path).ok().is_none_or(|key| key.is_of(files)),
        }
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
        match &self.subject {
            CertificateSubject::Pki(subject) => subject.add_to_digest(add),
            CertificateSubject::Ssh(subject) => subject.add_to_digest(add),
        }
        encode_hex(digest(&SHA256, text.as_bytes()).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::key::KeyType;
    use crate::secrets::SecretOp;

    fn subject() -> PkiSubject {
        PkiSubject {
            common_name: "web.example.com".to_owned(),
            alt_names: vec!["www.example.com".to_owned(), "root@example.com".to_owned()],
            ip_sans: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            uri_sans: vec!["spiffe://example.com/web".to_owned()],
        }
    }

    fn request() -> CertificateRequest {
        CertificateRequest {
            mount: "pki".to_owned(),
            role: "web".to_owned(),
            ttl: Some(Duration::from_hours(720)),
            key: KeyOrigin::Generated(KeyType::EcP256),
            subject: CertificateSubject::Pki(subject()),
        }
    }

    fn key_of(prepared: PreparedRequest) -> SecretString {
        let PreparedKey::Pki(Some(key)) = prepared.key else { panic!() };
        key
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
        let PreparedKey::Pki(Some(key)) = &prepared.key else { panic!() };
        let key = key.expose_secret();
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
            let keys = [key_of(request.prepare().unwrap()), key_of(request.prepare().unwrap())];
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
            assert_eq!(key_of(request.prepare().unwrap()).expose_secret(), pem);
        }
        let request = CertificateRequest { key: KeyOrigin::Server, ..request };
        let prepared = request.prepare().unwrap();
        assert!(matches!(prepared.key, PreparedKey::Pki(None)) && prepared.request.path == "pki/issue/web");
        let SecretOp::Write(fields) = &prepared.request.op else { panic!() };
        assert!(fields["private_key_format"] == "pkcs8" && !fields.contains_key("csr"));
    }

    #[test]
    fn a_name_that_a_certificate_cannot_hold_is_an_error() {
        let subject = PkiSubject { alt_names: vec!["b\u{fc}ro.example".to_owned()], ..subject() };
        let request = CertificateRequest { subject: CertificateSubject::Pki(subject), ..request() };
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
            CertificateRequest {
                subject: CertificateSubject::Pki(PkiSubject { alt_names: Vec::new(), ..subject() }),
                ..request()
            }
            .digest("https://vault.example.com", None),
            CertificateRequest { ttl: None, ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { key: KeyOrigin::Server, ..request() }.digest("https://vault.example.com", None),
            CertificateRequest { key: KeyOrigin::Generated(KeyType::Rsa2048), ..request() }
                .digest("https://vault.example.com", None),
        ];
        assert!(others.iter().all(|other| *other != same));
    }
}
