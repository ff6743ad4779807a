//! Cacheable responses of the server: plain values, or credentials and tokens with a lease.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::server_client::SecretLease;
use crate::token::{ClientToken, Lease};

/// Kind of a cacheable response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EntryKind {
    /// Values that stay until they are written.
    Plain,
    /// Credentials or tokens that are issued to the requester, with a lease.
    Leased,
}

/// The body of a cacheable response. `Debug` prints its length only.
pub(crate) struct CacheEntry {
    body: Bytes,
    /// Position of the lifetime in the body, and the lease.
    lease_ref: Option<(Range<usize>, LeaseRef)>,
    /// The body as it was served last, and its remaining seconds: it is rebuilt once a second at most.
    served: Mutex<Option<(u64, Bytes)>>,
}

impl fmt::Debug for CacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheEntry").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The lease of an entry.
#[derive(Debug, Clone)]
pub(super) enum LeaseRef {
    /// The lease of a secret.
    Secret(SecretLease),
    /// A token with its lease and its accessor.
    Token(ClientToken, Lease, Option<String>),
}

impl LeaseRef {
    pub(super) const fn lease(&self) -> Lease {
        match self {
            Self::Secret(lease) => lease.lease,
            Self::Token(_, lease, _) => *lease,
        }
    }
}

#[derive(Deserialize)]
struct ResponseFields<'a> {
    #[serde(default)]
    lease_id: Option<String>,
    #[serde(borrow, default)]
    lease_duration: Option<&'a RawValue>,
    #[serde(default)]
    renewable: Option<bool>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    auth: Option<AuthFields<'a>>,
    #[serde(borrow, default)]
    wrap_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct AuthFields<'a> {
    #[serde(borrow)]
    client_token: &'a str,
    #[serde(borrow, default)]
    lease_duration: Option<&'a RawValue>,
    #[serde(default)]
    renewable: bool,
    #[serde(default)]
    num_uses: u64,
    #[serde(default)]
    accessor: Option<String>,
}

impl CacheEntry {
    /// Parses the body of a successful response; `None` if it is of another kind, or for one reader only: response-wrapped, or
    /// a token with a number of uses.
    pub(crate) fn parse(kind: EntryKind, body: &[u8]) -> Option<Self> {
        let response: ResponseFields<'_> = serde_json::from_slice(body).ok()?;
        if response.wrap_info.is_some() {
            return None;
        }
        let lease_id = response.lease_id.filter(|id| !id.is_empty());
        let lease_ref = match (kind, response.auth, lease_id) {
            (EntryKind::Plain, None, None) => {
                response.data?;
                None
            }
            (EntryKind::Leased, Some(auth), None) if auth.num_uses == 0 => {
                let (position, ttl) = parse_lifetime(body, auth.lease_duration?)?;
                let token = ClientToken::parse(SecretString::from(auth.client_token))?;
                let accessor = auth.accessor.filter(|accessor| !accessor.is_empty());
                Some((position, LeaseRef::Token(token, Lease { ttl, renewable: auth.renewable }, accessor)))
            }
            (EntryKind::Leased, None, Some(id)) => {
                let (position, ttl) = parse_lifetime(body, response.lease_duration?)?;
                let lease = Lease { ttl, renewable: response.renewable.unwrap_or_default() };
                Some((position, LeaseRef::Secret(SecretLease { id, lease })))
            }
            _ => return None,
        };
        Some(Self { body: Bytes::copy_from_slice(body), lease_ref, served: Mutex::new(None) })
    }

    /// Returns the body with the remaining lifetime instead of the original one.
    pub(super) fn body(&self, remaining: Duration) -> Bytes {
        let Some((position, _)) = &self.lease_ref else { return self.body.clone() };
        let seconds = remaining.as_secs();
        let mut served = self.served.lock();
        if let Some((_, body)) = served.as_ref().filter(|(then, _)| *then == seconds) {
            return body.clone();
        }
        let digits = seconds.to_string();
        let mut body = Vec::with_capacity(self.body.len() + digits.len());
        body.extend_from_slice(&self.body[..position.start]);
        body.extend_from_slice(digits.as_bytes());
        body.extend_from_slice(&self.body[position.end..]);
        let body = Bytes::from(body);
        *served = Some((seconds, body.clone()));
        body
    }

