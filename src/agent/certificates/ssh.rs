//! Requests of an SSH engine, their answers, and the files of an OpenSSH certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::facts::{Facts, Unusable};
use super::key::{KeyOrigin, PrepareError, read_text};
use super::policy::Life;
use crate::secrets::{PemBlock, SecretFields, SecretOp};
use crate::ssh::{
    PRIVATE_KEY_LABEL, PrivateKeyFile, SshCertificate, SshCertificateKind, SshPublicKey, YEAR_9999, encode_private_key,
};

/// Kind and names of an OpenSSH certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSubject {
    /// For a user or a host.
    pub kind: SshCertificateKind,
    /// Names of users or hosts; empty for the role's `default_user`.
    pub principals: Vec<String>,
    /// Key id in the log of the SSH server; `None` for the role's.
    pub key_id: Option<String>,
    /// Critical options, such as `force-command`; empty for the role's.
    pub critical_options: BTreeMap<String, String>,
    /// Extensions, such as `permit-pty`; empty for the role's.
    pub extensions: BTreeMap<String, String>,
    /// The private key is written beside the certificate.
    pub writes_key: bool,
}

/// A key for which a certificate is requested.
#[derive(Debug, Clone)]
pub(super) struct SshKey {
    public: SshPublicKey,
    /// The private key in OpenSSH's format; `None` if the file holds the public key, or one with a password.
    private: Option<SecretString>,
}

/// A certificate and its key as files hold them.
#[derive(Debug, Clone)]
pub(super) struct SshFiles {
    key: Option<SecretString>,
    public: SshPublicKey,
    certificate: String,
}

impl SshSubject {
    /// Returns the names, with the kind of the certificate.
    pub(super) fn names(&self) -> Vec<String> {
        let kind = self.kind.name();
        match self.principals.as_slice() {
            [] => vec![format!("SSH {kind} of the role")],
            [first, rest @ ..] => std::iter::once(format!("SSH {kind} {first}")).chain(rest.iter().cloned()).collect(),
        }
    }

    /// Makes or reads the key, and makes the request to sign it.
    pub(super) fn prepare(&self, origin: &KeyOrigin, ttl: Option<String>) -> Result<(SecretOp, SshKey), PrepareError> {
        let mut key = match origin {
            KeyOrigin::Generated(key_type) => SshKey::from_pair(&key_type.generate()?).ok_or(PrepareError::NoSshKey)?,
            KeyOrigin::File(path) => SshKey::read(path)?,
            KeyOrigin::Server => return Err(PrepareError::NoSshKey),
        };
        if !self.writes_key {
            key.private = None;
        } else if let (None, KeyOrigin::File(path)) = (&key.private, origin) {
            return Err(PrepareError::NoKey { path: path.clone() });
        }
        let mut body = json!({ "public_key": key.public.to_line(), "cert_type": self.kind.name() });
        let mut add = |name: &str, value: Value| body[name] = value;
        // An empty text would ask for no principals.
        if !self.principals.is_empty() {
            add("valid_principals", self.principals.join(",").into());
        }
        if let Some(ttl) = ttl {
            add("ttl", ttl.into());
        }
        if let Some(key_id) = &self.key_id {
            add("key_id", key_id.as_str().into());
        }
        for (name, options) in [("critical_options", &self.critical_options), ("extensions", &self.extensions)] {
            if !options.is_empty() {
                add(name, json!(options));
            }
        }
        Ok((SecretOp::WriteObject(body.to_string()), key))
    }

    /// Reads the answer to a request.
    pub(super) fn accept(
        &self,
        data: &SecretFields,
        key: SshKey,
        now: SystemTime,
    ) -> Result<(Facts, SshFiles), Unusable> {
        let line = data.as_map().get("signed_key").and_then(Value::as_str).unwrap_or_default();
        let certificate = SshCertificate::parse(line).ok_or(Unusable::NoSshCertificate)?;
        if certificate.kind != self.kind {
            return Err(Unusable::OtherKind);
        }
        let names = |principals: &[String]| principals.iter().cloned().collect::<BTreeSet<_>>();
        if !self.principals.is_empty() && names(&certificate.principals) != names(&self.principals) {
            return Err(Unusable::OtherPrincipals);
        }
        key.with_certificate(&certificate, now)
    }

