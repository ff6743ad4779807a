//! Builds request heads for each server product: which headers carry the token and the namespace.

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, EXPECT};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, request};
use keyward_http::reverse_proxy::{RequestBody, RequestHead, RequestLine};
use keyward_http::server::CallerGroup;

use super::namespace;
use super::query::Query;
use super::request_headers::{RequestHeaders, VAULT_TOKEN, is_inline_login, namespace_headers, token_headers};
use super::session_token::TokenHeader;
use super::token_recovery::TokenRecovery;
use crate::server_client::{PathClass, ServerKind};

/// The server's kind and address, and the header values that are the same in every request.
#[derive(Debug)]
pub(super) struct ServerDialect {
    pub(super) kind: ServerKind,
    /// The server's name in the configuration.
    pub(super) name: String,
    host: HeaderValue,
    prefix: String,
    namespace: Option<HeaderValue>,
}

/// Decisions about one request that is forwarded.
#[derive(Debug, Clone)]
pub(super) struct ForwardOptions {
    /// The caller, to which the connection to the server is bound.
    pub(super) caller: CallerGroup,
    /// The request carries the session's token, or the caller token in its place.
    pub(super) with_session: bool,
    /// The path exists in the root namespace alone, so that the session's is not added.
    pub(super) is_root_path: bool,
    /// The token that it carries then.
    pub(super) tokens: Arc<TokenRecovery>,
    /// The response contains the token that the request carries, as that of a look-up or a renewal does.
    pub(super) returns_token: bool,
    /// The caller sent the listener's key as its token.
    pub(super) has_listener_key: bool,
    /// The path's class in metrics.
    pub(super) path_class: PathClass,
}

const VAULT_REQUEST: HeaderName = HeaderName::from_static("x-vault-request");

impl ServerDialect {
    pub(super) fn new(
        kind: ServerKind,
        name: String,
        host: HeaderValue,
        prefix: String,
        namespace: Option<&str>,
    ) -> Self {
        let folded = namespace.filter(|_| kind.is_consul_compatible()).map(str::to_ascii_lowercase);
        let namespace = folded.as_deref().or(namespace);
        // The configuration allows visible ASCII only, so the conversion cannot fail.
        let namespace = namespace.and_then(|namespace| HeaderValue::from_str(namespace).ok());
        Self { kind, name, host, prefix, namespace }
    }

    pub(super) const fn is_consul_compatible(&self) -> bool {
        self.kind.is_consul_compatible()
    }

    /// Returns true if the query holds a token. Consul and keyward's ACL server take one there.
    pub(super) fn has_query_token(&self, query: Option<&str>) -> bool {
        self.is_consul_compatible() && query.is_some_and(|query| has_parameter(query, "token"))
    }

    /// Returns true for a blocking query of Consul's API, whose response waits for a change.
    pub(super) fn is_blocking_query(&self, query: Option<&str>) -> bool {
        self.is_consul_compatible() && query.is_some_and(|query| has_parameter(query, "index"))
    }

