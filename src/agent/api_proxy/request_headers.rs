//! The headers that decide how a request is handled, found in one pass.

use http::header::{AUTHORIZATION, CACHE_CONTROL};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::server_client::ServerKind;

/// Headers of one request. The first of a repeated header counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestHeaders<'a> {
    /// `X-Vault-Token`, which may carry the listener's key instead of a token.
    vault_token: Option<&'a HeaderValue>,
    /// The token of `Authorization: Bearer`; other schemes carry none.
    bearer: Option<&'a [u8]>,
    /// A header other than `X-Vault-Token` and `Authorization` that the server reads a token from is set.
    other_token: bool,
    /// Values of the headers that the server takes a namespace from.
    namespaces: [Option<&'a HeaderValue>; 2],
    /// The headers name more than one namespace.
    pub(super) conflicting_namespaces: bool,
    /// A header names a partition of Consul.
    pub(super) has_partition: bool,
    /// The request carries a login, whose token the server uses for it (OpenBao).
    pub(super) has_inline_login: bool,
    /// The response is only for this request: wrapped, partial, conditional, or behind a second factor.
    pub(super) uncacheable: bool,
    pub(super) has_cache_control: bool,
}

impl<'a> RequestHeaders<'a> {
    /// Reads the headers that a server of this kind evaluates.
    pub(super) fn parse(kind: ServerKind, headers: &'a HeaderMap) -> Self {
        let tokens = token_headers(kind);
        let namespaces = namespace_headers(kind);
        let is_consul_compatible = kind.is_consul_compatible();
        let mut fields = Self::default();
        for (name, value) in headers {
            if *name == VAULT_TOKEN {
                fields.vault_token.get_or_insert(value);
            } else if *name == AUTHORIZATION {
                fields.bearer = fields.bearer.or_else(|| bearer(value.as_bytes()));
            } else if *name == CACHE_CONTROL {
                fields.has_cache_control = true;
            } else if prevents_caching(name) {
                fields.uncacheable = true;
            } else if is_inline_login(name) {
                fields.has_inline_login = true;
                fields.uncacheable = true;
                fields.other_token = true;
            } else if tokens.contains(name) {
                fields.other_token |= !value.is_empty();
            } else if let Some(at) = namespaces.iter().position(|header| header == name)
                && let Some(namespace) = fields.namespaces.get_mut(at)
            {
                fields.conflicting_namespaces |= namespace.is_some();
                namespace.get_or_insert(value);
            } else if is_consul_compatible && PARTITION_HEADERS.contains(name) {
                fields.has_partition |= !value.is_empty();
            }
        }
        if is_consul_compatible {
            // Consul skips empty values; Vault and OpenBao read the root namespace.
            fields.namespaces = fields.namespaces.map(|namespace| namespace.filter(|value| !value.is_empty()));
        }
        let [one, other] = fields.namespaces;
        fields.conflicting_namespaces |= one.zip(other).is_some_and(|(a, b)| a != b);
        fields
    }

    /// Returns true if the caller sends its own token. With `has_listener_key` its `X-Vault-Token` was the listener's key.
    pub(super) fn has_token(&self, has_listener_key: bool) -> bool {
        self.other_token || self.token(has_listener_key).is_some()
    }

    /// Returns the caller's own token, which scopes cache entries: the one that the server would take. Empty headers do not
    /// count.
    pub(super) fn token(&self, has_listener_key: bool) -> Option<&'a [u8]> {
        let vault_token = self.vault_token.map(HeaderValue::as_bytes).filter(|token| !token.is_empty());
        vault_token.or(self.bearer).filter(|_| !has_listener_key)
    }

    /// Returns the namespace that the headers name.
    pub(super) fn namespace(&self) -> Option<&'a HeaderValue> {
        self.namespaces.into_iter().flatten().next()
    }
}

/// Headers that a server of this kind takes a token from. The session's token is set in the first.
pub(super) fn token_headers(kind: ServerKind) -> &'static [HeaderName] {
    static VAULT: [HeaderName; 1] = [VAULT_TOKEN];
    static KEYWARD: [HeaderName; 3] =
        [HeaderName::from_static("x-service-token"), HeaderName::from_static("x-consul-token"), VAULT_TOKEN];
    static CONSUL: [HeaderName; 3] =
        [HeaderName::from_static("x-consul-token"), HeaderName::from_static("x-service-token"), VAULT_TOKEN];
    match kind {
        ServerKind::Vault | ServerKind::OpenBao => &VAULT,
        ServerKind::Keyward => &KEYWARD,
        ServerKind::Consul => &CONSUL,
    }
}

/// Headers that a server of this kind takes a namespace from. The session's namespace is set in the first.
pub(super) fn namespace_headers(kind: ServerKind) -> &'static [HeaderName] {
    static VAULT: [HeaderName; 1] = [HeaderName::from_static("x-vault-namespace")];
    static KEYWARD: [HeaderName; 2] =
        [HeaderName::from_static("x-service-namespace"), HeaderName::from_static("x-consul-namespace")];
    static CONSUL: [HeaderName; 2] =
        [HeaderName::from_static("x-consul-namespace"), HeaderName::from_static("x-service-namespace")];
    match kind {
        ServerKind::Vault | ServerKind::OpenBao => &VAULT,
        ServerKind::Keyward => &KEYWARD,
        ServerKind::Consul => &CONSUL,
    }
}

/// Headers that name a partition of Consul.
static PARTITION_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-consul-partition"), HeaderName::from_static("x-service-partition")];

/// Returns true for the headers of OpenBao that log in as part of another request.
pub(super) fn is_inline_login(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-vault-inline-auth-")
}

/// Returns true for the headers that a response may depend on and that all callers of a cached response share: its key holds
/// them, or they are the same for all.
pub(super) fn is_shared(kind: ServerKind, name: &str) -> bool {
    matches!(name, "authorization" | "content-length" | "content-type" | "x-vault-request")
        || [token_headers(kind), namespace_headers(kind)].iter().any(|names| names.iter().any(|known| known == name))
}

pub(super) const VAULT_TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// Requests a wrapping token instead of the response (Vault's response wrapping).
pub(super) const WRAP_TTL: HeaderName = HeaderName::from_static("x-vault-wrap-ttl");

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii()).filter(|token| !token.is_empty())
}

/// Returns true for headers that make a response unfit for other callers. `X-Vault-Index` and `X-Vault-Inconsistent` are among
/// them: a performance standby behind that index responds differently.
fn prevents_caching(name: &HeaderName) -> bool {
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