    /// Adds the names and options to the digest of a request.
    pub(super) fn add_to_digest(&self, mut add: impl FnMut(&str, &str)) {
        add("cert_type", self.kind.name());
        self.principals.iter().for_each(|name| add("principal", name));
        add("key_id", self.key_id.as_deref().unwrap_or_default());
        for (kind, options) in [("critical_option", &self.critical_options), ("extension", &self.extensions)] {
            for (name, value) in options {
                add(kind, &format!("{name}={value}"));
            }
        }
        add("writes_key", if self.writes_key { "true" } else { "false" });
    }
}

impl SshKey {
    fn from_pair(pair: &KeyPair) -> Option<Self> {
        let private = PemBlock::new(PRIVATE_KEY_LABEL, encode_private_key(pair)?).to_pem();
        Some(Self { public: SshPublicKey::from_pair(pair)?, private: Some(SecretString::from(private)) })
    }

    /// Reads a private key of OpenSSH or in another PEM form, or a public key.
    pub(super) fn read(path: &Path) -> Result<Self, PrepareError> {
        let text = read_text(path)?;
        Self::parse(text.expose_secret()).ok_or_else(|| PrepareError::NoSshKeyFile { path: path.to_owned() })
    }

    fn parse(text: &str) -> Option<Self> {
        let block = PemBlock::parse_all(text).into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        match block {
            Some(block) if block.label == PRIVATE_KEY_LABEL => {
                let file = PrivateKeyFile::parse(&block.content)?;
                let private = (!file.is_encrypted).then(|| SecretString::from(block.to_pem()));
                Some(Self { public: file.public, private })
            }
            Some(block) => Self::from_pair(&KeyPair::try_from(block.content.as_slice()).ok()?),
            None => Some(Self { public: text.lines().find_map(SshPublicKey::parse)?, private: None }),
        }
    }

    /// Returns true if files hold the certificate of this key.
    pub(super) fn is_of(&self, files: &SshFiles) -> bool {
        self.public == files.public
    }

    fn with_certificate(self, certificate: &SshCertificate, now: SystemTime) -> Result<(Facts, SshFiles), Unusable> {
        if certificate.key != self.public {
            return Err(Unusable::OtherKey);
        }
        if !certificate.is_signed() {
            return Err(Unusable::NotSigned);
        }
        let ends = certificate.ends().unwrap_or(SystemTime::UNIX_EPOCH + Duration::from_secs(YEAR_9999));
        if ends <= now {
            return Err(Unusable::Expired);
        }
        let facts = Facts {
            life: Life { begins: certificate.begins(), ends },
            serial: certificate.serial.to_string(),
            fingerprint: encode_hex(digest(&SHA256, certificate.blob()).as_ref()),
            uris: Vec::new(),
        };
        let certificate = format!("{}\n", certificate.to_line());
        Ok((facts, SshFiles { key: self.private, public: self.public, certificate }))
    }
}

impl SshFiles {
    /// Reads the texts of files: the private key and the certificate.
    pub(super) fn from_files(key: &str, certificate: &str, now: SystemTime) -> Result<(Facts, Self), Unusable> {
        let key = SshKey::parse(key).filter(|key| key.private.is_some()).ok_or(Unusable::NoKey)?;
        let certificate = SshCertificate::parse(certificate).ok_or(Unusable::NoSshCertificate)?;
        key.with_certificate(&certificate, now)
    }

    /// Reads the text of a certificate whose key is elsewhere.
    pub(super) fn from_certificate(certificate: &str, now: SystemTime) -> Result<(Facts, Self), Unusable> {
        let certificate = SshCertificate::parse(certificate).ok_or(Unusable::NoSshCertificate)?;
        SshKey { public: certificate.key.clone(), private: None }.with_certificate(&certificate, now)
    }

    /// The private key in OpenSSH's format.
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_ref().map_or(&[], SecretString::expose_bytes)
    }

    /// The line of the public key.
    pub(super) fn public(&self) -> String {
        format!("{}\n", self.public.to_line())
    }

    /// The line of the certificate.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }
}

#[cfg(test)]
mod tests;
