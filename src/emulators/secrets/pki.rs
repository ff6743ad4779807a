//! PKI engine (`pki/issue/ROLE`, `pki/sign/ROLE`) with a CA that is valid as long as the server runs. A role may have any name in its
//! certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::leases::LeaseTerms;
use super::reply::{WrappableResponse, refusal, success};
use super::route::seconds;
use super::sec1;
use super::tokens::unix_seconds;

/// A role of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertificateRole {
    /// Certificates have a lease, which cannot be renewed.
    pub generate_lease: bool,
}

/// The CA.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// An issued certificate with its lease terms, if its role leases.
#[derive(Debug)]
pub(super) struct IssuedCertificate {
    pub(super) data: Value,
    /// Warnings in the answer.
    pub(super) warnings: Vec<String>,
    pub(super) terms: Option<LeaseTerms>,
}

impl Authority {
    /// Creates a CA; `None` if the kernel returns no random bytes.
    pub(super) fn new() -> Option<Self> {
        let key = KeyPair::generate().ok()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "keyward emulated authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let der = params.self_signed(&key).ok()?.der().to_vec();
        Some(Self { issuer: Issuer::new(params, key), der })
    }

    /// Handles a read below `pki/`, which needs no token.
    pub(super) fn read(&self, path: &str) -> Option<WrappableResponse> {
        let pem = || encode_pem("CERTIFICATE", &self.der);
        let certificate = || {
            json!({
                "certificate": pem(), "revocation_time": 0, "revocation_time_rfc3339": "",
            })
        };
        Some(match path {
            "cert/ca" => success("data", certificate()),
            "cert/ca_chain" => success(
                "data",
                json!({
                    "certificate": pem(), "ca_chain": pem(), "revocation_time": 0, "revocation_time_rfc3339": "",
                }),
            ),
            "ca/pem" | "ca_chain" => WrappableResponse::Text("application/pem-certificate-chain", pem()),
            _ => return None,
        })
    }

    /// Handles `pki/issue/ROLE`. `now` is the time for the certificate's dates.
    pub(super) fn issue(
        &self,
        roles: &BTreeMap<String, CertificateRole>,
        role: &str,
        body: &Value,
        now: SystemTime,
    ) -> Result<IssuedCertificate, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let list = |name: &str| -> Vec<String> {
            text(name).split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let role = roles.get(role).ok_or_else(|| bad(&format!("unknown role: {role}")))?;
        let format = Format::parse(text("format"))
            .ok_or_else(|| bad("the \"format\" path parameter must be \"pem\", \"der\", or \"pem_bundle\""))?;
        let name = text("common_name");
        if name.is_empty() {
            return Err(bad(NO_COMMON_NAME));
        }
        let addresses = list("ip_sans");
        if let Some(address) = addresses.iter().find(|address| address.parse::<IpAddr>().is_err()) {
            return Err(bad(&format!("the value {address:?} is not a valid IP address")));
        }
        let names = [vec![name.to_owned()], list("alt_names"), addresses].concat();
        let issued = KeyPair::generate().and_then(|key| {
            let params = CertificateParams::new(names)?;
            let signed = self.sign(params, name.into(), &key, requested_ttl(body), now)?;
            Ok((signed, key))
        });
        let Ok((signed, key)) = issued else {
            return Err(bad("no certificate can be issued with these names"));
        };
        let (label, key) = match text("private_key_format") {
            "pkcs8" => ("PRIVATE KEY", key.serialize_der()),
            _ => ("EC PRIVATE KEY", sec1::encode(&key).ok_or_else(|| bad("the key cannot be encoded"))?),
        };
        let key = format.encode(label, &key);
        let mut data = self.answer(&signed, format, Some(&key));
        data["private_key"] = key.into();
        data["private_key_type"] = "ec".into();
        Ok(signed.into_issued(data, *role))
    }

