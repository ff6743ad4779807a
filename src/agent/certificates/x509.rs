//! An X.509 certificate with its chain and its key, as the server sends it and as files hold it.

use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use keyward_http::tls::{self, CertificateFacts};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::facts::{Facts, Unusable};
use super::policy::Life;
use crate::identity::X509Svid;
use crate::secrets::{PemBlock, SecretFields};

/// A key, leaf and chain that belong together.
#[derive(Debug, Clone)]
pub(super) struct X509Files {
    key: SecretString,
    leaf: String,
    /// The authorities, the leaf's issuer first.
    chain: Vec<Authority>,
}

#[derive(Debug, Clone)]
struct Authority {
    pem: String,
    is_root: bool,
}

impl X509Files {
    /// Reads the answer to a request, with the key of a signing request, or else with its own key.
    pub(super) fn from_answer(
        data: &SecretFields,
        key: Option<SecretString>,
        now: SystemTime,
    ) -> Result<(Facts, Self), Unusable> {
        let fields = data.as_map();
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let key = key.or_else(|| private_key(text("private_key"))).ok_or(Unusable::NoKey)?;
        let chain: Vec<&str> = match fields.get("ca_chain").and_then(Value::as_array) {
            Some(chain) if !chain.is_empty() => chain.iter().filter_map(Value::as_str).collect(),
            _ => vec![text("issuing_ca")],
        };
        let blocks = |text: &str| certificate_blocks(text);
        let mut certificates = blocks(text("certificate"));
        certificates.truncate(1);
        if certificates.is_empty() {
            return Err(Unusable::NoCertificate);
        }
        certificates.extend(chain.into_iter().flat_map(blocks));
        // Files may lack it: a bundle holds no root.
        if certificates.len() < 2 {
            return Err(Unusable::OtherIssuer);
        }
        Self::new(key, &certificates, now)
    }

    /// Reads a certificate of SPIFFE's Workload API. The authorities of its domain follow its own chain, the issuer first.
    pub(super) fn from_svid(svid: X509Svid, now: SystemTime) -> Result<(Facts, Self), Unusable> {
        let key = SecretString::from(PemBlock::new("PRIVATE KEY", svid.key).to_pem());
        let leaf = svid.chain.first().and_then(|leaf| CertificateFacts::parse(leaf)).ok_or(Unusable::Malformed)?;
        if leaf.uris != [svid.spiffe_id] {
            return Err(Unusable::OtherIdentity);
        }
        let issuer =
            svid.chain.last().and_then(|last| CertificateFacts::parse(last)).ok_or(Unusable::Malformed)?.issuer;
        let mut authorities = svid.authorities;
        let is_issuer = |der: &Vec<u8>| CertificateFacts::parse(der).is_some_and(|facts| facts.subject == issuer);
        let at = authorities.iter().position(is_issuer).ok_or(Unusable::OtherIssuer)?;
        authorities[..=at].rotate_right(1);
        let certificates = svid.chain.into_iter().chain(authorities);
        let blocks: Vec<_> = certificates.map(|der| PemBlock::new("CERTIFICATE", der)).collect();
        Self::new(key, &blocks, now)
    }

    /// Reads the texts of files: the key, and the leaf with its chain after it.
    pub(super) fn from_files(key: &str, certificates: &str, now: SystemTime) -> Result<(Facts, Self), Unusable> {
        let key = private_key(key).ok_or(Unusable::NoKey)?;
        Self::new(key, &certificate_blocks(certificates), now)
    }

