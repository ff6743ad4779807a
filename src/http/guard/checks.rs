//! Checks peer, method, target and headers of a request. Pure: no logs and no metrics.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

use super::{AccessMode, Guard, GuardRejection, GuardRules, LocalCaller, RequiredHeader};
use crate::server::Peer;

const MAX_URI: usize = 4 * 1024;
const MAX_HEADERS: usize = 64;

impl Guard {
    /// Checks a request without logging or counting.
    pub(crate) fn decide<B>(&self, peer: &Peer, request: &Request<B>) -> Result<LocalCaller, GuardRejection> {
        let headers = request.headers();
        if request.uri().path_and_query().is_some_and(|target| target.as_str().len() > MAX_URI) {
            return reject(StatusCode::URI_TOO_LONG, "uri", "the URI is longer than 4096 bytes");
        }
        if headers.len() > MAX_HEADERS {
            return reject(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers", "there are more than 64 headers");
        }
        // CONNECT would open a tunnel, and TRACE would return the headers, token included (RFC 9110, 9.3.6 and 9.3.8).
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return reject(StatusCode::METHOD_NOT_ALLOWED, "method", "CONNECT and TRACE are not served");
        }
        let fields = GuardHeaders::parse(headers)?;
        // Two ends of one body: what one server reads as the rest of it, another reads as a request (RFC 9112, 11.2).
        if fields.length.is_some() && fields.encoding.is_some() {
            return reject(StatusCode::BAD_REQUEST, "framing", TWO_LENGTHS);
        }
        let mut key_as_token = false;
        match &self.rules {
            GuardRules::Probes => {}
            GuardRules::Local { admit, hosts, common, port, body_bytes, chunked, required } => {
                // HTTP/1.0 has no chunked coding, and needs no `Host` (RFC 9112, 3.2).
                if request.version() != Version::HTTP_11 {
                    return reject(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "version", "HTTP/1.1 is required");
                }
                let plain = request.uri().authority().is_none();
                if !(plain && fields.host.is_some_and(|host| common.iter().any(|known| **known == *host.as_bytes()))) {
                    fields.check_host(request.uri(), hosts, *port)?;
                }
                fields.check_not_relayed()?;
                fields.check_deliberate(*required, admit, request.method())?;
                fields.check_framing(*body_bytes, *chunked)?;
                admit.admit(peer, self.own_uid, &fields, *required)?;
                key_as_token = matches!(admit, AccessMode::Key(key) if fields.token_is(key));
            }
        }
        Ok(LocalCaller { uid: peer.uid(), pid: peer.pid(), key_as_token })
    }
}

/// Headers that the guard checks, collected in one pass. A repeated header is an error if only one can have a meaning.
#[derive(Default)]
struct GuardHeaders<'a> {
    host: Option<&'a HeaderValue>,
    request: Option<&'a HeaderValue>,
    relayed: bool,
    /// Key from `X-Keyward-Key`.
    key: Option<&'a [u8]>,
    /// Token, or a key in its place, from `X-Vault-Token` or `Authorization: Bearer`.
    token: Option<&'a [u8]>,
    /// Key from `X-IDENTITY-HEADER`.
    identity: Option<&'a [u8]>,
    /// Whole value of `Authorization`.
    authorization: Option<&'a [u8]>,
    length: Option<&'a HeaderValue>,
    encoding: Option<&'a HeaderValue>,
}

