//! How a request looks on its way to the server: whose token it carries, and in which header the server looks for it.

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, EXPECT};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, request};

use super::namespace;
use super::query::Query;
use super::request_headers::{RequestHeaders, VAULT_TOKEN, namespace_headers, token_headers};
use super::session_token::TokenHeader;
use crate::agent::server_client::ServerKind;
use crate::http::reverse_proxy::{RequestBody, RequestHead, RequestLine};
use crate::http::server::Caller;

/// What differs between servers, and what is the same on every request to one.
#[derive(Debug)]
pub(super) struct ServerDialect {
    pub(super) kind: ServerKind,
    /// The name that the configuration gives the server.
    pub(super) name: String,
    host: HeaderValue,
    prefix: String,
    namespace: Option<HeaderValue>,
}

/// How a request is passed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// The caller, for whom a connection to the upstream is taken.
    pub(super) caller: Caller,
    /// Whether the session's token is put on it.
    pub(super) with_session: bool,
    /// Whether the server's answer tells the token that it came with.
    pub(super) returns_token: bool,
    /// Whether the caller has brought the listener's key in the place of a token.
    pub(super) keyed: bool,
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
        // A namespace is visible ASCII, which every header takes.
        let namespace = namespace.and_then(|namespace| HeaderValue::from_str(namespace).ok());
        Self { kind, name, host, prefix, namespace }
    }

    /// Whether the server speaks the access-control service's API.
    fn is_consul_compatible(&self) -> bool {
        matches!(self.kind, ServerKind::Keyward | ServerKind::Consul)
    }

    /// Whether the query holds a token, which an access-control service takes there.
    pub(super) fn token_in_query(&self, query: Option<&str>) -> bool {
        self.is_consul_compatible() && query.is_some_and(|query| has(query, "token"))
    }

    /// Whether the server may hold its answer back until something changes.
    pub(super) fn waits(&self, query: Option<&str>) -> bool {
        self.is_consul_compatible() && query.is_some_and(|query| has(query, "index"))
    }

    /// A request's head as the server is sent it; `None` where it names no path. With `session`, that token is put on, and no
    /// other goes along; without, a caller's own stays. The listener's key goes nowhere.
    pub(super) fn head(
        &self,
        parts: &request::Parts,
        call: Call,
        session: Option<&TokenHeader>,
        body: &RequestBody,
    ) -> Option<RequestHead> {
        let (target, headers, tokens) = (parts.uri.path_and_query()?, &parts.headers, token_headers(self.kind));
        let ours = session.is_some();
        let keeps = |name: &HeaderName| {
            !(*name == EXPECT
                || *name == VAULT_REQUEST
                || ((ours || call.keyed) && *name == AUTHORIZATION)
                || (call.keyed && *name == VAULT_TOKEN)
                || (ours && *name == ACCEPT_ENCODING)
                || (ours && tokens.contains(name)))
        };
        let line = RequestLine { method: &parts.method, prefix: &self.prefix, target, host: &self.host };
        let mut head = RequestHead::new(line, headers, keeps, body);
        head.put(&VAULT_REQUEST, &HeaderValue::from_static("true"));
        if let Some(token) = session {
            // What is compressed cannot be searched for the token.
            head.put(&ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
            if let Some(namespace) = &self.namespace {
                let names = namespace_headers(self.kind);
                let told = RequestHeaders::parse(self.kind, headers).namespace().is_some()
                    || (self.is_consul_compatible() && target.query().is_some_and(|query| has(query, "ns")));
                if !told {
                    head.put(&names[0], namespace);
                }
            }
            self.set_token(&mut head, token);
        }
        Some(head)
    }

    /// The session's namespace; empty for the root.
    pub(super) fn own_namespace(&self) -> &str {
        self.namespace.as_ref().and_then(|namespace| namespace.to_str().ok()).unwrap_or_default()
    }

    /// The namespace that a caller names in a header or, for a server that takes it there, in the query.
    ///
    /// # Errors
    /// Servers read it in different ways.
    pub(super) fn named_namespace(
        &self,
        request_headers: &RequestHeaders<'_>,
        query: Query<'_>,
    ) -> Result<Option<String>, &'static str> {
        const MANY: &str = "more than one namespace is named";
        if request_headers.conflicting_namespaces {
            return Err(MANY);
        }
        let in_query = if self.is_consul_compatible() { query.only("ns").map_err(|_| MANY)? } else { None };
        let header = request_headers.namespace().map(HeaderValue::as_bytes);
        let named = in_query.as_deref().or(header);
        named.map(|named| namespace::parse(named).map(str::to_owned)).transpose()
    }

    /// The namespace that a request is sent to, as it is sent; empty for the root. [`Self::named_namespace`] has checked it.
    pub(super) fn namespace<'a>(&'a self, request_headers: &RequestHeaders<'a>, with_session: bool) -> &'a str {
        let own = self.namespace.as_ref().filter(|_| with_session);
        let sent = request_headers.namespace().or(own).map_or(&b""[..], HeaderValue::as_bytes);
        std::str::from_utf8(sent).unwrap_or_default()
    }

    /// Puts a token on, in the place of the one that it carries.
    pub(super) fn set_token(&self, head: &mut RequestHead, token: &TokenHeader) {
        if let Some(first) = token_headers(self.kind).first() {
            head.set_auth_header(first, &token.value);
        }
    }

    /// The server in words.
    pub(super) fn server(&self) -> String {
        match self.host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) {
            Some(host) => format!("the secrets server {} at {host}", self.name),
            None => format!("the secrets server {}", self.name),
        }
    }
}