    fn new(key: SecretString, certificates: &[PemBlock], now: SystemTime) -> Result<(Facts, Self), Unusable> {
        let (leaf, authorities) = certificates.split_first().ok_or(Unusable::NoCertificate)?;
        let facts = CertificateFacts::parse(&leaf.content).ok_or(Unusable::Malformed)?;
        if facts.is_ca {
            return Err(Unusable::Authority);
        }
        if facts.ends <= now {
            return Err(Unusable::Expired);
        }
        let private = PrivateKeyDer::from_pem_slice(key.expose_bytes()).map_err(|_| Unusable::OtherKey)?;
        if !tls::is_pair(vec![leaf.content.clone().into()], private) {
            return Err(Unusable::OtherKey);
        }
        let mut chain = Vec::new();
        for (index, block) in authorities.iter().enumerate() {
            let authority = CertificateFacts::parse(&block.content).ok_or(Unusable::Malformed)?;
            if index == 0 && authority.subject != facts.issuer {
                return Err(Unusable::OtherIssuer);
            }
            chain.push(Authority { pem: block.to_pem(), is_root: authority.is_self_issued() });
        }
        let fingerprint = encode_hex(digest(&SHA256, &leaf.content).as_ref());
        let life = Life { begins: facts.begins, ends: facts.ends };
        let facts = Facts { life, serial: format_serial(&facts.serial), fingerprint, uris: facts.uris };
        Ok((facts, Self { key, leaf: leaf.to_pem(), chain }))
    }

    /// The key: PKCS#8 in PEM, or the form that it was read in.
    pub(super) const fn key(&self) -> &SecretString {
        &self.key
    }

    /// The leaf in PEM.
    pub(super) fn leaf(&self) -> &str {
        &self.leaf
    }

    /// The authorities in PEM, the issuer first; for programs that check the certificates of their peers.
    pub(super) fn chain(&self) -> String {
        self.chain.iter().map(|authority| authority.pem.as_str()).collect()
    }

    /// The leaf and the authorities below the root, for servers: a peer that trusts the root has it, and another one has no use for it.
    pub(super) fn full_chain(&self) -> String {
        let authorities = self.chain.iter().filter(|authority| !authority.is_root);
        std::iter::once(self.leaf.as_str()).chain(authorities.map(|authority| authority.pem.as_str())).collect()
    }
}

fn private_key(text: &str) -> Option<SecretString> {
    let mut blocks = PemBlock::parse_all(text).into_iter();
    blocks.find(|block| block.label.ends_with("PRIVATE KEY")).map(|block| SecretString::from(block.to_pem()))
}

fn certificate_blocks(text: &str) -> Vec<PemBlock> {
    PemBlock::parse_all(text).into_iter().filter(|block| block.label == "CERTIFICATE").collect()
}

