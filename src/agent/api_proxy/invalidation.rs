//! Writes and revocations: forwarded, then what they change or end leaves the cache.

use std::sync::Arc;

use http::{Response, request};
use keyward_http::server::IncomingBody;
use serde::Deserialize;

use super::cache::{EntryKind, Invalidate, TokenScope};
use super::listener::ProxyListener;
use super::path::ApiPath;
use super::request_body::CallerBody;
use super::request_headers::RequestHeaders;
use super::response::ProxyBody;
use super::response_cache::{MAX_REQUEST_BODY, ResponseCache};
use super::revocation::{RevocationKind, revocation_in_path};
use super::server_dialect::ForwardOptions;

impl ResponseCache {
    /// Forwards a write, and invalidates values that it may have changed, whatever the server responded, and also where the
    /// caller disconnects before that: the server may execute the request all the same. `kind` is the kind of entry that the
    /// response makes, as that of a login does; such a write is served from the cache too.
    pub(super) async fn forward_write(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        options: ForwardOptions,
        kind: Option<EntryKind>,
        path: &ApiPath<'_>,
        parts: request::Parts,
        body: IncomingBody,
    ) -> Response<ProxyBody> {
        let headers = RequestHeaders::parse(self.sender.dialect.kind, &parts.headers);
        let namespace = self.sender.dialect.namespace(&headers, options.is_root_path).to_owned();
        scopeguard::defer! { self.invalidate_written(path, &namespace) };
        if let Some(kind) = kind {
            // Boxed, as few writes are cached.
            Box::pin(self.respond(listener, options, kind, path.without_trailing_slash(), parts, body)).await
        } else if revocation_in_path(path).is_some() {
            self.forward_revocation(listener, options, path, parts, body).await
        } else {
            self.sender.prepare_and_forward(listener, options, parts, CallerBody::Streaming(body)).await.0
        }
    }

    /// Forwards a revocation, and invalidates what its path and its body name.
    async fn forward_revocation(
        &self,
        listener: &ProxyListener,
        options: ForwardOptions,
        path: &ApiPath<'_>,
        parts: request::Parts,
        body: IncomingBody,
    ) -> Response<ProxyBody> {
        let body = match CallerBody::read(body, MAX_REQUEST_BODY).await {
            Ok(body) => body,
            Err(response) => return *response,
        };
        let text = if let CallerBody::Buffered(body) = &body { Some(body.clone()) } else { None };
        let headers = RequestHeaders::parse(self.sender.dialect.kind, &parts.headers);
        let own_token = headers.token(options.has_listener_key).filter(|_| !options.with_session);
        let own_token = own_token.map(<[u8]>::to_vec);
        let own_token = own_token.as_deref();
        let caller = || own_token.map_or(TokenScope::Anonymous, TokenScope::from_token);
        let scope = if options.with_session { TokenScope::Session } else { caller() };
        let mut may_be_done = scopeguard::guard(true, |may_be_done| {
            self.invalidate_revoked(path, text.as_deref(), scope, own_token, may_be_done);
        });
        let response = self.sender.prepare_and_forward(listener, options, parts, body).await.0;
        // After any other failure, such as a timeout, the server may have revoked all the same.
        *may_be_done = !response.status().is_client_error();
        response
    }

    /// Invalidates values below a path. In a version 2 key-value store, several paths lead to the same value. Leases stay: a
    /// refused login must not drop the shared tokens of its path.
    fn invalidate_written(&self, path: &ApiPath<'_>, namespace: &str) {
        let path = path.without_trailing_slash();
        self.cache.invalidate(&Invalidate::Values(namespace, path));
        for (at, _) in path.match_indices('/') {
            let (mount, rest) = path.split_at(at + 1);
            let (segment, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if KV2_SEGMENTS.contains(&segment) {
                for other in ["data", "metadata"] {
                    self.cache.invalidate(&Invalidate::Values(namespace, &format!("{mount}{other}{below}")));
                }
            }
        }
    }

    /// Invalidates what a revocation names in its path and its body. `body` is `None` where it is too long to be read.
    fn invalidate_revoked(
        &self,
        path: &ApiPath<'_>,
        body: Option<&[u8]>,
        scope: TokenScope,
        own_token: Option<&[u8]>,
        may_be_done: bool,
    ) {
        let Some((kind, name_in_path)) = revocation_in_path(path) else { return };
        if kind == RevocationKind::OwnToken {
            match own_token {
                Some(token) => self.cache.invalidate(&Invalidate::Token(token)),
                None => self.cache.invalidate(&Invalidate::Leases(Some(scope))),
            };
            return;
        }
        let body = match body {
            Some(b"") => Some(RevocationBody::default()),
            Some(body) => serde_json::from_slice::<RevocationBody>(body).ok(),
            None => None,
        };
        let is_unreadable = body.is_none();
        let mut names: Vec<String> = body.map(RevocationBody::into_names).unwrap_or_default();
        names.extend((!name_in_path.is_empty()).then(|| name_in_path.to_owned()));
        for name in &names {
            match kind {
                RevocationKind::Lease => self.cache.invalidate(&Invalidate::Lease(name.trim_end_matches('/'))),
                RevocationKind::Token => self.cache.invalidate(&Invalidate::Token(name.as_bytes())),
                RevocationKind::Accessor => match self.cache.invalidate(&Invalidate::Accessor(name)) {
                    // The cache knows accessors only of tokens that it issued; this may be the token of a caller.
                    0 if may_be_done => self.cache.invalidate(&Invalidate::Callers),
                    invalidated => invalidated,
                },
                RevocationKind::OwnToken => 0,
            };
        }
        if is_unreadable || names.is_empty() {
            // The server may have read a name here that this parser did not.
            self.cache.invalidate(&Invalidate::Leases((!may_be_done).then_some(scope)));
        }
    }
}

/// Segments of a version 2 key-value store that stand before the same path.
const KV2_SEGMENTS: [&str; 5] = ["data", "delete", "destroy", "metadata", "undelete"];

/// Names that Vault and OpenBao read from the body of a revocation. A repeated field makes the body unreadable, as servers
/// differ in which of the two they take.
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
    fn into_names(self) -> Vec<String> {
        let Self { lease_id, url_lease_id, prefix, token, urltoken, accessor, urlaccessor } = self;
        let names = [lease_id, url_lease_id, prefix, token, urltoken, accessor, urlaccessor];
        names.into_iter().flatten().filter(|name| !name.is_empty()).collect()
    }
}