fn has(query: &str, name: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::Request;
    use secrecy::SecretString;

    use super::*;
    use crate::agent::server_client::ServerKind::{Consul, Keyward, Vault};
    use crate::agent::token::{ClientToken, Generation, Lease, Token, TokenKind};
    use crate::clock::Clock;

    fn token() -> TokenHeader {
        let token = Token {
            secret: ClientToken::parse(SecretString::from("ours")).unwrap(),
            accessor: None,
            lease: Lease { ttl: Duration::from_mins(1), renewable: true },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: Clock::System.now(),
            expires: None,
            generation: Generation::new(),
        };
        TokenHeader { token: Arc::new(token), value: HeaderValue::from_static("ours") }
    }

    fn dressed(kind: ServerKind, given: &str, with_session: bool, keyed: bool) -> String {
        let mut request = Request::get("/v1/a");
        for line in given.split('|').filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let dialect = ServerDialect::new(
            kind,
            "main".to_owned(),
            HeaderValue::from_static("vault:8200"),
            String::new(),
            Some("team"),
        );
        let call = Call { caller: Caller::ourselves(), with_session, returns_token: false, keyed };
        let token = token();
        let head = dialect.head(&parts, call, with_session.then_some(&token), &RequestBody::empty()).unwrap();
        let mut lines = head.lines().split_off(1);
        lines.retain(|line| {
            !["host: vault:8200", "x-vault-request: true", "accept-encoding: identity"].contains(&line.as_str())
        });
        lines.sort();
        lines.join(" ").replace(": ", "=")
    }

    #[test]
    fn one_token_alone_goes_to_the_server_and_the_listeners_key_never() {
        let check = |kind, given, session, keyed, wanted| {
            assert_eq!(dressed(kind, given, session, keyed), wanted, "{given}");
        };
        check(
            Vault,
            "X-Vault-Token: mine|Authorization: Bearer b|Expect: 100-continue",
            false,
            false,
            "authorization=Bearer b x-vault-token=mine",
        );
        check(
            Vault,
            "X-Vault-Token: mine|Authorization: Bearer b",
            true,
            false,
            "x-vault-namespace=team x-vault-token=ours",
        );
        check(Vault, "X-Vault-Token: key", true, true, "x-vault-namespace=team x-vault-token=ours");
        check(Vault, "X-Vault-Token: key", false, true, "");
        check(Vault, "X-Vault-Namespace: other", true, false, "x-vault-namespace=other x-vault-token=ours");
        check(Vault, "X-Vault-Namespace: other", false, false, "x-vault-namespace=other");
        check(
            Keyward,
            "X-Consul-Token: mine|X-Vault-Token: key",
            true,
            true,
            "x-service-namespace=team x-service-token=ours",
        );
        check(Consul, "X-Vault-Token: key", true, true, "x-consul-namespace=team x-consul-token=ours");
        check(Keyward, "X-Consul-Token: mine|X-Vault-Token: key", false, true, "x-consul-token=mine");
        check(Keyward, "X-Consul-Namespace: other", true, false, "x-consul-namespace=other x-service-token=ours");
    }
}
