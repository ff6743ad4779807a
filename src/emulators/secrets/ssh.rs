//! SSH engine (`ssh/sign/ROLE`) with a CA that is valid as long as the server runs. Its roles are those of the type `ca`, and allow what
//! OpenBao's allow (`builtin/logical/ssh`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use keyward_telemetry::hex::encode_hex;
use serde_json::{Value, json};

use super::faults::Wording;
use super::reply::{WrappableResponse, refusal, success};
use super::route::{Route, Verb, seconds};
use super::tokens::unix_seconds;

/// A role of the engine. The default one allows nothing, as on the real server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshRole {
    /// Certificates of users are allowed.
    pub allow_user_certificates: bool,
    /// Certificates of hosts are allowed.
    pub allow_host_certificates: bool,
    /// Users, with commas between them; `*` for all.
    pub allowed_users: String,
    /// User of a request without principals.
    pub default_user: String,
    /// Domains, with commas between them; `*` for all.
    pub allowed_domains: String,
    /// The domains themselves are allowed.
    pub allow_bare_domains: bool,
    /// Hosts below the domains are allowed.
    pub allow_subdomains: bool,
    /// Certificates without principals, which are good for all, are allowed.
    pub allow_empty_principals: bool,
    /// Requests may set `key_id`.
    pub allow_user_key_ids: bool,
    /// Extensions that requests may set, with commas between them; `*` for all.
    pub allowed_extensions: String,
    /// Extensions of requests without any.
    pub default_extensions: BTreeMap<String, String>,
    /// Critical options that requests may set, with commas between them; empty for all.
    pub allowed_critical_options: String,
    /// Critical options of requests without any.
    pub default_critical_options: BTreeMap<String, String>,
    /// Life of a certificate; zero for the server's default.
    pub ttl: Duration,
    /// Longest life; zero for the server's.
    pub max_ttl: Duration,
}

impl SshRole {
    /// Creates a role for users, the first one by default, with a terminal.
    pub fn for_users(users: &str) -> Self {
        Self {
            allow_user_certificates: true,
            allowed_users: users.to_owned(),
            default_user: users.split(',').next().unwrap_or_default().to_owned(),
            allowed_extensions: "permit-pty,permit-port-forwarding".to_owned(),
            default_extensions: BTreeMap::from([("permit-pty".to_owned(), String::new())]),
            ..Self::default()
        }
    }

    /// Creates a role for hosts of these domains.
    pub fn for_hosts(domains: &str) -> Self {
        Self {
            allow_host_certificates: true,
            allowed_domains: domains.to_owned(),
            allow_bare_domains: true,
            allow_subdomains: true,
            ..Self::default()
        }
    }
}

/// The CA.
pub(super) struct SshAuthority {
    key: Ed25519KeyPair,
    /// Id of the CA among the issuers of the engine, which OpenBao has and Vault does not.
    issuer_id: String,
}

/// Caller of a request that needs a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct SshCaller<'a> {
    /// Display name of its token.
    pub(super) display_name: &'a str,
    pub(super) wording: Wording,
}

impl std::fmt::Debug for SshAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SshAuthority")
    }
}

impl SshAuthority {
    /// Creates a CA; `None` if the kernel returns no random bytes.
    pub(super) fn new() -> Option<Self> {
        Some(Self { key: Ed25519KeyPair::generate().ok()?, issuer_id: uuid::Uuid::new_v4().to_string() })
    }

    /// Handles `ssh/public_key`, which needs no token.
    pub(super) fn read_public_key(&self) -> WrappableResponse {
        WrappableResponse::Text("text/plain", format!("{}\n", self.public_line()))
    }

