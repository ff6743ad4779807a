//! Auth methods for machines outside a cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use serde_json::Value;

use super::Role;
use super::jwt_bounds::JwtBounds;
use super::reply::{WrappableResponse, refusal};

/// An auth method for machines outside a cloud. Proofs are compared as text; no signature is verified.
#[derive(Debug, Clone)]
pub enum LoginMethod {
    /// `jwt`: signed tokens.
    Jwt {
        /// Texts of the accepted tokens.
        believed: Vec<SecretString>,
        /// Roles by name.
        roles: BTreeMap<String, Role>,
        /// Bounds of the claims.
        bounds: JwtBounds,
    },
    /// `kubernetes`: signed tokens of service accounts.
    Kubernetes {
        /// Texts of the accepted tokens.
        believed: Vec<SecretString>,
        /// Texts of tokens of service accounts that no role binds.
        unbound: Vec<SecretString>,
        /// Roles by name.
        roles: BTreeMap<String, Role>,
    },
    /// `approle`.
    AppRole(AppRoleMethod),
    /// `userpass`: a name and a password.
    UserPass {
        /// Passwords and roles, by name.
        users: BTreeMap<String, (SecretString, Role)>,
    },
    /// `cert`: accepts whoever the server's TLS has admitted.
    Certificate {
        /// Roles by name. A login without a name gets the first.
        roles: BTreeMap<String, Role>,
    },
}

/// The one role of an `AppRole` method.
#[derive(Debug, Clone)]
pub struct AppRoleMethod {
    /// Name.
    pub name: String,
    /// Role id.
    pub role_id: SecretString,
    /// Secret ids; if empty, none is required. `auth/MOUNT/role/NAME/secret-id` adds more.
    pub secret_ids: Vec<SecretString>,
    /// Longest lifetime of a secret id.
    pub secret_id_ttl: Duration,
    /// Role of the token.
    pub role: Role,
}

/// Result of a login: the role's name, the role, and the metadata of the token.
pub(super) type VerifiedLogin<'a> = (&'a str, &'a Role, BTreeMap<String, String>);

impl LoginMethod {
    /// Creates a method that accepts these signed tokens, whatever their issuer and audience.
    pub fn jwt(believed: Vec<SecretString>, roles: BTreeMap<String, Role>) -> Self {
        Self::Jwt { believed, roles, bounds: JwtBounds::default() }
    }

    /// Verifies a login. `user` is the name in its path; `is_issued` returns true for a secret id that the server made.
    pub(super) fn prove<'a>(
        &'a self,
        body: &'a Value,
        user: &'a str,
        now: ClockReading,
        is_issued: impl Fn(&str) -> bool,
    ) -> Result<VerifiedLogin<'a>, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let (name, role) = match self {
            Self::Jwt { .. } | Self::Kubernetes { .. } if text("role").is_empty() => return Err(bad("missing role")),
            Self::Jwt { believed, roles, bounds } => {
                let found = roles.get_key_value(text("role"));
                let found = found.ok_or_else(|| bad(&format!("role {:?} could not be found", text("role"))))?;
                if !contains(believed, text("jwt")) {
                    return Err(bad(NO_KNOWN_KEY));
                }
                let checked = bounds.check(text("jwt"), now.wall);
                checked.map_err(|error| bad(&format!("error validating token: {error}")))?;
                found
            }
            Self::Kubernetes { believed, unbound, roles } => {
                let found = roles.get_key_value(text("role"));
                let found = found.ok_or_else(|| bad(&format!("invalid role name {:?}", text("role"))))?;
                if contains(unbound, text("jwt")) {
                    return Err(refusal(StatusCode::FORBIDDEN, "service account name not authorized"));
                }
                // The real method says no more, whether the token is invalid or the API of the cluster cannot be reached.
                if !contains(believed, text("jwt")) {
                    return Err(refusal(StatusCode::FORBIDDEN, "permission denied"));
                }
                found
            }
            Self::AppRole(method) => {
                method.verify(text("role_id"), text("secret_id"), is_issued)?;
                let metadata = BTreeMap::from([("role_name".to_owned(), method.name.clone())]);
                return Ok((&method.name, &method.role, metadata));
            }
            Self::UserPass { users } => {
                let known = users.get_key_value(user);
                let known = known.filter(|(_, (password, _))| secret::ct_eq(password, text("password").as_bytes()));
                let (name, (_, role)) = known.ok_or_else(|| bad("invalid username or password"))?;
                return Ok((name, role, BTreeMap::from([("username".to_owned(), name.clone())])));
            }
            Self::Certificate { roles } if text("name").is_empty() => {
                roles.iter().next().ok_or_else(|| bad("invalid certificate or no client certificate supplied"))?
            }
            Self::Certificate { roles } => roles
                .get_key_value(text("name"))
                .ok_or_else(|| bad("failed to match all constraints for this login certificate"))?,
        };
        Ok((name, role, BTreeMap::from([("role".to_owned(), name.clone())])))
    }
}

impl AppRoleMethod {
    fn verify(
        &self,
        role_id: &str,
        secret_id: &str,
        is_issued: impl Fn(&str) -> bool,
    ) -> Result<(), WrappableResponse> {
        let bad = |message: &str| Err(refusal(StatusCode::BAD_REQUEST, message));
        if role_id.is_empty() {
            return Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, "missing role_id"));
        }
        if !secret::ct_eq(&self.role_id, role_id.as_bytes()) {
            return bad("invalid role or secret ID");
        }
        if self.secret_ids.is_empty() || contains(&self.secret_ids, secret_id) || is_issued(secret_id) {
            return Ok(());
        }
        bad(if secret_id.is_empty() { "missing secret_id" } else { "invalid role or secret ID" })
    }
}

const NO_KNOWN_KEY: &str =
    "error validating token: error verifying token signature: no known key successfully validated the token signature";

fn contains(secrets: &[SecretString], text: &str) -> bool {
    secrets.iter().any(|secret| secret::ct_eq(secret, text.as_bytes()))
}
