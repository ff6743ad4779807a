//! The webhook's certificate: made for one authority whose key nobody keeps, stored in a Secret, and replaced before its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_http::tls::CertificateFacts;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

/// Life of a certificate.
const LIFE: Duration = Duration::from_hours(90 * 24);

/// Time before now at which a certificate begins: clocks differ.
const BACKDATE: Duration = Duration::from_hours(1);

/// Keys of the Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const PREVIOUS_AUTHORITY: &str = "previous-ca.crt";

/// A certificate with its key, and the authorities that callers trust.
#[derive(Clone)]
pub(crate) struct WebhookCertificate {
    certificate: String,
    key: String,
    authority: String,
    /// Authority of the certificate before: replicas may serve that one still.
    previous_authority: Option<String>,
}

impl std::fmt::Debug for WebhookCertificate {
    /// Prints no key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookCertificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Reason why a stored certificate is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The Secret has none.
    Missing,
    /// It is for another name, has expired, or its parts do not belong together.
    Invalid,
}

/// A stored certificate that can be served.
#[derive(Debug, Clone)]
pub(crate) struct UsableCertificate {
    pub(crate) stored: WebhookCertificate,
    pub(crate) certified: Arc<CertifiedKey>,
    /// End of the certificate.
    pub(crate) ends: SystemTime,
}

impl WebhookCertificate {
    /// Makes a certificate for `name` by a new authority. The authority's key is dropped: it signs nothing else.
    pub(crate) fn generate(name: &str, now: SystemTime, previous: Option<&Self>) -> Result<Self, rcgen::Error> {
        let not_before = now.checked_sub(BACKDATE).unwrap_or(now);
        let not_after = now.checked_add(LIFE).unwrap_or(now);
        let dated = |mut params: CertificateParams, common_name: String| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.not_before = OffsetDateTime::from(not_before);
            params.not_after = OffsetDateTime::from(not_after);
            params
        };
        let authority_key = KeyPair::generate()?;
        // Each authority has a name of its own: a bundle has two of them.
        let made = OffsetDateTime::from(now).unix_timestamp();
        let mut params = dated(CertificateParams::default(), format!("keyward injector {made}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate()?;
        let mut params = dated(CertificateParams::new(vec![name.to_owned()])?, "keyward injector".to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Self {
            certificate,
            key: key.serialize_pem(),
            authority,
            previous_authority: previous.map(|previous| previous.authority.clone()),
        })
    }

    /// Reads the certificate of a Secret; `None` if the Secret has none.
    pub(crate) fn read(secret: &Value) -> Option<Self> {
        let data: BTreeMap<String, String> = serde_json::from_value(secret["data"].clone()).ok()?;
        let text = |name: &str| String::from_utf8(STANDARD.decode(data.get(name)?).ok()?).ok();
        Some(Self {
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            authority: text(AUTHORITY)?,
            previous_authority: text(PREVIOUS_AUTHORITY),
        })
    }

    /// Writes the certificate into a Secret that was read. Other keys of the Secret stay.
    pub(crate) fn write(&self, secret: &mut Value) {
        let mut data = secret["data"].as_object().cloned().unwrap_or_default();
        let put = |data: &mut Map<String, Value>, name: &str, text: &str| {
            data.insert(name.to_owned(), json!(STANDARD.encode(text)));
        };
        put(&mut data, CERTIFICATE, &self.certificate);
        put(&mut data, KEY, &self.key);
        put(&mut data, AUTHORITY, &self.authority);
        data.remove(PREVIOUS_AUTHORITY);
        if let Some(previous) = &self.previous_authority {
            put(&mut data, PREVIOUS_AUTHORITY, previous);
        }
        secret["data"] = Value::Object(data);
    }

    /// Checks that the certificate can be served by this name now, by its own authority.
    pub(crate) fn verify(self, name: &str, now: SystemTime) -> Result<UsableCertificate, Unusable> {
        self.try_verify(name, now).ok_or(Unusable::Invalid)
    }

    fn try_verify(self, name: &str, now: SystemTime) -> Option<UsableCertificate> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let leaf = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        let authority = CertificateDer::from_pem_slice(self.authority.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).ok()?;
        let certified = CertifiedKey::from_der(vec![leaf.clone()], key, &provider).ok()?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).ok()?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        let at = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).ok()?);
        let server = ServerName::try_from(name.to_owned()).ok()?;
        verifier.verify_server_cert(&leaf, &[], &server, &[], at).ok()?;
        let ends = CertificateFacts::parse(&leaf)?.ends;
        Some(UsableCertificate { stored: self, certified: Arc::new(certified), ends })
    }

    /// Returns the authorities that the API server has to trust, in PEM.
    pub(crate) fn authorities(&self) -> String {
        let previous = self.previous_authority.as_deref().unwrap_or_default();
        format!("{}{previous}", self.authority)
    }

    /// Returns true if both are the same certificate.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }
}

