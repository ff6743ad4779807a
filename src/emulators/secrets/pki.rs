//! PKI engine (`pki/issue/ROLE`) with a CA that is valid as long as the server runs. Every role may have any name.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::reply::{WrappableResponse, refusal, success};
use super::route::{Verb, seconds};

/// The CA.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Creates a CA; `None` if the kernel returns no random bytes.
    pub(super) fn new() -> Option<Self> {
        let key = KeyPair::generate().ok()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "keyward emulated authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).ok()?.pem();
        Some(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Handles a request below `pki/`. `now` is the time for the certificate's dates.
    pub(super) fn response(&self, verb: Verb, path: &str, body: &Value, now: SystemTime) -> WrappableResponse {
        match (path.strip_prefix("issue/"), path, verb) {
            (Some(_), _, Verb::Write) => self.issue(body, now),
            (None, "cert/ca", Verb::Read) => success("data", json!({ "certificate": self.pem })),
            _ => refusal(StatusCode::NOT_FOUND, "no handler for route"),
        }
    }

    fn issue(&self, body: &Value, now: SystemTime) -> WrappableResponse {
        let list = |name: &str| -> Vec<String> {
            let text = body.get(name).and_then(Value::as_str).unwrap_or_default();
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let Some(name) = body.get("common_name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return refusal(StatusCode::BAD_REQUEST, "the common_name field is required, or must be provided");
        };
        let addresses = list("ip_sans");
        if addresses.iter().any(|address| address.parse::<IpAddr>().is_err()) {
            return refusal(StatusCode::BAD_REQUEST, "the value of ip_sans is not a valid IP address");
        }
        let ttl = body.get("ttl").and_then(seconds).unwrap_or(DEFAULT_TTL).min(MAX_TTL);
        let names = [vec![name.to_owned()], list("alt_names"), addresses].concat();
        let issued = KeyPair::generate().and_then(|key| {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = OffsetDateTime::from(now - Duration::from_secs(30));
            params.not_after = OffsetDateTime::from(now + ttl);
            params.serial_number = Some(SerialNumber::from(serial().to_vec()));
            let certificate = params.signed_by(&key, &self.issuer)?;
            Ok((certificate.pem(), key.serialize_pem(), params.serial_number))
        });
        let Ok((certificate, key, number)) = issued else {
            return refusal(StatusCode::BAD_REQUEST, "no certificate can be issued with these names");
        };
        let serial: Vec<String> =
            number.iter().flat_map(SerialNumber::as_ref).map(|byte| format!("{byte:02x}")).collect();
        let expiration = (now + ttl).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        success(
            "data",
            json!({
                "certificate": certificate, "issuing_ca": self.pem, "ca_chain": [self.pem], "private_key": key,
                "private_key_type": "ec", "serial_number": serial.join(":"), "expiration": expiration,
            }),
        )
    }
}

fn serial() -> [u8; 16] {
    let mut bytes = [0_u8; 16];
    // Best effort: a repeated serial number harms only the emulation.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    // Serial numbers are positive (RFC 5280).
    bytes[0] = bytes[0] & 0x7f | 0x01;
    bytes
}

const DEFAULT_TTL: Duration = Duration::from_hours(24);
const MAX_TTL: Duration = Duration::from_hours(24 * 365);
