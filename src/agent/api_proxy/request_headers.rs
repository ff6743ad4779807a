//! What a request's headers bring that decides about it, looked over once.

use http::header::{AUTHORIZATION, CACHE_CONTROL};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::agent::server_client::ServerKind;

/// What headers bring. Of those that come twice the first counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestHeaders<'a> {
    /// Vault's own header, in which the listener's key may come too.
    vault_token: Option<&'a HeaderValue>,
    /// The token of `Authorization: Bearer`; another scheme brings none.
    bearer: Option<&'a [u8]>,
    /// Whether another header that the server takes a token from holds one.
    other_token: bool,
    /// In each header that the server takes a namespace from.
    namespaces: [Option<&'a HeaderValue>; 2],
    /// True if they name more than one.
    pub(super) conflicting_namespaces: bool,
    /// True if the answer is for who asks alone: it is to be wrapped, it is a part of one or under a condition, or a second
    /// factor comes along.
    pub(super) uncacheable: bool,
    pub(super) cache_control: bool,
}

impl<'a> RequestHeaders<'a> {
    /// By what a server of this kind looks at.
    pub(super) fn parse(kind: ServerKind, headers: &'a HeaderMap) -> Self {
        let (tokens, namespaces) = (token_headers(kind), namespace_headers(kind));
        let mut request_headers = Self::default();
        for (name, value) in headers {
            if *name == VAULT_TOKEN {
                request_headers.vault_token.get_or_insert(value);
            } else if *name == AUTHORIZATION {
                request_headers.bearer = request_headers.bearer.or_else(|| bearer(value.as_bytes()));
            } else if *name == CACHE_CONTROL {
                request_headers.cache_control = true;
            } else if is_for_its_sender_alone(name) {
                request_headers.uncacheable = true;
            } else if tokens.contains(name) {
                request_headers.other_token |= !value.is_empty();
            } else if let Some(at) = namespaces.iter().position(|its| its == name)
                && let Some(namespace) = request_headers.namespaces.get_mut(at)
            {
                request_headers.conflicting_namespaces |= namespace.is_some();
                namespace.get_or_insert(value);
            }
        }
        let [one, other] = request_headers.namespaces;
        request_headers.conflicting_namespaces |= one.zip(other).is_some_and(|(one, other)| one != other);
        request_headers
    }

    /// Whether a caller brings a token of its own. Where the listener has a key, `keyed`, that was it.
    pub(super) fn has_token(&self, keyed: bool) -> bool {
        self.other_token || self.token(keyed).is_some()
    }

    /// The caller's own token, by which answers are told apart: the one that the server takes. An empty header brings none.
    pub(super) fn token(&self, keyed: bool) -> Option<&'a [u8]> {
        let vault_token = self.vault_token.map(HeaderValue::as_bytes).filter(|token| !token.is_empty());
        vault_token.or(self.bearer).filter(|_| !keyed)
    }

    /// The namespace that is told.
    pub(super) fn namespace(&self) -> Option<&'a HeaderValue> {
        self.namespaces.into_iter().flatten().next()
    }
}

/// The headers that a server of the kind takes a token from. The first is the one that it is put in.
pub(super) fn token_headers(kind: ServerKind) -> &'static [HeaderName] {
    static VAULT: [HeaderName; 1] = [VAULT_TOKEN];
    static ACCESS: [HeaderName; 3] =
        [HeaderName::from_static("x-service-token"), HeaderName::from_static("x-consul-token"), VAULT_TOKEN];
    static CONSUL: [HeaderName; 3] =
        [HeaderName::from_static("x-consul-token"), HeaderName::from_static("x-service-token"), VAULT_TOKEN];
    match kind {
        ServerKind::Vault | ServerKind::OpenBao => &VAULT,
        ServerKind::Keyward => &ACCESS,
        ServerKind::Consul => &CONSUL,
    }
}

pub(super) fn namespace_headers(kind: ServerKind) -> &'static [HeaderName] {
    static VAULT: [HeaderName; 1] = [HeaderName::from_static("x-vault-namespace")];
    static ACCESS: [HeaderName; 2] =
        [HeaderName::from_static("x-service-namespace"), HeaderName::from_static("x-consul-namespace")];
    static CONSUL: [HeaderName; 2] =
        [HeaderName::from_static("x-consul-namespace"), HeaderName::from_static("x-service-namespace")];
    match kind {
        ServerKind::Vault | ServerKind::OpenBao => &VAULT,
        ServerKind::Keyward => &ACCESS,
        ServerKind::Consul => &CONSUL,
    }
}

pub(super) const VAULT_TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// Asks for an answer that is put away, to be had once with another token.
pub(super) const WRAP_TTL: HeaderName = HeaderName::from_static("x-vault-wrap-ttl");

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii()).filter(|token| !token.is_empty())
}

/// True if a header asks for something that nobody else has asked for. A server that is behind the index that a caller has
/// seen answers it otherwise than others.
fn is_for_its_sender_alone(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "if-match"
            | "if-modified-since"
            | "if-none-match"
            | "if-range"
            | "if-unmodified-since"
            | "range"
            | "x-vault-inconsistent"
            | "x-vault-index"
            | "x-vault-mfa"
            | "x-vault-wrap-ttl"
    )
}
