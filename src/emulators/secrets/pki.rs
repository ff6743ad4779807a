//! PKI engine (`pki/issue/ROLE`) with a CA that is valid as long as the server runs. A role may have any name in its
//! certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber};
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
            return Err(bad(
                "the common_name field is required, or must be provided in a CSR with \"use_csr_common_name\" set to \
                 true, unless \"require_cn\" is set to false",
            ));
        }
        let addresses = list("ip_sans");
        if let Some(address) = addresses.iter().find(|address| address.parse::<IpAddr>().is_err()) {
            return Err(bad(&format!("the value {address:?} is not a valid IP address")));
        }
        let ttl = body.get("ttl").and_then(seconds).filter(|ttl| !ttl.is_zero()).unwrap_or(MAX_TTL).min(MAX_TTL);
        let not_before = now - BACKDATED;
        let names = [vec![name.to_owned()], list("alt_names"), addresses].concat();
        let issued = KeyPair::generate().and_then(|key| {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = OffsetDateTime::from(not_before);
            params.not_after = OffsetDateTime::from(now + ttl);
            params.serial_number = Some(SerialNumber::from(serial().to_vec()));
            let certificate = params.signed_by(&key, &self.issuer)?;
            Ok((certificate.der().to_vec(), key, params.serial_number))
        });
        let Ok((certificate, key, number)) = issued else {
            return Err(bad("no certificate can be issued with these names"));
        };
        let serial: Vec<String> =
            number.iter().flat_map(SerialNumber::as_ref).map(|byte| format!("{byte:02x}")).collect();
        let (label, key) = match text("private_key_format") {
            "pkcs8" => ("PRIVATE KEY", key.serialize_der()),
            _ => ("EC PRIVATE KEY", sec1::encode(&key).ok_or_else(|| bad("the key cannot be encoded"))?),
        };
        let authority = format.encode("CERTIFICATE", &self.der);
        let key = format.encode(label, &key);
        let certificate = match format {
            Format::PemBundle => [&*key, &*format.encode("CERTIFICATE", &certificate), &*authority].join("\n"),
            Format::Pem | Format::Der => format.encode("CERTIFICATE", &certificate),
        };
        let data = json!({
            "certificate": certificate, "issuing_ca": authority, "ca_chain": [authority], "private_key": key,
            "private_key_type": "ec", "serial_number": serial.join(":"), "expiration": unix_seconds(now + ttl),
            "not_before": unix_seconds(not_before),
        });
        let terms = role.generate_lease.then_some(LeaseTerms { ttl, max_ttl: ttl, renewable: false });
        Ok(IssuedCertificate { data, terms })
    }
}

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
