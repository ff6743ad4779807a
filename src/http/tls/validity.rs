//! The time in which certificates are valid, read from their DER (RFC 5280, 4.1).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use time::{Date, Month, PrimitiveDateTime, Time};

use super::der::{BOOLEAN, Der, GENERALIZED_TIME, INTEGER, OBJECT_ID, OCTET_STRING, SEQUENCE, UTC_TIME};

/// The end of a set of certificates, and the time from which operators are warned of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// 14 days before the end, or after two thirds of a shorter life.
    pub warn_at: SystemTime,
    /// The end of the certificate that is due first.
    pub ends: SystemTime,
}

/// The expiry of the certificate that is due first. A certificate whose subject has another one that ends later is
/// left out: its successor is there. `None` without a certificate whose dates can be read.
pub fn expiry(certificates: &[CertificateDer<'_>]) -> Option<Expiry> {
    let mut latest: BTreeMap<&[u8], Expiry> = BTreeMap::new();
    for certificate in certificates {
        let Some(Validity { subject, begins, ends, .. }) = Validity::parse(certificate) else { continue };
        let life = ends.duration_since(begins).unwrap_or_default();
        let expiry = Expiry { warn_at: ends.checked_sub(NOTICE.min(life / 3)).unwrap_or(ends), ends };
        let entry = latest.entry(subject).or_insert(expiry);
        if entry.ends < expiry.ends {
            *entry = expiry;
        }
    }
    latest.into_values().min()
}

/// The facts of a certificate that decide how long it is of use, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Serial number, as the bytes of an integer.
    pub serial: Vec<u8>,
    /// Name of the issuer in DER.
    pub issuer: Vec<u8>,
    /// Name of the subject in DER.
    pub subject: Vec<u8>,
    /// Its beginning.
    pub begins: SystemTime,
    /// Its end.
    pub ends: SystemTime,
    /// It is an authority's, by its basic constraints.
    pub is_ca: bool,
    /// URIs among its alternative names, such as SPIFFE ids.
    pub uris: Vec<String>,
}

impl CertificateFacts {
    /// Reads a certificate's DER; `None` if it is not one. Its signature is not checked.
    pub fn parse(certificate: &[u8]) -> Option<Self> {
        let (validity, rest) = Validity::parse_with_rest(certificate)?;
        let Validity { serial, issuer, subject, begins, ends } = validity;
        Some(Self {
            serial: serial.to_vec(),
            issuer: issuer.to_vec(),
            subject: subject.to_vec(),
            begins,
            ends,
            is_ca: extension(rest, BASIC_CONSTRAINTS).is_some_and(is_ca),
            uris: extension(rest, ALTERNATIVE_NAMES).map(uris).unwrap_or_default(),
        })
    }

    /// Returns true for the certificate of an authority at the end of a chain, whose issuer is itself.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }
}

/// Time before the end of a certificate from which it counts as expiring; at most a third of its life.
const NOTICE: Duration = Duration::from_hours(14 * 24);

struct Validity<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    /// The subject's name in DER; empty in a leaf that is named only by its alternative names.
    subject: &'a [u8],
    begins: SystemTime,
    ends: SystemTime,
}

impl<'a> Validity<'a> {
    fn parse(certificate: &'a [u8]) -> Option<Self> {
        Self::parse_with_rest(certificate).map(|(validity, _)| validity)
    }

    /// Parses a certificate, and returns the rest of its signed part: the key, and the extensions.
    fn parse_with_rest(certificate: &'a [u8]) -> Option<(Self, Der<'a>)> {
        let mut signed = Der(Der(certificate).element(SEQUENCE)?);
        let mut to_be_signed = Der(signed.element(SEQUENCE)?);
        // Version (only in versions 2 and 3), serial number, signature algorithm, issuer.
        let _ = to_be_signed.element(VERSION);
        let serial = to_be_signed.element(INTEGER)?;
        to_be_signed.element(SEQUENCE)?;
        let issuer = to_be_signed.element(SEQUENCE)?;
        let mut validity = Der(to_be_signed.element(SEQUENCE)?);
        let begins = take_time(&mut validity)?;
        let ends = take_time(&mut validity)?;
        let subject = to_be_signed.element(SEQUENCE)?;
        Some((Self { serial, issuer, subject, begins, ends }, to_be_signed))
    }
}

/// Finds the value of an extension.
fn extension<'a>(mut to_be_signed: Der<'a>, wanted: &[u8]) -> Option<&'a [u8]> {
    to_be_signed.element(SEQUENCE)?;
    for unique_id in [ISSUER_ID, SUBJECT_ID] {
        let _ = to_be_signed.element(unique_id);
    }
    let mut extensions = Der(Der(to_be_signed.element(EXTENSIONS)?).element(SEQUENCE)?);
    while let Some(extension) = extensions.element(SEQUENCE) {
        let mut extension = Der(extension);
        let id = extension.element(OBJECT_ID)?;
        let _is_critical = extension.element(BOOLEAN);
        let value = extension.element(OCTET_STRING)?;
        if id == wanted {
            return Some(value);
        }
    }
    None
}

