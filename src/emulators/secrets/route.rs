//! Classification of requests by method and path, and parsing of durations.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use serde_json::Value;

use super::faults::Operation;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) verb: Verb,
    /// Path below `/v1/`, decoded, without slashes around it.
    pub(super) path: Cow<'a, str>,
    pub(super) kind: RequestKind,
}

/// Operation on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    List,
    Write,
    Patch,
    Delete,
}

/// Part of the server that handles the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// `sys/health`, `sys/seal-status`, `sys/init`, `sys/leader`: needs no token, and is not counted.
    Health,
    /// The same paths with another method.
    HealthMethod,
    /// `sys/seal`.
    Seal,
    /// `auth/MOUNT/login`, `auth/MOUNT/login/NAME`.
    Login,
    /// `auth/MOUNT/role/...`: ids of `AppRole`.
    AppRole,
    /// `sys/wrapping/unwrap`.
    Unwrap,
    /// `sys/wrapping/lookup`.
    LookupWrapped,
    /// `sys/wrapping/wrap`.
    Wrap,
    /// `auth/token/...`.
    Token(TokenCall),
    /// `sys/leases/...`, and the older `sys/renew`, `sys/revoke`.
    Lease(LeaseCall),
    /// `sys/mounts`, `sys/internal/ui/mounts/...`, `sys/capabilities-self`.
    System,
    /// The CA's certificates below `pki/`, and its public key below `ssh/`, which need no token.
    PublicCertificate,
    /// Below the mount of an engine.
    Engine(Engine),
    /// Nothing is there, which only a valid token is told.
    Unknown,
}

/// Operation of `auth/token`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenCall {
    LookupSelf,
    RenewSelf,
    RevokeSelf,
    Create,
    /// Of another token, by its text or its accessor.
    Lookup,
    Renew,
    Revoke,
    RevokeOrphan,
    Accessors,
}

/// Operation on leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseCall {
    Lookup,
    Renew,
    Revoke,
    RevokePrefix,
}

/// Engines with their fixed mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// `secret/`.
    Versioned,
    /// `kv/`.
    Plain,
    Terraform,
    Database,
    Pki,
    Ssh,
    /// Per token.
    Cubbyhole,
}

impl Engine {
    pub(super) const ALL: [Self; 7] =
        [Self::Versioned, Self::Plain, Self::Terraform, Self::Database, Self::Pki, Self::Ssh, Self::Cubbyhole];

    /// Returns the mount.
    pub(super) const fn mount(self) -> &'static str {
        match self {
            Self::Versioned => "secret",
            Self::Plain => "kv",
            Self::Terraform => "terraform",
            Self::Database => "database",
            Self::Pki => "pki",
            Self::Ssh => "ssh",
            Self::Cubbyhole => "cubbyhole",
        }
    }
}

impl RequestKind {
    /// Returns the operation for counters and fault injection.
    pub(super) const fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::Health | Self::HealthMethod | Self::Unknown => return None,
            Self::Login => Operation::Login,
            Self::Unwrap => Operation::Unwrap,
            Self::Wrap | Self::LookupWrapped => Operation::Wrap,
            Self::Token(TokenCall::LookupSelf) => Operation::Lookup,
            Self::Token(TokenCall::RenewSelf) => Operation::Renew,
            Self::Token(TokenCall::RevokeSelf) => Operation::Revoke,
            Self::Token(TokenCall::Create) => Operation::CreateToken,
            Self::Token(_) | Self::AppRole => Operation::OtherToken,
            Self::Lease(LeaseCall::Lookup) => Operation::LookupLease,
            Self::Lease(LeaseCall::Renew) => Operation::RenewLease,
            Self::Lease(LeaseCall::Revoke | LeaseCall::RevokePrefix) => Operation::RevokeLease,
            Self::System | Self::Seal => Operation::System,
            Self::PublicCertificate | Self::Engine(_) => Operation::Secret,
        })
    }
}

impl<'a> Route<'a> {
    /// Parses a request; `None` if its method or path is none of the API.
    pub(super) fn parse(head: &'a Parts) -> Option<Self> {
        let path = head.uri.path().strip_prefix("/v1/")?.trim_matches('/');
        let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
        // Booleans as Go parses them; hvac sends `True`.
        let lists =
            query(head, "list").is_some_and(|list| matches!(&*list, "1" | "t" | "T" | "true" | "True" | "TRUE"));
        let verb = match head.method {
            Method::GET if lists => Verb::List,
            Method::GET | Method::HEAD => Verb::Read,
            Method::POST | Method::PUT => Verb::Write,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if head.method.as_str() == "LIST" => Verb::List,
            _ => return None,
        };
        let kind = classify(verb, &path).unwrap_or(RequestKind::Unknown);
        Some(Self { verb, path, kind })
    }

