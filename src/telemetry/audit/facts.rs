//! Facts about a request that an audit records: who asked for what, and what was decided. They hold no secret.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde::Serialize;

/// Facts about a request that do not change while it is handled.
#[derive(Debug, Clone, Serialize)]
pub struct RequestFacts {
    /// Number of the request in its process; a request and its response share it.
    pub id: u64,
    /// `agent`, `acl` or `gateway`.
    pub part: &'static str,
    /// Name of the listener.
    pub listener: AuditText,
    /// Use of the request, such as `token` or `proxy`.
    pub route: &'static str,
    /// Method as sent, shortened.
    pub method: String,
    /// Path without query, shortened, with tokens removed.
    pub path: String,
    /// Caller of the request.
    pub caller: AuditCaller,
}

/// Caller of a request, as the kernel reports it, and as its attestation names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditCaller {
    /// User id of the peer of a unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group id of that peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Process id of that peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Address of a TCP peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Facts by which a configured caller was matched.
    #[serde(flatten)]
    pub attested: Option<Attestation>,
}

/// Facts about a caller that was matched with a configured one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attestation {
    /// Name of the configured caller.
    pub name: AuditText,
    /// Origin of the facts, such as `pidfd_info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attested_by: Option<&'static str>,
    /// User id of a TCP peer, which its connection does not report.
    #[serde(skip)]
    pub uid: Option<u32>,
    /// Its systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<AuditText>,
    /// Its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<AuditText>,
    /// Path of its executable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<AuditText>,
}

/// Circumstances of a request that only the part that handles it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditNote {
    /// Session whose token is served or used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<AuditText>,
    /// Accessor of the token that is served, used or presented. It is written as a keyed hash.
    #[serde(skip)]
    pub accessor: Option<Arc<str>>,
    /// Name of the operation, such as `policy.create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// Record that was changed, by its id or name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Status of the server's response, where the request was forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
    /// Decision.
    pub decision: Decision,
    /// Rule that decided, such as the reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Cow<'static, str>>,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// keyward serves or forwards the request.
    #[default]
    Granted,
    /// keyward refuses the request.
    Refused,
}

/// Text that several records share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditText(pub(crate) Arc<str>);

impl<T: Into<Arc<str>>> From<T> for AuditText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Serialize for AuditText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Shortens a path, and hides its segments that look like tokens of Vault, OpenBao or Consul.
pub fn redact_path(path: &str) -> String {
    let mut end = path.len().min(MAX_PATH);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    let prefix = &path[..end];
    let mut text = String::with_capacity(prefix.len() + 4);
    let mut previous = Cow::Borrowed("");
    for (number, segment) in prefix.split('/').enumerate() {
        if number > 0 {
            text.push('/');
        }
        // As the server reads it: an escaped token is a token.
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        let is_token = looks_like_token(&decoded) || (TAKES_TOKEN.contains(&&*previous) && is_uuid(&decoded));
        text.push_str(if is_token { HIDDEN } else { segment });
        previous = decoded;
    }
    if end < path.len() {
        text.push_str("...");
    }
    text
}

/// Returns true for tokens of Vault and OpenBao, and for JWTs.
fn looks_like_token(segment: &str) -> bool {
    let prefixed = ["hvs.", "hvb.", "hvr.", "s.", "b.", "r."].iter().any(|prefix| {
        segment.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() >= 20
                && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        })
    });
    prefixed || segment.starts_with("eyJ")
}

fn is_uuid(segment: &str) -> bool {
    segment.len() == 36
        && segment.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Segments after which old endpoints of Vault (`auth/token/lookup/TOKEN`) and Consul (`acl/info/TOKEN`) have a token, which may
/// be a UUID. Elsewhere a UUID is an accessor or a name, which a record shows.
const TAKES_TOKEN: [&str; 7] = ["lookup", "renew", "revoke", "revoke-orphan", "info", "clone", "destroy"];

/// Longest recorded path, in bytes.
const MAX_PATH: usize = 1024;

const HIDDEN: &str = "(hidden)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_short_and_shows_no_token() {
        let check = |path: &str, expected: &str| assert_eq!(redact_path(path), expected, "{path}");
        check("/v1/secret/data/web", "/v1/secret/data/web");
        check("/v1/auth/token/lookup/hvs.CAESIJ0123456789abcdefgh", "/v1/auth/token/lookup/(hidden)");
        check("/v1/auth/token/revoke/s.0123456789abcdefABCDEFGH", "/v1/auth/token/revoke/(hidden)");
        check("/v1/secret/data/s.short", "/v1/secret/data/s.short");
        check("/v1/x/eyJhbGciOi", "/v1/x/(hidden)");
        let uuid = "6a1253d2-1785-24fd-91c2-f8e78c745511";
        for takes_token in ["auth/token/lookup", "acl/info", "acl/destroy"] {
            check(&format!("/v1/{takes_token}/{uuid}"), &format!("/v1/{takes_token}/(hidden)"));
        }
        check("/v1/auth/token/lookup/hvs%2ECAESIJ0123456789abcdefgh", "/v1/auth/token/lookup/(hidden)");
        check(&format!("/v1/auth/token/%6cookup/%36{}", &uuid[1..]), "/v1/auth/token/%6cookup/(hidden)");
        check(&format!("/v1/acl/token/{uuid}/clone"), &format!("/v1/acl/token/{uuid}/clone"));
        check("", "");
        let long = format!("/{}", "ä".repeat(600));
        let shown = redact_path(&long);
        assert!(shown.len() <= MAX_PATH + 3 && shown.ends_with("ä..."), "{shown}");
    }
}