/// Reads basic constraints (RFC 5280, 4.2.1.9).
fn is_ca(value: &[u8]) -> bool {
    let constraints = Der(value).element(SEQUENCE);
    constraints.and_then(|content| Der(content).element(BOOLEAN)).is_some_and(|flag| flag != [0])
}

/// Reads the URIs of alternative names (RFC 5280, 4.2.1.6).
fn uris(value: &[u8]) -> Vec<String> {
    let mut names = Der(Der(value).element(SEQUENCE).unwrap_or_default());
    let mut uris = Vec::new();
    while let Some(&tag) = names.0.first() {
        let Some(name) = names.element(tag) else { break };
        if tag == URI {
            uris.extend(str::from_utf8(name).ok().map(str::to_owned));
        }
    }
    uris
}

/// 2.5.29.19.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Context-specific tag of a name that is a URI.
const URI: u8 = 0x86;

// Context-specific tags of a certificate (RFC 5280, 4.1).
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;

/// Takes the next element of a value, a time: `YYMMDDHHMMSSZ` from 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn take_time(der: &mut Der<'_>) -> Option<SystemTime> {
    let (text, short) = match der.element(UTC_TIME) {
        Some(text) => (text, true),
        None => (der.element(GENERALIZED_TIME)?, false),
    };
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = digits.split_at_checked(if short { 2 } else { 4 })?;
    let year: i32 = year.parse().ok()?;
    // RFC 5280, 4.1.2.5.1.
    let year = if short { year + if year < 50 { 2000 } else { 1900 } } else { year };
    let mut parts = [0_u8; 5];
    for (index, part) in parts.iter_mut().enumerate() {
        *part = rest.get(2 * index..2 * index + 2)?.parse().ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    Some(PrimitiveDateTime::new(date, Time::from_hms(hour, minute, second).ok()?).assume_utc().into())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(name: &str, begins: (i32, u8, u8), ends: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(begins.0, begins.1, begins.2);
        params.not_after = date_time_ymd(ends.0, ends.1, ends.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    #[test]
    fn uris_are_found_among_all_alternative_names() {
        let mut params = CertificateParams::new(vec!["web.example".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        let uris = ["spiffe://example.org/web", "https://web.example/"];
        params.subject_alt_names.extend(uris.map(|uri| rcgen::SanType::URI(uri.try_into().unwrap())));
        params.is_ca = rcgen::IsCa::ExplicitNoCa;
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let facts = CertificateFacts::parse(der.der()).unwrap();
        assert!(facts.uris == uris && !facts.is_ca, "{facts:?}");
        let other = certificate("a", (2026, 1, 1), (2027, 1, 1));
        assert!(CertificateFacts::parse(&other).unwrap().uris.is_empty());
        for length in 0..der.der().len() {
            let _ = CertificateFacts::parse(&der.der()[..length]);
        }
    }

    fn day(year: i32, month: u8, day: u8) -> SystemTime {
        date_time_ymd(year, month, day).into()
    }

    #[test]
    fn the_certificate_that_is_due_first_decides_and_one_with_a_successor_does_not() {
        let long = certificate("long", (2025, 1, 1), (2026, 1, 1));
        assert_eq!(
            expiry(std::slice::from_ref(&long)),
            Some(Expiry { warn_at: day(2025, 12, 18), ends: day(2026, 1, 1) })
        );
        let short = certificate("short", (2025, 1, 1), (2025, 1, 31));
        let due = Expiry { warn_at: day(2025, 1, 21), ends: day(2025, 1, 31) };
        assert_eq!(expiry(&[long.clone(), short.clone()]), Some(due), "a third of 30 days");
        let next = certificate("short", (2025, 1, 20), (2060, 1, 1));
        assert_eq!(expiry(&[short, next, long]).unwrap().ends, day(2026, 1, 1), "2060 is a GeneralizedTime");
        assert_eq!(expiry(&[]), None);
    }

    #[test]
    fn an_authority_is_told_from_a_leaf() {
        let facts = |change: fn(&mut CertificateParams)| {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_before = date_time_ymd(2029, 1, 1);
            params.not_after = date_time_ymd(2030, 1, 1);
            params.serial_number = Some(vec![7, 8].into());
            change(&mut params);
            let facts =
                CertificateFacts::parse(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der()).unwrap();
            assert!(facts.is_self_issued() && facts.serial == [7, 8]);
            (facts.begins, facts.ends, facts.is_ca)
        };
        let expected = |is_ca| (day(2029, 1, 1), day(2030, 1, 1), is_ca);
        assert_eq!(facts(|_| {}), expected(false));
        assert_eq!(facts(|params| params.is_ca = rcgen::IsCa::ExplicitNoCa), expected(false));
        let authority = |params: &mut CertificateParams| {
            params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        };
        assert_eq!(facts(authority), expected(true));
        assert_eq!(CertificateFacts::parse(b"-----BEGIN CERTIFICATE-----"), None);
    }

    #[test]
    fn a_truncated_certificate_has_no_dates() {
        let certificate = certificate("a", (2025, 1, 1), (2026, 1, 1));
        assert!(Validity::parse(&certificate).is_some());
        for end in 0..certificate.len() {
            assert!(Validity::parse(&certificate[..end]).is_none(), "{end}");
        }
    }
}