    /// Returns the kind and the JSON body, from which [`CacheEntry::parse`] makes the entry again.
    pub(super) fn to_record(&self) -> Option<(EntryKind, &RawValue)> {
        let kind = if self.lease_ref.is_some() { EntryKind::Leased } else { EntryKind::Plain };
        serde_json::from_slice(&self.body).ok().map(|body| (kind, body))
    }

    pub(super) fn has_same_body(&self, other: &Self) -> bool {
        self.body == other.body
    }

    pub(super) fn lease_ref(&self) -> Option<&LeaseRef> {
        self.lease_ref.as_ref().map(|(_, lease_ref)| lease_ref)
    }

    /// Size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        // A leased body is there a second time, as it was served last.
        self.body.len() * (1 + usize::from(self.lease_ref.is_some())) + size_of::<Self>()
    }
}

/// Returns the position of a lifetime in a body, and the lifetime, which is at least a second.
fn parse_lifetime(body: &[u8], seconds: &RawValue) -> Option<(Range<usize>, Duration)> {
    let text = seconds.get();
    let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let count: u64 = text.parse().ok().filter(|count| *count > 0)?;
    Some((start..start + text.len(), Duration::from_secs(count).min(MAX_TTL)))
}

/// Bounds a lease, so that times computed from it do not overflow. Vault's default maximum TTL.
const MAX_TTL: Duration = Duration::from_hours(32 * 24);

#[cfg(test)]
mod tests {
    use super::EntryKind::{Leased, Plain};
    use super::*;

    fn parse(kind: EntryKind, body: &str) -> Option<CacheEntry> {
        CacheEntry::parse(kind, body.as_bytes())
    }

    #[test]
    fn only_plain_and_leased_responses_are_cacheable() {
        let check = |kind, body: &str, expected| assert_eq!(parse(kind, body).is_some(), expected, "{body}");
        check(Plain, r#"{"data":{"a":"b"},"lease_id":"","lease_duration":2764800,"auth":null,"wrap_info":null}"#, true);
        check(Plain, r#"{"data":{"a":"b"}}"#, true);
        check(Plain, r#"{"data":null,"auth":null}"#, false);
        check(Plain, r#"{"data":{"a":"b"},"lease_id":"x/y","lease_duration":60}"#, false);
        check(Plain, r#"{"data":{},"wrap_info":{"token":"t"}}"#, false);
        check(Plain, r#"{"auth":{"client_token":"t","lease_duration":60}}"#, false);
        check(Plain, "<html>", false);
        check(Leased, r#"{"data":{"a":"b"},"lease_id":"x/y","lease_duration":60,"renewable":true}"#, true);
        check(Leased, r#"{"data":{"a":"b"},"lease_id":"x/y","lease_duration":0}"#, false);
        check(Leased, r#"{"data":{"a":"b"},"lease_id":"x/y"}"#, false);
        check(Leased, r#"{"data":{"a":"b"},"lease_id":""}"#, false);
        check(Leased, r#"{"auth":{"client_token":"t","lease_duration":60,"renewable":true}}"#, true);
        check(Leased, r#"{"auth":{"client_token":"t","lease_duration":60,"num_uses":3}}"#, false);
        check(Leased, r#"{"wrap_info":{"token":"t","ttl":60},"auth":null}"#, false);
    }

    #[test]
    fn a_cached_response_has_the_remaining_lifetime_in_its_body() {
        let secret = r#"{"lease_id":"x/y","lease_duration": 3600 ,"renewable":true,"data":{"lease_duration":5}}"#;
        let entry = parse(Leased, secret).unwrap();
        assert_eq!(entry.body(Duration::from_secs(59)), secret.replace("3600", "59"));
        let token = r#"{"lease_duration":0,"auth":{"client_token":"t","lease_duration":3600}}"#;
        let entry = parse(Leased, token).unwrap();
        assert_eq!(entry.body(Duration::from_secs(59)), token.replace("3600", "59"));
        let plain = r#"{"lease_duration":2764800,"data":{}}"#;
        assert_eq!(parse(Plain, plain).unwrap().body(Duration::ZERO), plain);
        assert!(!format!("{entry:?}").contains("client_token"));
    }
}