    fn public_blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        put(&mut blob, ED25519.as_bytes());
        put(&mut blob, self.key.public_key().as_ref());
        blob
    }

    fn public_line(&self) -> String {
        format!("{ED25519} {}", STANDARD.encode(self.public_blob()))
    }

    /// Handles a request below `ssh/` that needs a token.
    pub(super) fn handle(
        &self,
        route: &Route<'_>,
        roles: &BTreeMap<String, SshRole>,
        body: &Value,
        caller: SshCaller<'_>,
        now: SystemTime,
    ) -> WrappableResponse {
        let path = route.strip_prefix("ssh");
        if let ("config/ca", Verb::Read) = (path, route.verb) {
            return success("data", json!({ "public_key": self.public_line() }));
        }
        let Some(name) = path.strip_prefix("sign/").filter(|_| route.verb == Verb::Write) else {
            return refusal(StatusCode::NOT_FOUND, "unsupported path");
        };
        let signed = match roles.get(name) {
            Some(role) => self.sign(role, body, caller, now),
            None => Err(format!("Unknown role: {name}")),
        };
        signed.map_or_else(|error| refusal(StatusCode::BAD_REQUEST, &error), |data| success("data", data))
    }

    fn sign(&self, role: &SshRole, body: &Value, caller: SshCaller<'_>, now: SystemTime) -> Result<Value, String> {
        let key = PublicKey::parse(text(body, "public_key")?)?;
        let key_id = key_id(role, body, &key, caller)?;
        let kind = if body.get("cert_type").is_none() { "user" } else { text(body, "cert_type")? };
        let (kind, principals) = match kind {
            "user" if role.allow_user_certificates => (1_u32, user_principals(role, body)?),
            "user" => return Err("cert_type 'user' is not allowed by role".to_owned()),
            "host" if role.allow_host_certificates => (2, host_principals(role, body)?),
            "host" => return Err("cert_type 'host' is not allowed by role".to_owned()),
            _ => return Err("cert_type must be either 'user' or 'host'".to_owned()),
        };
        let ttl = life(role, body)?;
        let critical_options = critical_options(role, body)?;
        let extensions = extensions(role, body)?;
        let mut random = [0_u8; 40];
        rand::fill(&mut random).map_err(|_| "no random numbers".to_owned())?;
        let (nonce, serial) = random.split_at(32);
        let mut blob = Vec::new();
        let certificate_kind = format!("{}-cert-v01@openssh.com", key.kind);
        put(&mut blob, certificate_kind.as_bytes());
        put(&mut blob, nonce);
        blob.extend(&key.fields);
        blob.extend(serial);
        blob.extend(kind.to_be_bytes());
        put(&mut blob, key_id.as_bytes());
        put_list(&mut blob, principals.iter().map(String::as_bytes));
        blob.extend(unix_seconds(now - BACKDATED).to_be_bytes());
        blob.extend(unix_seconds(now + ttl).to_be_bytes());
        put_options(&mut blob, &critical_options);
        put_options(&mut blob, &extensions);
        put(&mut blob, b"");
        put(&mut blob, &self.public_blob());
        let mut signature = Vec::new();
        put(&mut signature, ED25519.as_bytes());
        put(&mut signature, self.key.sign(&blob).as_ref());
        put(&mut blob, &signature);
        let serial = serial.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let mut data = json!({
            "serial_number": format!("{serial:x}"),
            "signed_key": format!("{certificate_kind} {}\n", STANDARD.encode(blob)),
        });
        if caller.wording == Wording::OpenBao {
            data["issuer_id"] = self.issuer_id.as_str().into();
        }
        Ok(data)
    }
}

const ED25519: &str = "ssh-ed25519";

/// Default of the real server's `not_before_duration`.
const BACKDATED: Duration = Duration::from_secs(30);
/// Default of the real server's `max_lease_ttl`, and of its `default_lease_ttl`.
const MAX_TTL: Duration = Duration::from_hours(768);

/// Returns a field that is a string; empty without it.
fn text<'a>(body: &'a Value, name: &str) -> Result<&'a str, String> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => {
            Err(format!("Field validation failed: error converting input for field {name:?}: expected type 'string'"))
        }
    }
}

/// Returns a field that is an object of strings. The real server takes no text for it.
fn map(body: &Value, name: &str) -> Result<BTreeMap<String, String>, String> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(fields)) => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Ok(fields.iter().map(|(name, value)| (name.clone(), text(value))).collect())
        }
        Some(_) => Err(format!("Field validation failed: error converting input for field {name:?}: expected a map")),
    }
}

fn split(list: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !parts.iter().any(|known| known == part) {
            parts.push(part.to_owned());
        }
    }
    parts
}

fn key_id(role: &SshRole, body: &Value, key: &PublicKey, caller: SshCaller<'_>) -> Result<String, String> {
    match text(body, "key_id")? {
        "" => {
            let name = if caller.display_name.is_empty() { String::new() } else { format!("{}-", caller.display_name) };
            Ok(format!("vault-{name}{}", encode_hex(digest(&SHA256, &key.blob).as_ref())))
        }
        _ if !role.allow_user_key_ids => Err("setting key_id is not allowed by role".to_owned()),
        key_id => Ok(key_id.to_owned()),
    }
}

fn user_principals(role: &SshRole, body: &Value) -> Result<Vec<String>, String> {
    let allows = |allowed: &[String], name: &str| allowed.iter().any(|user| user == name);
    valid_principals(role, body, &role.default_user, &role.allowed_users, allows)
}

fn host_principals(role: &SshRole, body: &Value) -> Result<Vec<String>, String> {
    let allows = |allowed: &[String], name: &str| {
        allowed.iter().any(|domain| {
            (role.allow_bare_domains && domain == name)
                || (role.allow_subdomains && name.ends_with(&format!(".{domain}")))
        })
    };
    valid_principals(role, body, "", &role.allowed_domains, allows)
}