    /// Builds the head that the server gets; `None` if the request has no path. With `token`, it carries that token and no
    /// other; without, the caller's own. It never carries the listener's key. It goes to the session's namespace unless the
    /// caller names one.
    pub(super) fn request_head(
        &self,
        parts: &request::Parts,
        has_listener_key: bool,
        is_root_path: bool,
        token: Option<&TokenHeader>,
        body: &RequestBody,
    ) -> Option<RequestHead> {
        let target = parts.uri.path_and_query()?;
        let headers = &parts.headers;
        let tokens = token_headers(self.kind);
        let namespaces = namespace_headers(self.kind);
        let is_consul_compatible = self.is_consul_compatible();
        let with_session = token.is_some();
        let keeps = |name: &HeaderName| {
            !(*name == EXPECT
                || *name == VAULT_REQUEST
                || ((with_session || has_listener_key) && *name == AUTHORIZATION)
                || (has_listener_key && *name == VAULT_TOKEN)
                || (with_session && *name == ACCEPT_ENCODING)
                || (with_session && (tokens.contains(name) || is_inline_login(name)))
                || (is_consul_compatible && namespaces.contains(name)))
        };
        let line = RequestLine { method: &parts.method, prefix: &self.prefix, target, host: &self.host };
        let mut head = RequestHead::new(line, headers, keeps, body);
        head.append_header(&VAULT_REQUEST, &HeaderValue::from_static("true"));
        let named = || RequestHeaders::parse(self.kind, headers).namespace();
        let in_query = || is_consul_compatible && target.query().is_some_and(names_namespace);
        let session_namespace = || self.namespace.as_ref().filter(|_| !is_root_path && !in_query());
        // Consul reads one of the headers, so it gets the namespace that the rules saw, in that header.
        let namespace = if is_consul_compatible {
            named().or_else(session_namespace)
        } else {
            session_namespace().filter(|_| named().is_none())
        };
        if let (Some(namespace), Some(header)) = (namespace, namespaces.first()) {
            head.append_header(header, namespace);
        }
        if let Some(token) = token {
            // A compressed response cannot be searched for the token.
            head.append_header(&ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
            // Last, as a later call of `set_token` cuts the head off here.
            self.set_token(&mut head, token);
        }
        Some(head)
    }

    /// Returns the session's namespace; empty for the root.
    pub(super) fn session_namespace(&self) -> &str {
        self.namespace.as_ref().and_then(|namespace| namespace.to_str().ok()).unwrap_or_default()
    }

    /// Returns the namespace that a caller names in a header or, for Consul-compatible servers, in the query. Those skip empty
    /// names.
    ///
    /// # Errors
    /// More than one is named, or servers differ in how they read the name.
    pub(super) fn named_namespace(
        &self,
        headers: &RequestHeaders<'_>,
        query: Query<'_>,
    ) -> Result<Option<String>, &'static str> {
        if headers.conflicting_namespaces {
            return Err(MANY_NAMESPACES);
        }
        let header = headers.namespace().map(HeaderValue::as_bytes);
        if !self.is_consul_compatible() {
            return header.map(|name| namespace::parse(name).map(str::to_owned)).transpose();
        }
        let in_query = query.only("ns").map_err(|_| MANY_NAMESPACES)?.filter(|name| !name.is_empty());
        in_query.as_deref().or(header).map(namespace::parse_consul_name).transpose()
    }

    /// Returns the namespace of the auth method that a login to a Consul-compatible server names in its query. It takes
    /// precedence over [`Self::named_namespace`].
    pub(super) fn method_namespace(&self, query: Query<'_>) -> Result<Option<String>, &'static str> {
        if !self.is_consul_compatible() || query.is_empty() {
            return Ok(None);
        }
        let named = query.only("authmethod-ns").map_err(|_| MANY_NAMESPACES)?.filter(|name| !name.is_empty());
        named.as_deref().map(namespace::parse_consul_name).transpose()
    }

    /// Returns true if a request leads Consul to another datacenter, partition or peer, which rules do not name. keyward's ACL
    /// server has one of each.
    pub(super) fn leads_elsewhere(&self, headers: &RequestHeaders<'_>, query: Query<'_>) -> bool {
        let is_named = |name: &str| query.values(name).any(|value| !value.is_empty());
        self.kind == ServerKind::Consul
            && (headers.has_partition || ["dc", "partition", "peer"].into_iter().any(is_named))
    }

    /// Returns the path of the namespace that a request is sent to; empty for the root. [`Self::named_namespace`] has checked it.
    pub(super) fn namespace<'a>(&'a self, headers: &RequestHeaders<'a>, is_root_path: bool) -> &'a str {
        let session_namespace = self.namespace.as_ref().filter(|_| !is_root_path);
        let sent = headers.namespace().or(session_namespace).map_or(&b""[..], HeaderValue::as_bytes);
        namespace::parse(sent).unwrap_or_default()
    }

    /// Sets the token, replacing the one in the head.
    pub(super) fn set_token(&self, head: &mut RequestHead, token: &TokenHeader) {
        if let Some(first) = token_headers(self.kind).first() {
            head.set_auth_header(first, &token.value);
        }
    }

    /// Describes the server for error messages.
    pub(super) fn describe_server(&self) -> String {
        match self.host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) {
            Some(host) => format!("the server {} at {host}", self.name),
            None => format!("the server {}", self.name),
        }
    }
}

const MANY_NAMESPACES: &str = "more than one namespace is named";

fn names_namespace(query: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == "ns" && !value.is_empty())
}

fn has_parameter(query: &str, name: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == name)
}

#[cfg(test)]
mod tests;