impl UsableCertificate {
    /// Returns the time until the certificate is to be replaced: at two thirds of its life, give or take `unit` (`0.0..1.0`), so
    /// that not all replicas try at once.
    pub(crate) fn time_to_renewal(&self, now: SystemTime, unit: f64) -> Duration {
        let begun = self.ends.checked_sub(LIFE).unwrap_or(SystemTime::UNIX_EPOCH);
        let due = begun.checked_add(keyward_credentials::backoff::time_to_renewal(LIFE, unit)).unwrap_or(self.ends);
        due.duration_since(now).unwrap_or_default()
    }
}

/// Returns the operations of a JSON patch that give each webhook of a configuration these authorities; none if they have them.
pub(crate) fn authority_operations(configuration: &Value, authorities: &str) -> Vec<Value> {
    let encoded = STANDARD.encode(authorities);
    let webhooks = configuration["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let differs = |(_, webhook): &(usize, &Value)| webhook["clientConfig"]["caBundle"].as_str() != Some(&encoded);
    let operation = |(place, webhook): (usize, &Value)| {
        [
            // Another webhook at this place would get the authorities of this one.
            json!({"op": "test", "path": format!("/webhooks/{place}/name"), "value": webhook["name"]}),
            json!({"op": "add", "path": format!("/webhooks/{place}/clientConfig/caBundle"), "value": encoded}),
        ]
    };
    webhooks.iter().enumerate().filter(differs).flat_map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "keyward-webhook.team.svc";

    #[test]
    fn a_certificate_is_used_by_its_name_and_within_its_life() {
        let now = SystemTime::now();
        let made = WebhookCertificate::generate(NAME, now, None).unwrap();
        let usable = made.clone().verify(NAME, now).unwrap();
        let life = usable.ends.duration_since(now).unwrap();
        assert!(life <= LIFE && life + Duration::from_secs(2) > LIFE, "{life:?}");
        let renewal = usable.time_to_renewal(now, 0.5);
        assert!(renewal > LIFE.mul_f64(0.62) && renewal < LIFE.mul_f64(0.71), "{renewal:?}");
        assert_eq!(usable.time_to_renewal(now + LIFE, 0.5), Duration::ZERO);
        let refused = |name: &str, now: SystemTime| made.clone().verify(name, now).unwrap_err();
        assert_eq!(refused("other.team.svc", now), Unusable::Invalid);
        assert_eq!(refused(NAME, now + LIFE + Duration::from_secs(1)), Unusable::Invalid);
        assert_eq!(refused(NAME, now - BACKDATE * 2), Unusable::Invalid);
        let other = WebhookCertificate::generate(NAME, now, None).unwrap();
        let mixed = WebhookCertificate { key: other.key, ..made.clone() };
        assert_eq!(mixed.verify(NAME, now).unwrap_err(), Unusable::Invalid);
        let foreign = WebhookCertificate { authority: other.authority, ..made.clone() };
        assert_eq!(foreign.verify(NAME, now).unwrap_err(), Unusable::Invalid);
        assert!(!format!("{made:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_secret_keeps_the_certificate_and_the_authority_before() {
        let now = SystemTime::now();
        let first = WebhookCertificate::generate(NAME, now, None).unwrap();
        let second = WebhookCertificate::generate(NAME, now, Some(&first)).unwrap();
        let mut secret = json!({"metadata": {"name": "a"}, "data": {"other": "eA=="}});
        assert!(WebhookCertificate::read(&secret).is_none());
        second.write(&mut secret);
        let read = WebhookCertificate::read(&secret).unwrap();
        assert!(read.is_same(&second) && !read.is_same(&first));
        assert_eq!(read.authorities(), format!("{}{}", second.authority, first.authority));
        assert_eq!((secret["data"]["other"].as_str(), secret["metadata"]["name"].as_str()), (Some("eA=="), Some("a")));
        first.write(&mut secret);
        assert_eq!(WebhookCertificate::read(&secret).unwrap().authorities(), first.authority);
    }

    #[test]
    fn only_webhooks_with_other_authorities_are_changed() {
        let has = STANDARD.encode("a");
        let configuration = json!({"webhooks": [
            {"name": "one", "clientConfig": {"caBundle": has}}, {"name": "two", "clientConfig": {}}
        ]});
        let operations = authority_operations(&configuration, "a");
        assert_eq!(operations.len(), 2);
        assert_eq!(operations[1], json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": has}));
        assert!(authority_operations(&json!({}), "a").is_empty());
    }
}
