//! Logins by the auth method `gcp`, with the checks, order and messages of the real one. For facts about machines and service accounts
//! that the real one asks Google about, this one trusts the signed claims.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use keyward_http::client::Client;
use serde_json::Value;

use super::Role;
use super::cloud_services::CloudServices;
use super::login_method::VerifiedLogin;
use super::reply::{WrappableResponse, refusal};
use super::verify::Claims;

/// The auth method `gcp`.
#[derive(Debug, Clone)]
pub struct GcpMethod {
    /// Google's APIs, which have the public keys.
    pub apis: CloudServices,
    /// Roles by name.
    pub roles: BTreeMap<String, GcpRole>,
}

/// A role of the method `gcp`. An empty list of projects or zones binds nothing.
#[derive(Debug, Clone)]
pub struct GcpRole {
    /// Type of the role.
    pub kind: GcpRoleKind,
    /// Projects of machines; only for the type `gce`.
    pub bound_projects: Vec<String>,
    /// Zones of machines; only for the type `gce`.
    pub bound_zones: Vec<String>,
    /// Ids or e-mails of service accounts; required for the type `iam`.
    pub bound_service_accounts: Vec<String>,
    /// Properties of the tokens.
    pub role: Role,
}

/// Type of a role, which decides the kind of its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcpRoleKind {
    /// Identity tokens of machines.
    Gce,
    /// Tokens that a service account's key signs.
    Iam,
}

impl GcpMethod {
    pub(super) async fn verify<'a>(
        &'a self,
        client: &Client,
        body: &Value,
        now: SystemTime,
    ) -> Result<VerifiedLogin<'a>, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("role").is_empty() {
            return Err(bad("role is required"));
        }
        let found = self.roles.get_key_value(&text("role").to_lowercase());
        let (name, role) = found.ok_or_else(|| bad(&format!("role {:?} not found", text("role"))))?;
        if text("jwt").is_empty() {
            return Err(bad("jwt argument is required"));
        }
        let claims = verify_signature(client, text("jwt"), role.kind).await.map_err(|message| bad(&message))?;
        check_claims(&claims, name, now).map_err(|message| bad(&message))?;
        let metadata = match role.kind {
            GcpRoleKind::Gce => role.admit_machine(&claims),
            GcpRoleKind::Iam => role.admit_account(&claims, now),
        };
        let mut metadata = metadata.map_err(|message| bad(&message))?;
        metadata.insert("role".to_owned(), name.clone());
        Ok((name, &role.role, metadata))
    }
}

type Metadata = BTreeMap<String, String>;