fn valid_principals(
    role: &SshRole,
    body: &Value,
    default: &str,
    allowed: &str,
    allows: impl Fn(&[String], &str) -> bool,
) -> Result<Vec<String>, String> {
    let given = body.get("valid_principals").is_some_and(|given| !given.is_null());
    let principals = split(if given { text(body, "valid_principals")? } else { default });
    if principals.is_empty() {
        if !role.allow_empty_principals && allowed != "*" {
            return Err("refusing to issue unsafe, globally-valid certificate with no principals specified; set valid_principals or default_user".to_owned());
        }
        return Ok(principals);
    }
    let names = split(allowed);
    if names.is_empty() {
        return Err("role is not configured to allow any principals".to_owned());
    }
    match principals.iter().find(|name| allowed != "*" && !allows(&names, name)) {
        Some(name) => Err(format!("{name} is not a valid value for valid_principals")),
        None => Ok(principals),
    }
}

fn life(role: &SshRole, body: &Value) -> Result<Duration, String> {
    let or = |ttl: Duration, default: Duration| if ttl.is_zero() { default } else { ttl };
    let max = or(role.max_ttl, MAX_TTL);
    match body.get("ttl").filter(|ttl| !ttl.is_null()) {
        None => Ok(or(role.ttl, MAX_TTL).min(max)),
        Some(ttl) => {
            let ttl = seconds(ttl).ok_or("Field validation failed: error converting input for field \"ttl\"")?;
            let ttl = or(ttl, MAX_TTL);
            if ttl > max {
                return Err(format!("ttl is larger than maximum allowed {}", max.as_secs()));
            }
            Ok(ttl)
        }
    }
}

fn critical_options(role: &SshRole, body: &Value) -> Result<BTreeMap<String, String>, String> {
    let options = map(body, "critical_options")?;
    if options.is_empty() {
        return Ok(role.default_critical_options.clone());
    }
    let allowed: Vec<&str> = role.allowed_critical_options.split(',').collect();
    let refused: Vec<&str> = options.keys().map(String::as_str).filter(|name| !allowed.contains(name)).collect();
    if !role.allowed_critical_options.is_empty() && !refused.is_empty() {
        return Err(format!("critical options not on allowed list: [{}]", refused.join(" ")));
    }
    Ok(options)
}

fn extensions(role: &SshRole, body: &Value) -> Result<BTreeMap<String, String>, String> {
    let extensions = map(body, "extensions")?;
    if extensions.is_empty() {
        return Ok(role.default_extensions.clone());
    }
    let allowed: Vec<&str> = role.allowed_extensions.split(',').collect();
    let refused: Vec<&str> = extensions.keys().map(String::as_str).filter(|name| !allowed.contains(name)).collect();
    if role.allowed_extensions != "*" && !refused.is_empty() {
        return Err(format!("extensions [{}] are not on allowed list", refused.join(" ")));
    }
    Ok(extensions)
}

/// The key to sign.
struct PublicKey {
    kind: String,
    blob: Vec<u8>,
    /// The fields after the type, as they are encoded.
    fields: Vec<u8>,
}

impl PublicKey {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("missing public_key".to_owned());
        }
        let fail = |why: &str| format!("failed to parse public_key as SSH key: {why}");
        let base64 = text.split(' ').nth(1).unwrap_or(text);
        let blob = STANDARD.decode(base64).map_err(|_| fail("illegal base64 data at input byte 0"))?;
        let mut rest = blob.as_slice();
        let kind =
            take(&mut rest).and_then(|kind| std::str::from_utf8(kind).ok()).ok_or_else(|| fail("ssh: short read"))?;
        let count = match kind {
            ED25519 => 1,
            "ssh-rsa" | "ecdsa-sha2-nistp256" | "ecdsa-sha2-nistp384" | "ecdsa-sha2-nistp521" => 2,
            other => return Err(fail(&format!("ssh: unknown key algorithm: {other}"))),
        };
        let (kind, fields) = (kind.to_owned(), rest.to_vec());
        for _ in 0..count {
            take(&mut rest).ok_or_else(|| fail("ssh: short read"))?;
        }
        if !rest.is_empty() {
            return Err(fail("ssh: trailing junk in public key"));
        }
        Ok(Self { kind, blob, fields })
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (field, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(field)
}

/// Appends a field with its length before it.
fn put(blob: &mut Vec<u8>, field: &[u8]) {
    blob.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    blob.extend(field);
}

fn put_list<'a>(blob: &mut Vec<u8>, fields: impl Iterator<Item = &'a [u8]>) {
    let mut list = Vec::new();
    fields.for_each(|field| put(&mut list, field));
    put(blob, &list);
}

/// Appends options by name. A value is a field within its field, and one without value is empty (`PROTOCOL.certkeys`).
fn put_options(blob: &mut Vec<u8>, options: &BTreeMap<String, String>) {
    let mut list = Vec::new();
    for (name, value) in options {
        put(&mut list, name.as_bytes());
        let mut inner = Vec::new();
        if !value.is_empty() {
            put(&mut inner, value.as_bytes());
        }
        put(&mut list, &inner);
    }
    put(blob, &list);
}
