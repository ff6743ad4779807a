//! Requests that end what the cache holds: writes, and revocations of leases and tokens.

use http::{Response, request};
use hyper::body::Incoming;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Inner;
use super::answer::ProxyBody;
use super::listener_metrics::ProxyListener;
use super::path::ApiPath;
use super::request_body;
use super::request_headers::RequestHeaders;
use super::response_cache::{CachePolicy, MAX_REQUEST_BODY};
use super::send::CallerBody;
use super::server_dialect::Call;
use crate::agent::secrets::cache::{Invalidate, TokenScope};

impl CachePolicy {
    /// Something was written: what was read there is no longer so. Other paths of a versioned store mean the same value.
    pub(super) fn written(&self, path: &ApiPath<'_>, namespace: &str) {
        let path = path.without_trailing_slash();
        self.cache.forget(&Invalidate::Path(namespace, path));
        for (at, _) in path.match_indices('/') {
            let (before, rest) = path.split_at(at + 1);
            let (word, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if KV2_SEGMENTS.contains(&word) {
                for other in ["data", "metadata"] {
                    self.cache.forget(&Invalidate::Path(namespace, &format!("{before}{other}{below}")));
                }
            }
        }
    }

    /// True if a path revokes leases or tokens, which its body may name.
    pub(super) fn is_revocation(path: &ApiPath<'_>) -> bool {
        named_in_path(path).is_some()
    }

    /// Forgets what a revocation names in its path and its body. `body` is `None` where it is too long to be read.
    fn revoked(
        &self,
        path: &ApiPath<'_>,
        body: Option<&[u8]>,
        whose: TokenScope,
        own_token: Option<&[u8]>,
        done: bool,
    ) {
        let Some((kind, in_path)) = named_in_path(path) else { return };
        if kind == Revoked::OwnToken {
            match own_token {
                Some(token) => self.cache.forget(&Invalidate::Token(token)),
                None => self.cache.forget(&Invalidate::Leases(Some(whose))),
            };
            return;
        }
        let body = match body {
            Some(b"") => Some(RevocationBody::default()),
            Some(body) => serde_json::from_slice::<RevocationBody>(body).ok(),
            None => None,
        };
        let unreadable = body.is_none();
        let mut named: Vec<Zeroizing<String>> = body.map(RevocationBody::into_names).unwrap_or_default();
        named.extend((!in_path.is_empty()).then(|| Zeroizing::new(in_path.to_owned())));
        for name in &named {
            match kind {
                Revoked::Lease => self.cache.forget(&Invalidate::Lease(name.trim_end_matches('/'))),
                Revoked::Token => self.cache.forget(&Invalidate::Token(name.as_bytes())),
                Revoked::Accessor => match self.cache.forget(&Invalidate::Accessor(name)) {
                    // The token may be one of those that callers use here.
                    0 if done => self.cache.forget(&Invalidate::Callers),
                    forgotten => forgotten,
                },
                Revoked::OwnToken => 0,
            };
        }
        if unreadable || named.is_empty() {
            // A server that has not refused it has revoked what nobody here knows.
            self.cache.forget(&Invalidate::Leases((!done).then_some(whose)));
        }
    }
}

/// The words of a versioned key-value store that stand before the same path.
const KV2_SEGMENTS: [&str; 5] = ["data", "delete", "destroy", "metadata", "undelete"];

/// The leases or tokens that a revocation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Revoked {
    /// A lease, or all below a prefix.
    Lease,
    Token,
    Accessor,
    /// The token that it is sent with.
    OwnToken,
}

/// Paths that revoke. A name may follow in the path, or stand in the body.
const REVOCATIONS: [(&str, Revoked); 10] = [
    ("auth/token/revoke", Revoked::Token),
    ("auth/token/revoke-accessor", Revoked::Accessor),
    ("auth/token/revoke-orphan", Revoked::Token),
    ("auth/token/revoke-self", Revoked::OwnToken),
    ("sys/leases/revoke", Revoked::Lease),
    ("sys/leases/revoke-force", Revoked::Lease),
    ("sys/leases/revoke-prefix", Revoked::Lease),
    ("sys/revoke", Revoked::Lease),
    ("sys/revoke-force", Revoked::Lease),
    ("sys/revoke-prefix", Revoked::Lease),
];

/// What a path revokes, perhaps behind a namespace, and the name that it holds; empty where it holds none.
fn named_in_path<'a>(path: &'a ApiPath<'_>) -> Option<(Revoked, &'a str)> {
    path.suffixes().find_map(|end| {
        REVOCATIONS.iter().find_map(|(revocation, kind)| {
            let rest = end.strip_prefix(revocation)?;
            let name = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
            Some((*kind, name))
        })
    })
}

/// The names that Vault and OpenBao read from the body of a revocation. One that comes twice makes the body unreadable: which
/// of them counts is the server's to decide.
#[derive(Default, Deserialize)]
struct RevocationBody {
    #[serde(default)]
    lease_id: Option<String>,
    #[serde(default)]
    url_lease_id: Option<String>,
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    urltoken: Option<String>,
    #[serde(default)]
    accessor: Option<String>,
    #[serde(default)]
    urlaccessor: Option<String>,
}

impl RevocationBody {
    fn into_names(self) -> Vec<Zeroizing<String>> {
        let Self { lease_id, url_lease_id, prefix, token, urltoken, accessor, urlaccessor } = self;
        let names = [lease_id, url_lease_id, prefix, token, urltoken, accessor, urlaccessor];
        names.into_iter().flatten().filter(|name| !name.is_empty()).map(Zeroizing::new).collect()
    }
}

impl Inner {
    /// Passes a revocation on, and forgets what it names.
    pub(super) async fn revocation(
        &self,
        listener: &ProxyListener,
        call: Call,
        policy: &CachePolicy,
        path: &ApiPath<'_>,
        parts: request::Parts,
        body: Incoming,
    ) -> Response<ProxyBody> {
        let body = match request_body::read(body, MAX_REQUEST_BODY).await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        let read = if let CallerBody::Buffered(body) = &body { Some(body.clone()) } else { None };
        let request_headers = RequestHeaders::parse(self.dialect.kind, &parts.headers);
        let own_token = request_headers.token(call.keyed).filter(|_| !call.with_session);
        let own_token = own_token.map(|token| Zeroizing::new(token.to_vec()));
        let answer = self.prepare_and_forward(listener, call, parts, body).await.0;
        let own_token = own_token.as_ref().map(|token| token.as_slice());
        let whose = if call.with_session {
            TokenScope::Session
        } else {
            own_token.map_or(TokenScope::Anonymous, TokenScope::of)
        };
        // Whatever else it was answered with, it may have been done.
        let done = !answer.status().is_client_error();
        policy.revoked(path, read.as_deref(), whose, own_token, done);
        answer
    }
}