    /// Returns the rest of the path after a prefix.
    pub(super) fn strip_prefix(&self, prefix: &str) -> &str {
        self.path.strip_prefix(prefix).unwrap_or_default().trim_start_matches('/')
    }
}

/// Returns one parameter of the query.
pub(super) fn query<'a>(head: &'a Parts, name: &str) -> Option<Cow<'a, str>> {
    let pairs = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn classify(verb: Verb, path: &str) -> Option<RequestKind> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match (first, verb) {
        ("sys", _) => system(verb, rest),
        ("auth", _) => match (rest.strip_prefix("token/"), verb) {
            (Some(call), _) => token(verb, call).map(RequestKind::Token),
            (None, Verb::Write) if is_login(rest) => Some(RequestKind::Login),
            (None, Verb::Read | Verb::Write) if rest.contains("/role/") => Some(RequestKind::AppRole),
            _ => None,
        },
        ("pki", Verb::Read) if ["cert", "ca", "ca_chain"].contains(&rest.split('/').next().unwrap_or_default()) => {
            Some(RequestKind::PublicCertificate)
        }
        ("ssh", Verb::Read) if rest == "public_key" => Some(RequestKind::PublicCertificate),
        _ => Engine::ALL.into_iter().find(|engine| engine.mount() == first).map(RequestKind::Engine),
    }
}

fn is_login(rest: &str) -> bool {
    let (mount, name) = rest.split_once("/login").unwrap_or_default();
    !mount.is_empty() && (name.is_empty() || name.starts_with('/'))
}

fn system(verb: Verb, rest: &str) -> Option<RequestKind> {
    let starts = |start: &str| rest == start || rest.strip_prefix(start).is_some_and(|more| more.starts_with('/'));
    Some(match (rest, verb) {
        ("health" | "seal-status" | "init" | "leader", Verb::Read) => RequestKind::Health,
        ("health" | "seal-status" | "init" | "leader", _) => RequestKind::HealthMethod,
        ("seal", Verb::Write) => RequestKind::Seal,
        ("wrapping/unwrap", Verb::Write) => RequestKind::Unwrap,
        ("wrapping/lookup", Verb::Write | Verb::Read) => RequestKind::LookupWrapped,
        ("wrapping/wrap", Verb::Write) => RequestKind::Wrap,
        ("mounts" | "capabilities-self", _) => RequestKind::System,
        _ if starts("internal/ui/mounts") && verb == Verb::Read => RequestKind::System,
        ("leases/lookup", Verb::Write) => RequestKind::Lease(LeaseCall::Lookup),
        _ if starts("leases/lookup") && verb == Verb::List => RequestKind::Lease(LeaseCall::Lookup),
        _ if verb != Verb::Write => return None,
        _ if starts("leases/renew") || starts("renew") => RequestKind::Lease(LeaseCall::Renew),
        _ if starts("leases/revoke-prefix") || starts("revoke-prefix") => RequestKind::Lease(LeaseCall::RevokePrefix),
        _ if starts("leases/revoke") || starts("revoke") => RequestKind::Lease(LeaseCall::Revoke),
        _ => return None,
    })
}

fn token(verb: Verb, call: &str) -> Option<TokenCall> {
    Some(match (call, verb) {
        ("lookup-self", Verb::Read | Verb::Write) => TokenCall::LookupSelf,
        ("accessors", Verb::List) => TokenCall::Accessors,
        ("lookup", Verb::Read) => TokenCall::Lookup,
        (_, verb) if verb != Verb::Write => return None,
        ("renew-self", _) => TokenCall::RenewSelf,
        ("revoke-self", _) => TokenCall::RevokeSelf,
        ("create" | "create-orphan", _) => TokenCall::Create,
        _ if call.strip_prefix("create/").is_some_and(|role| !role.is_empty() && !role.contains('/')) => {
            TokenCall::Create
        }
        ("lookup" | "lookup-accessor", _) => TokenCall::Lookup,
        ("renew" | "renew-accessor", _) => TokenCall::Renew,
        ("revoke" | "revoke-accessor", _) => TokenCall::Revoke,
        ("revoke-orphan", _) => TokenCall::RevokeOrphan,
        _ => return None,
    })
}

/// Parses a duration: seconds as a number, or a string such as `90`, `90s` or `2m`.
pub(super) fn seconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => {
            text.parse().map(Duration::from_secs).ok().or_else(|| humantime::parse_duration(text).ok())
        }
        _ => None,
    }
}