/// Formats a serial number as Vault and OpenSSL print it, such as `1a:2b`.
fn format_serial(serial: &[u8]) -> String {
    // DER puts a zero before a number whose first bit is set.
    let bytes = serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(serial);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    /// A root, an authority below it, and leaves.
    struct Authorities {
        root: String,
        middle: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    impl Authorities {
        fn new() -> Self {
            let (root_key, middle_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
            let root = authority("root").self_signed(&root_key).unwrap().pem();
            let root_issuer = Issuer::new(authority("root"), root_key);
            let middle = authority("middle").signed_by(&middle_key, &root_issuer).unwrap().pem();
            Self { root, middle, issuer: Issuer::new(authority("middle"), middle_key) }
        }

        fn leaf(&self, key: &KeyPair, hours: u64) -> String {
            let mut params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
            params.not_before = NOW.into();
            params.not_after = (NOW + Duration::from_hours(hours)).into();
            params.serial_number = Some(vec![0x9a, 0x2b].into());
            params.signed_by(key, &self.issuer).unwrap().pem()
        }
    }

    fn fields(data: &Value) -> SecretFields {
        SecretFields::from(data.as_object().unwrap().clone())
    }

    #[test]
    fn key_leaf_and_chain_are_taken_together_or_not_at_all() {
        let authorities = Authorities::new();
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let leaf = authorities.leaf(&key, 2);
        let (root, middle) = (authorities.root.trim_end(), authorities.middle.trim_end());
        let check = |data: &Value, now: u64, expected: Result<usize, Unusable>| {
            let key = SecretString::from(key.serialize_pem());
            let found = X509Files::from_answer(&fields(data), Some(key), NOW + Duration::from_hours(now));
            assert_eq!(found.map(|found| found.1.chain.len()), expected, "{data}");
        };
        let good = json!({ "certificate": leaf.trim_end(), "issuing_ca": middle, "ca_chain": [middle, root] });
        let with = |name: &str, value: Value| {
            let mut data = good.clone();
            data[name] = value;
            data
        };
        check(&good, 0, Ok(2));
        check(&with("ca_chain", json!([])), 0, Ok(1));
        check(&with("ca_chain", Value::Null), 0, Ok(1));
        check(&json!({ "certificate": leaf }), 0, Err(Unusable::OtherIssuer));
        check(&good, 2, Err(Unusable::Expired));
        check(&with("certificate", json!(authorities.leaf(&other, 2))), 0, Err(Unusable::OtherKey));
        check(&with("certificate", json!(root)), 0, Err(Unusable::Authority));
        check(&with("certificate", Value::Null), 0, Err(Unusable::NoCertificate));
        check(&with("certificate", json!(&leaf[..leaf.len() / 2])), 0, Err(Unusable::NoCertificate));
        let broken = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        check(&with("certificate", json!(broken)), 0, Err(Unusable::Malformed));
        check(&with("ca_chain", json!([broken])), 0, Err(Unusable::Malformed));
        check(&with("ca_chain", json!([root, middle])), 0, Err(Unusable::OtherIssuer));
    }

    #[test]
    fn files_hold_what_the_answer_had() {
        let authorities = Authorities::new();
        let key = KeyPair::generate().unwrap();
        let leaf = authorities.leaf(&key, 2);
        let (root, middle) = (&authorities.root, &authorities.middle);
        let data = json!({ "certificate": leaf, "ca_chain": [middle.trim_end(), root] });
        let secret = SecretString::from(key.serialize_pem());
        let (issued, first) = X509Files::from_answer(&fields(&data), Some(secret), NOW).unwrap();
        assert_eq!(issued.serial, "9a:2b");
        assert_eq!(first.chain(), format!("{middle}{root}").replace("\r\n", "\n"));
        assert_eq!(first.full_chain(), format!("{}{}", first.leaf(), middle.replace("\r\n", "\n")));
        let texts = (first.key().expose_secret(), format!("{}{}", first.leaf(), first.chain()));
        let (facts, read) = X509Files::from_files(texts.0, &texts.1, NOW).unwrap();
        assert_eq!((facts.fingerprint, read.chain()), (issued.fingerprint, first.chain()));
        assert_eq!(read.key().expose_secret(), first.key().expose_secret());
        let bundle = format!("{}{}", texts.1, texts.0);
        assert!(X509Files::from_files(&bundle, &bundle, NOW).is_ok());
        let other = KeyPair::generate().unwrap().serialize_pem();
        let found = X509Files::from_files(&other, &texts.1, NOW).map(|_| ());
        assert_eq!(found, Err(Unusable::OtherKey));
        assert_eq!(X509Files::from_files("", &texts.1, NOW).map(|_| ()), Err(Unusable::NoKey));
    }

    #[test]
    fn a_key_of_the_answer_is_used_if_it_fits() {
        let authorities = Authorities::new();
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let with = |key: Value| {
            let leaf = authorities.leaf(&other, 2);
            fields(&json!({ "certificate": leaf, "issuing_ca": authorities.middle, "private_key": key }))
        };
        let read = |key: Value| X509Files::from_answer(&with(key), None, NOW).map(|found| found.1.key);
        assert_eq!(read(Value::Null).map(|_| ()), Err(Unusable::NoKey));
        assert_eq!(read(json!(key.serialize_pem())).map(|_| ()), Err(Unusable::OtherKey));
        assert_eq!(read(json!(other.serialize_pem().trim_end())).unwrap().expose_secret(), other.serialize_pem());
    }

    #[test]
    fn a_debug_text_does_not_hold_the_key() {
        let authorities = Authorities::new();
        let key = KeyPair::generate().unwrap();
        let data = json!({ "certificate": authorities.leaf(&key, 2), "issuing_ca": authorities.middle });
        let secret = SecretString::from(key.serialize_pem());
        let issued = X509Files::from_answer(&fields(&data), Some(secret), NOW).unwrap();
        let line = key.serialize_pem().lines().nth(1).unwrap().to_owned();
        assert!(!format!("{issued:?}").contains(&line));
    }
}