    /// Handles `pki/sign/ROLE`. The names are those of the signing request, as with the real server's defaults
    /// (`use_csr_common_name`, `use_csr_sans`).
    pub(super) fn sign_request(
        &self,
        roles: &BTreeMap<String, CertificateRole>,
        role: &str,
        body: &Value,
        now: SystemTime,
    ) -> Result<IssuedCertificate, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let role = roles.get(role).ok_or_else(|| bad(&format!("unknown role: {role}")))?;
        let format = Format::parse(text("format"))
            .ok_or_else(|| bad("the \"format\" path parameter must be \"pem\", \"der\", or \"pem_bundle\""))?;
        if text("csr").is_empty() {
            return Err(bad("\"csr\" is empty"));
        }
        let request = CertificateSigningRequestParams::from_pem(text("csr"));
        let CertificateSigningRequestParams { params: requested, public_key } =
            request.map_err(|error| bad(&format!("certificate request could not be parsed: {error}")))?;
        let name = match requested.distinguished_name.get(&DnType::CommonName) {
            Some(name) => name.clone(),
            None if text("common_name").is_empty() => return Err(bad(NO_COMMON_NAME)),
            None => text("common_name").into(),
        };
        let mut params = CertificateParams::default();
        params.subject_alt_names = requested.subject_alt_names;
        if let DnValue::Utf8String(name) = &name
            && let Ok(host) = name.as_str().try_into().map(SanType::DnsName)
            && !params.subject_alt_names.contains(&host)
        {
            params.subject_alt_names.push(host);
        }
        let signed = self.sign(params, name, &public_key, requested_ttl(body), now);
        let signed = signed.map_err(|_| bad("no certificate can be issued with these names"))?;
        let data = self.answer(&signed, format, None);
        let ignored = [("common_name", "use_csr_common_name"), ("alt_names", "use_csr_sans")];
        let ignored = ignored.into_iter().filter(|(field, _)| !text(field).is_empty());
        let warnings = ignored.map(|(field, setting)| {
            format!("the {field} field was provided but the role is set with \"{setting}\" set to true")
        });
        Ok(IssuedCertificate { warnings: warnings.collect(), ..signed.into_issued(data, *role) })
    }

    /// Signs a certificate for a public key.
    fn sign(
        &self,
        mut params: CertificateParams,
        name: DnValue,
        key: &impl PublicKeyData,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<SignedCertificate, rcgen::Error> {
        let (not_before, serial) = (now - BACKDATED, serial());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = OffsetDateTime::from(not_before);
        params.not_after = OffsetDateTime::from(now + ttl);
        params.serial_number = Some(SerialNumber::from(serial.to_vec()));
        let der = params.signed_by(key, &self.issuer)?.der().to_vec();
        Ok(SignedCertificate { der, serial, not_before, ends: now + ttl, ttl })
    }

    /// Builds the fields of an answer that do not hold a key; `pem_bundle` puts the key in front of the certificate.
    fn answer(&self, signed: &SignedCertificate, format: Format, key: Option<&str>) -> Value {
        let authority = format.encode("CERTIFICATE", &self.der);
        let leaf = format.encode("CERTIFICATE", &signed.der);
        let certificate = match format {
            Format::PemBundle => key.into_iter().chain([&*leaf, &*authority]).collect::<Vec<_>>().join("\n"),
            Format::Pem | Format::Der => leaf,
        };
        let serial: Vec<String> = signed.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({
            "certificate": certificate, "issuing_ca": authority, "ca_chain": [authority],
            "serial_number": serial.join(":"), "expiration": unix_seconds(signed.ends),
            "not_before": unix_seconds(signed.not_before),
        })
    }
}

/// A signed certificate.
struct SignedCertificate {
    der: Vec<u8>,
    serial: [u8; 20],
    not_before: SystemTime,
    ends: SystemTime,
    ttl: Duration,
}

impl SignedCertificate {
    fn into_issued(self, data: Value, role: CertificateRole) -> IssuedCertificate {
        let terms = LeaseTerms { ttl: self.ttl, max_ttl: self.ttl, renewable: false };
        IssuedCertificate { data, warnings: Vec::new(), terms: role.generate_lease.then_some(terms) }
    }
}

fn requested_ttl(body: &Value) -> Duration {
    body.get("ttl").and_then(seconds).filter(|ttl| !ttl.is_zero()).unwrap_or(MAX_TTL).min(MAX_TTL)
}

const NO_COMMON_NAME: &str = "the common_name field is required, or must be provided in a CSR with \"use_csr_common_name\" set to \
                              true, unless \"require_cn\" is set to false";

/// Encoding of certificates and keys, by the parameter `format`.
#[derive(Debug, Clone, Copy)]
enum Format {
    Pem,
    /// Base64 without lines.
    Der,
    /// The certificate is one text with its key and its CA.
    PemBundle,
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "pem" => Self::Pem,
            "der" => Self::Der,
            "pem_bundle" => Self::PemBundle,
            _ => return None,
        })
    }

    fn encode(self, label: &str, der: &[u8]) -> String {
        match self {
            Self::Der => STANDARD.encode(der),
            Self::Pem | Self::PemBundle => encode_pem(label, der),
        }
    }
}

/// Encodes PEM without a line break at its end: the real server trims it.
fn encode_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (at, c) in text.char_indices() {
        if at > 0 && at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + &format!("\n-----END {label}-----")
}

fn serial() -> [u8; 20] {
    let mut bytes = [0_u8; 20];
    // Best effort: a repeated serial number harms only the emulation.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    // Serial numbers are positive (RFC 5280).
    bytes[0] = bytes[0] & 0x7f | 0x01;
    bytes
}

/// Default of the real server's `not_before_duration`.
const BACKDATED: Duration = Duration::from_secs(30);
/// Default of the real server's `max_lease_ttl`, and of its `default_lease_ttl`.
const MAX_TTL: Duration = Duration::from_hours(768);
