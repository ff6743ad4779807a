//! The end of what a server has made without a lease, as its content tells it: certificates of X.509 and SSH, secret
//! ids, and answers that name their end or their time to live.

use std::time::{Duration, SystemTime};

use keyward_http::tls::CertificateFacts;
use keyward_machine::clock::ClockReading;
use serde_json::Value;

use super::SecretFields;
use super::pem_blocks::PemBlock;
use crate::ssh::{SshCertificate, YEAR_9999};

/// End of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentEnd {
    /// At a time of the wall clock.
    At(SystemTime),
    /// A time after the server's response.
    After(Duration),
}

impl ContentEnd {
    /// Returns the end of a secret; `None` if its content tells none.
    ///
    /// A certificate decides alone. The authorities beside a leaf do not count: one of them may have ended long ago.
    pub(crate) fn parse(data: &SecretFields) -> Option<Self> {
        let map = data.as_map();
        let mut certificates = Certificates::default();
        map.values().for_each(|value| certificates.add(value));
        if let Some(end) = certificates.leaf.or(certificates.authority) {
            return Some(Self::At(end));
        }
        if let Some(end) = map.get("expiration").and_then(time) {
            return Some(Self::At(end));
        }
        // A static role has both, and its `ttl` is the time to the next rotation.
        if map.contains_key("rotation_period") {
            return None;
        }
        let name = if map.contains_key("secret_id") { "secret_id_ttl" } else { "ttl" };
        map.get(name).and_then(duration).filter(|ttl| !ttl.is_zero()).map(Self::After)
    }

    /// Returns the time that is left `age` after the server's response; zero once it has ended.
    pub(crate) fn remaining(self, age: Duration, now: ClockReading) -> Duration {
        match self {
            Self::At(end) => end.duration_since(now.wall).unwrap_or_default(),
            Self::After(ttl) => ttl.saturating_sub(age),
        }
    }
}

/// The earliest ends of the certificates in a secret.
#[derive(Default)]
struct Certificates {
    leaf: Option<SystemTime>,
    authority: Option<SystemTime>,
}

impl Certificates {
    /// Adds the certificates in the texts of a value.
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        let earlier = |known: Option<SystemTime>, end: SystemTime| Some(known.map_or(end, |known| known.min(end)));
        for block in PemBlock::parse_all(text).iter().filter(|block| block.label == "CERTIFICATE") {
            match CertificateFacts::parse(&block.content) {
                Some(CertificateFacts { ends, is_ca: true, .. }) => self.authority = earlier(self.authority, ends),
                Some(CertificateFacts { ends, is_ca: false, .. }) => self.leaf = earlier(self.leaf, ends),
                None => {}
            }
        }
        for end in text.lines().filter_map(|line| SshCertificate::parse(line)?.ends()) {
            self.leaf = earlier(self.leaf, end);
        }
    }
}

/// Parses a time: seconds since 1970 as a number or its digits, or a text of RFC 3339.
fn time(value: &Value) -> Option<SystemTime> {
    let text = value.as_str().map(str::trim);
    let seconds = value.as_u64().or_else(|| text?.parse().ok());
    let since = match seconds {
        Some(seconds) => Duration::from_secs(seconds.min(YEAR_9999)),
        None => humantime::parse_rfc3339(text?).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?,
    };
    // A role without an end has zero.
    (!since.is_zero()).then(|| SystemTime::UNIX_EPOCH + since)
}

/// Parses a duration: seconds as a number or its digits, or a text such as `1h30m`.
fn duration(value: &Value) -> Option<Duration> {
    let text = value.as_str().map(str::trim);
    let ttl = match value.as_u64().or_else(|| text?.parse().ok()) {
        Some(seconds) => Duration::from_secs(seconds),
        None => humantime::parse_duration(text?).ok()?,
    };
    Some(ttl.min(Duration::from_secs(YEAR_9999)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_content_tells_its_end() {
        let at = |seconds| Some(ContentEnd::At(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)));
        let after = |seconds| Some(ContentEnd::After(Duration::from_secs(seconds)));
        let check = |data: Value, expected: Option<ContentEnd>| {
            let fields = SecretFields::from(data.as_object().unwrap().clone());
            assert_eq!(ContentEnd::parse(&fields), expected, "{data}");
        };
        check(json!({ "expiration": 1_800_000_000 }), at(1_800_000_000));
        check(json!({ "expiration": "1800000000" }), at(1_800_000_000));
        check(json!({ "expiration": "2027-01-15T08:00:00Z" }), at(1_800_000_000));
        check(json!({ "expiration": "never" }), None);
        check(json!({ "expiration": 0 }), None);
        check(json!({ "secret_id": "s", "secret_id_ttl": 12 }), after(12));
        check(json!({ "secret_id": "s", "secret_id_ttl": 0 }), None);
        check(json!({ "token": "t", "ttl": 3600 }), after(3600));
        check(json!({ "token": "t", "ttl": "1h30m" }), after(5400));
        check(json!({ "password": "p", "ttl": 60, "rotation_period": 600 }), None);
        check(json!({ "ciphertext": "c" }), None);
        // The maximum of a number does not overflow.
        check(json!({ "expiration": u64::MAX }), at(YEAR_9999));
        check(json!({ "ttl": u64::MAX }), after(YEAR_9999));
        check(json!({ "expiration": -1 }), None);
    }
}
