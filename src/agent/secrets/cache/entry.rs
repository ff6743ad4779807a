//! What an answer of the server holds: plain values, or something that was issued for a time.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use crate::agent::server_client::SecretLease;
use crate::agent::token::{ClientToken, Lease};

/// What a path of the server answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// Values that stay until someone changes them.
    Plain,
    /// Credentials or tokens that are made for who asks, for a time.
    Leased,
}

/// An answer that is kept. Wiped when it is dropped, shown by nothing.
pub struct CacheEntry {
    body: Bytes,
    /// Where its lifetime stands, and what it is of.
    lease_ref: Option<(Range<usize>, LeaseRef)>,
    /// As it was given last, with so many seconds left: within a second it is the same.
    aged: Mutex<Option<(u64, Bytes)>>,
}

impl fmt::Debug for CacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// What was issued.
#[derive(Debug, Clone)]
pub(super) enum LeaseRef {
    /// A secret, by its lease.
    Secret(SecretLease),
    /// A token, and its accessor if it has one.
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
struct Answer<'a> {
    #[serde(default)]
    lease_id: Option<String>,
    #[serde(borrow, default)]
    lease_duration: Option<&'a RawValue>,
    #[serde(default)]
    renewable: Option<bool>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    auth: Option<Auth<'a>>,
    #[serde(borrow, default)]
    wrap_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Auth<'a> {
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
    /// Takes the body of a good answer, if it is what such a path answers with and may be given again. What is wrapped, or
    /// ends after a number of uses, is for one reader.
    pub fn take(kind: EntryKind, body: &[u8]) -> Option<Self> {
        let answer: Answer<'_> = serde_json::from_slice(body).ok()?;
        if answer.wrap_info.is_some() {
            return None;
        }
        let leased = answer.lease_id.filter(|id| !id.is_empty());
        let lease_ref = match (kind, answer.auth, leased) {
            (EntryKind::Plain, None, None) => {
                answer.data?;
                None
            }
            (EntryKind::Leased, Some(auth), None) if auth.num_uses == 0 => {
                let (place, ttl) = lifetime(body, auth.lease_duration?)?;
                let token = ClientToken::parse(SecretString::from(auth.client_token))?;
                let accessor = auth.accessor.filter(|accessor| !accessor.is_empty());
                Some((place, LeaseRef::Token(token, Lease { ttl, renewable: auth.renewable }, accessor)))
            }
            (EntryKind::Leased, None, Some(id)) => {
                let (place, ttl) = lifetime(body, answer.lease_duration?)?;
                let lease = Lease { ttl, renewable: answer.renewable.unwrap_or_default() };
                Some((place, LeaseRef::Secret(SecretLease { id, lease })))
            }
            _ => return None,
        };
        Some(Self { body: Bytes::from_owner(Zeroizing::new(body.to_vec())), lease_ref, aged: Mutex::new(None) })
    }

    /// The body, its lifetime the one that is left.
    pub(super) fn body(&self, left: Duration) -> Bytes {
        let Some((place, _)) = &self.lease_ref else { return self.body.clone() };
        let seconds = left.as_secs();
        let mut last = self.aged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, aged)) = last.as_ref().filter(|(then, _)| *then == seconds) {
            return aged.clone();
        }
        let left = seconds.to_string();
        let mut aged = Zeroizing::new(Vec::with_capacity(self.body.len() + left.len()));
        aged.extend_from_slice(&self.body[..place.start]);
        aged.extend_from_slice(left.as_bytes());
        aged.extend_from_slice(&self.body[place.end..]);
        let aged = Bytes::from_owner(aged);
        *last = Some((seconds, aged.clone()));
        aged
    }

    /// What the body holds, to be taken again.
    pub(super) fn saved(&self) -> Option<(EntryKind, &RawValue)> {
        let kind = if self.lease_ref.is_some() { EntryKind::Leased } else { EntryKind::Plain };
        serde_json::from_slice(&self.body).ok().map(|body| (kind, body))
    }

    /// Whether it says the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.body == other.body
    }

    pub(super) fn lease_ref(&self) -> Option<&LeaseRef> {
        self.lease_ref.as_ref().map(|(_, lease_ref)| lease_ref)
    }

    /// Its size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        // What is issued is there a second time, as it was given last.
        self.body.len() * (1 + usize::from(self.lease_ref.is_some())) + size_of::<Self>()
    }
}

/// Where a number of seconds stands in a body, and how many they are: one at least.
fn lifetime(body: &[u8], seconds: &RawValue) -> Option<(Range<usize>, Duration)> {
    let text = seconds.get();
    let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let count: u64 = text.parse().ok().filter(|count| *count > 0)?;
    Some((start..start + text.len(), Duration::from_secs(count).min(LONGEST)))
}

/// The longest lease that is taken at its word.
const LONGEST: Duration = Duration::from_hours(32 * 24);

#[cfg(test)]
mod tests {
    use super::EntryKind::{Leased, Plain};
    use super::*;

    fn take(kind: EntryKind, body: &str) -> Option<CacheEntry> {
        CacheEntry::take(kind, body.as_bytes())
    }

    #[test]
    fn only_what_is_issued_or_plain_is_kept() {
        let check = |kind, body: &str, wanted| assert_eq!(take(kind, body).is_some(), wanted, "{body}");
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
    fn an_answer_that_is_given_again_tells_the_life_that_is_left() {
        let secret = r#"{"lease_id":"x/y","lease_duration": 3600 ,"renewable":true,"data":{"lease_duration":5}}"#;
        let kept = take(Leased, secret).unwrap();
        assert_eq!(kept.body(Duration::from_secs(59)), secret.replace("3600", "59"));
        let token = r#"{"lease_duration":0,"auth":{"client_token":"t","lease_duration":3600}}"#;
        let kept = take(Leased, token).unwrap();
        assert_eq!(kept.body(Duration::from_secs(59)), token.replace("3600", "59"));
        let plain = r#"{"lease_duration":2764800,"data":{}}"#;
        assert_eq!(take(Plain, plain).unwrap().body(Duration::ZERO), plain);
        assert!(!format!("{kept:?}").contains("client_token"));
    }
}