impl<'a> GuardHeaders<'a> {
    fn parse(headers: &'a HeaderMap) -> Result<Self, GuardRejection> {
        let mut fields = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                "host" => set_once(&mut fields.host, value, "host", "there is more than one Host header")?,
                "x-vault-request" => {
                    set_once(
                        &mut fields.request,
                        value,
                        "request_header",
                        "there is more than one X-Vault-Request header",
                    )?;
                }
                "x-keyward-key" => {
                    set_once(&mut fields.key, value.as_bytes(), "key", "there is more than one X-Keyward-Key header")?;
                }
                "x-vault-token" => set_once(&mut fields.token, value.as_bytes(), "key", MANY_KEYS)?,
                "x-identity-header" => {
                    let message = "there is more than one X-IDENTITY-HEADER";
                    set_once(&mut fields.identity, value.as_bytes(), "key", message)?;
                }
                "authorization" => {
                    fields.authorization = fields.authorization.or(Some(value.as_bytes()));
                    if let Some(token) = bearer(value.as_bytes()) {
                        set_once(&mut fields.token, token, "key", MANY_KEYS)?;
                    }
                }
                "connection" if names_protected_header(value.as_bytes()) => {
                    let message = "Connection must not name a header that keyward checks";
                    return reject(StatusCode::BAD_REQUEST, "connection", message);
                }
                "content-length" => {
                    set_once(&mut fields.length, value, "framing", "there is more than one Content-Length")?;
                }
                "transfer-encoding" => {
                    set_once(&mut fields.encoding, value, "framing", "there is more than one Transfer-Encoding")?;
                }
                // An offer that may be ignored (RFC 9110, 7.8), and that some clients make with every request.
                "upgrade" if value.as_bytes().eq_ignore_ascii_case(b"h2c") => {}
                "upgrade" => return reject(StatusCode::BAD_REQUEST, "upgrade", "Upgrade is not served"),
                // A page of another origin, or of a name that was rebound to loopback, sends these; local tools do not.
                "origin" | "referer" | "cookie" | "cookie2" => return reject_browser(),
                // A relayed request would have the rights of the proxy that runs here, whoever sent it.
                "forwarded" | "via" | "x-real-ip" | "x-client-ip" | "cf-connecting-ip" | "true-client-ip" => {
                    fields.relayed = true;
                }
                name if name.starts_with("sec-fetch-") || name.starts_with("access-control-request-") => {
                    return reject_browser();
                }
                name if ["x-forwarded-", "x-envoy-", "proxy-"].iter().any(|start| name.starts_with(start)) => {
                    fields.relayed = true;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn token_is(&self, key: &SecretString) -> bool {
        self.token.is_some_and(|token| secret::ct_eq(key, token))
    }

    /// Returns the key as clients of cloud identities send it.
    fn identity_key(&self) -> Option<Cow<'a, [u8]>> {
        let plain = self.identity.or(self.key).or(self.token);
        let basic = || self.authorization.and_then(basic_password).map(Cow::Owned);
        plain.map(Cow::Borrowed).or_else(basic).or_else(|| self.authorization.map(Cow::Borrowed))
    }

    /// Returns true if a client of cloud identities sends this. A URL can name a user and a password, which whoever fetches it sends as
    /// Basic: that counts for clients of OAuth 2.0 alone, which post.
    fn has_identity_header(&self, method: &Method) -> bool {
        let is_basic = |value: &[u8]| value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Basic "));
        self.identity.or(self.key).or(self.token).is_some()
            || self.authorization.is_some_and(|value| *method == Method::POST || !is_basic(value))
    }

    fn check_host(&self, uri: &http::Uri, hosts: &BTreeSet<String>, port: Option<u16>) -> Result<(), GuardRejection> {
        let Some(host) = self.host.and_then(|host| host.to_str().ok()) else {
            return reject(StatusCode::BAD_REQUEST, "host", "the Host header is missing or unreadable");
        };
        if !is_allowed_host(host, hosts, port) {
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            let port = port.map(|port| format!(", with no port or :{port}")).unwrap_or_default();
            let message = format!("the Host header must be one of {}{port}", hosts.join(", "));
            return Err(GuardRejection {
                status: StatusCode::MISDIRECTED_REQUEST,
                reason: "host",
                message: Cow::Owned(message),
            });
        }
        // An absolute target overrides `Host` (RFC 9112, 3.2.2): the two must not differ.
        if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
            return reject(StatusCode::MISDIRECTED_REQUEST, "host", "the URI names another host than the Host header");
        }
        Ok(())
    }

    fn check_not_relayed(&self) -> Result<(), GuardRejection> {
        if self.relayed {
            return reject(StatusCode::BAD_REQUEST, "forwarded", "requests forwarded by a proxy are not allowed");
        }
        Ok(())
    }

    /// Checks for the header by which a client shows that it means this API: one that fetches the URL of another does not send it.
    fn check_deliberate(
        &self,
        required: RequiredHeader,
        admit: &AccessMode,
        method: &Method,
    ) -> Result<(), GuardRejection> {
        match self.request {
            Some(value) if value.as_bytes() == b"true" => Ok(()),
            None if required == RequiredHeader::None => Ok(()),
            None if required == RequiredHeader::Identity => match admit {
                // Nobody has the key by chance.
                AccessMode::Key(_) => Ok(()),
                AccessMode::SocketPeers | AccessMode::AnyLocalUser | AccessMode::Callers => {
                    if self.has_identity_header(method) {
                        return Ok(());
                    }
                    let message = "the request has neither X-IDENTITY-HEADER nor Authorization nor X-Keyward-Key";
                    reject(StatusCode::UNAUTHORIZED, "request_header", message)
                }
            },
            Some(_) => reject(StatusCode::PRECONDITION_FAILED, "request_header", "X-Vault-Request must be true"),
            None => {
                let message = "the header X-Vault-Request: true is missing";
                reject(StatusCode::PRECONDITION_FAILED, "request_header", message)
            }
        }
    }

    fn check_framing(&self, body_bytes: u64, chunked: bool) -> Result<(), GuardRejection> {
        if let Some(encoding) = self.encoding {
            if !chunked {
                return reject(StatusCode::BAD_REQUEST, "framing", TWO_LENGTHS);
            }
            // A body with another coding would be parsed as its content.
            if !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
                let message = "the body has another Transfer-Encoding than chunked";
                return reject(StatusCode::BAD_REQUEST, "framing", message);
            }
        }
        let Some(length) = self.length else { return Ok(()) };
        match length.to_str().ok().and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length <= body_bytes => Ok(()),
            Some(_) => {
                let message = Cow::Owned(format!("the body is larger than {body_bytes} bytes"));
                Err(GuardRejection { status: StatusCode::PAYLOAD_TOO_LARGE, reason: "body", message })
            }
            None => reject(StatusCode::BAD_REQUEST, "framing", "Content-Length is not a number"),
        }
    }
}