impl GcpRole {
    fn admit_machine(&self, claims: &Claims) -> Result<Metadata, String> {
        let machine = claims.get("google").and_then(|google| google.get("compute_engine"));
        let field = |name: &str| machine.and_then(|machine| machine.get(name)?.as_str()).unwrap_or_default();
        let (instance, project, zone) = (field("instance_id"), field("project_id"), field("zone"));
        if instance.is_empty() {
            return Err("expected JWT to have claims with GCE metadata".to_owned());
        }
        if !allows(&self.bound_projects, project) {
            let bound = self.bound_projects.join(" ");
            return Err(format!("instance {instance:?} (project {project:?}) not in bound projects [{bound}]"));
        }
        if !allows(&self.bound_zones, zone) {
            return Err(format!("instance not in bound zones [{}]", quote(&self.bound_zones)));
        }
        let (id, email) = (text(claims, "sub"), text(claims, "email"));
        if !allows(&self.bound_service_accounts, id) && !allows(&self.bound_service_accounts, email) {
            let bound = quote(&self.bound_service_accounts);
            return Err(format!("service account {email:?} ({id:?}) is not in bound service accounts [{bound}]"));
        }
        let metadata = [
            ("instance_id", instance),
            ("instance_name", field("instance_name")),
            ("project_id", project),
            ("service_account_email", email),
            ("service_account_id", id),
            ("zone", zone),
        ];
        Ok(metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    /// Admits a service account. The real method does not look for a machine in the token of such a role.
    fn admit_account(&self, claims: &Claims, now: SystemTime) -> Result<Metadata, String> {
        if time(claims, "exp").is_none_or(|end| end > now + MAX_IAM_LIFE) {
            let most = MAX_IAM_LIFE.as_secs();
            return Err(format!("role requires that service account JWTs expire within {most} seconds"));
        }
        let account = text(claims, "sub");
        if self.bound_service_accounts.iter().any(|bound| bound == account) {
            return Ok(BTreeMap::from([("service_account_email".to_owned(), account.to_owned())]));
        }
        Err(format!("service account {account} (id: {account}) is not authorized for role"))
    }
}

/// Default of a role's `max_jwt_exp`.
const MAX_IAM_LIFE: Duration = Duration::from_mins(15);
/// Longest life of any token, and the tolerance of the clocks.
const MAX_LIFE: Duration = Duration::from_hours(1);
const LEEWAY: Duration = Duration::from_mins(1);

/// Verifies the signature by a key of Google, or for the type `iam` by one of the service account.
async fn verify_signature(client: &Client, jwt: &str, kind: GcpRoleKind) -> Result<Claims, String> {
    let header = jsonwebtoken::decode_header(jwt).map_err(|error| format!("unable to parse signed JWT: {error}"))?;
    let claims = unverified(jwt)
        .ok_or("unable to parse signed JWT: go-jose/go-jose: compact JWS format must have three parts")?;
    let kid = header.kid.unwrap_or_default();
    let account = text(&claims, "sub");
    let unknown = |why: &str| {
        format!(
            "unable to get public key for signed JWT: unable to get public key {kid:?} for JWT subject {account:?}: {why}"
        )
    };
    let google = get_keys(client, "/oauth2/v3/certs").await;
    let mut key = google.ok().and_then(|keys| keys.find(&kid).cloned());
    if key.is_none() {
        if kind == GcpRoleKind::Gce {
            return Err(unknown("no Google OAuth2 provider key found for GCE role"));
        }
        let path = format!("/service_accounts/v1/jwk/{account}");
        let keys = get_keys(client, &path).await.map_err(|error| unknown(&error))?;
        key = keys.find(&kid).cloned();
    }
    let key = key.ok_or_else(|| unknown(&format!("service account {kid:?} key {account:?} not found")))?;
    let mut rules = Validation::new(Algorithm::RS256);
    // Times and audience are checked afterwards, in the real server's order.
    rules.required_spec_claims.clear();
    rules.validate_exp = false;
    rules.validate_aud = false;
    let verified =
        DecodingKey::from_jwk(&key).ok().and_then(|key| jsonwebtoken::decode::<Claims>(jwt, &key, &rules).ok());
    verified.map(|data| data.claims).ok_or_else(|| "go-jose/go-jose: error in cryptographic primitive".to_owned())
}

fn check_claims(claims: &Claims, role: &str, now: SystemTime) -> Result<(), String> {
    let end = time(claims, "exp").filter(|end| *end + LEEWAY >= now);
    let end = end.ok_or("JWT is expired or does not have proper 'exp' claim")?;
    if end > now + MAX_LIFE + LEEWAY {
        let minutes = MAX_LIFE.as_secs() / 60;
        let left = end.duration_since(now).unwrap_or_default().as_secs();
        return Err(format!("JWT must expire in {minutes} minutes, expires in {left}s"));
    }
    if text(claims, "sub").is_empty() {
        return Err("expected JWT to have 'sub' claim with service account id or email".to_owned());
    }
    let expected = format!("vault/{role}");
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if audiences.iter().all(|audience| audience.ends_with(&expected)) {
        return Ok(());
    }
    Err(format!("at least one of the JWT claim 'aud' must end in {expected:?}"))
}

async fn get_keys(client: &Client, path: &str) -> Result<JwkSet, String> {
    let response = client.send(client.request(Method::GET, path)).await.map_err(|error| error.to_string())?;
    if !response.status.is_success() {
        return Err(format!("googleapi: got HTTP response code {}", response.status.as_u16()));
    }
    serde_json::from_slice(&response.body).map_err(|error| format!("unable to decode JSON response: {error}"))
}

fn unverified(jwt: &str) -> Option<Claims> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?).ok()
}

fn text<'a>(claims: &'a Claims, name: &str) -> &'a str {
    claims.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn time(claims: &Claims, name: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.get(name)?.as_u64()?))
}

fn allows(bound: &[String], value: &str) -> bool {
    bound.is_empty() || bound.iter().any(|entry| entry == value)
}

fn quote(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ")
}