impl AccessMode {
    fn admit(
        &self,
        peer: &Peer,
        own_uid: u32,
        fields: &GuardHeaders<'_>,
        required: RequiredHeader,
    ) -> Result<(), GuardRejection> {
        if matches!(peer, Peer::Tcp { address, .. } if !address.ip().is_loopback()) {
            return reject(StatusCode::FORBIDDEN, "peer", "only local callers are allowed");
        }
        match (self, peer) {
            (Self::AnyLocalUser | Self::Callers, _) => Ok(()),
            (Self::SocketPeers, Peer::Unix { uid, in_group, .. }) => {
                if *uid == own_uid || *uid == 0 || *in_group {
                    return Ok(());
                }
                let text = "this user is neither the agent's, nor root, nor a member of the socket's group";
                reject(StatusCode::FORBIDDEN, "peer", text)
            }
            (Self::SocketPeers, Peer::Tcp { .. }) => {
                reject(StatusCode::FORBIDDEN, "peer", "the caller's user is unknown over TCP, and no key is configured")
            }
            (Self::Key(key), _) if required == RequiredHeader::Identity => {
                check_key(key, fields.identity_key().as_deref(), required)
            }
            (Self::Key(key), _) => check_key(key, fields.key.or(fields.token), required),
        }
    }
}

fn check_key(key: &SecretString, presented: Option<&[u8]>, required: RequiredHeader) -> Result<(), GuardRejection> {
    match presented {
        Some(presented) if secret::ct_eq(key, presented) => Ok(()),
        Some(_) => reject(StatusCode::FORBIDDEN, "key", "wrong key for this listener"),
        None => {
            let message = if required == RequiredHeader::Identity {
                "this listener requires its key: send it in X-IDENTITY-HEADER, Authorization or X-Keyward-Key"
            } else {
                "this listener requires its key: send it in X-Keyward-Key, X-Vault-Token or Authorization: Bearer"
            };
            reject(StatusCode::UNAUTHORIZED, "key", message)
        }
    }
}

/// Returns true if a `Host` value is an allowed name, without a port or with the listener's; any port is allowed if
/// `port` is `None`.
pub fn is_allowed_host(host: &str, hosts: &BTreeSet<String>, port: Option<u16>) -> bool {
    let name_end = if host.starts_with('[') {
        host.find(']').map_or(0, |end| end + 1)
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (name, rest) = host.split_at(name_end);
    let port_fits = match rest.strip_prefix(':') {
        None => rest.is_empty(),
        Some(text) => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            digits && text.parse::<u16>().is_ok_and(|number| port.is_none_or(|port| port == number))
        }
    };
    port_fits && hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key.trim_ascii())
}

/// Returns the password of `Authorization: Basic`: the secret of an OAuth client (RFC 6749, 2.3.1), in which a plus sign stands
/// for itself: keys have none, and some clients do not encode it.
fn basic_password(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, credentials) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let text = BASE64_STANDARD.decode(credentials.trim_ascii()).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (_, password) = text.split_at_checked(colon + 1)?;
    Some(percent_encoding::percent_decode(password).collect())
}

fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    reason: &'static str,
    message: &'static str,
) -> Result<(), GuardRejection> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => reject(StatusCode::BAD_REQUEST, reason, message),
    }
}

fn reject_browser<T>() -> Result<T, GuardRejection> {
    let message = "requests from web pages are not allowed (Origin, Referer, Cookie, Sec-Fetch-*)";
    reject(StatusCode::FORBIDDEN, "browser", message)
}

fn reject<T>(status: StatusCode, reason: &'static str, message: &'static str) -> Result<T, GuardRejection> {
    Err(GuardRejection { status, reason, message: Cow::Borrowed(message) })
}

const TWO_LENGTHS: &str = "the body must have a Content-Length and no Transfer-Encoding";

const MANY_KEYS: &str = "there is more than one key (X-Vault-Token, Authorization)";

/// Returns true if a header identifies the caller, the resource, the namespace or a condition. A proxy that dropped it
/// because `Connection` names it would check one request and forward another.
pub(crate) fn is_end_to_end(name: &[u8]) -> bool {
    let starts_with =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()));
    NAMES.iter().any(|candidate| name.eq_ignore_ascii_case(candidate.as_bytes())) || PREFIXES.iter().any(starts_with)
}

/// Returns true if a value of `Connection` names such a header.
pub(super) fn names_protected_header(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|option| is_end_to_end(option.trim_ascii()))
}

const NAMES: [&str; 6] = ["accept", "accept-encoding", "authorization", "cache-control", "host", "range"];

const PREFIXES: [&str; 6] = ["content-", "if-", "x-consul-", "x-keyward-", "x-service-", "x-vault-"];

#[cfg(test)]
mod tests;
