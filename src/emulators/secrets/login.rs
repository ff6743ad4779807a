//! Logins: `auth/MOUNT/login`.

use std::collections::BTreeMap;

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use serde_json::Value;

use super::Role;
use super::bounds::LoginFields;
use super::handler::RequestHandler;
use super::reply::{WrappableResponse, envelope, refusal};
use super::tokens::{Origin, random_text};

impl RequestHandler {
    /// Handles a login at `path`, such as `auth/azure/login`.
    pub(super) async fn login(
        &self,
        path: &str,
        namespace: &str,
        body: &Value,
        now: ClockReading,
    ) -> WrappableResponse {
        let mount = path.strip_prefix("auth/").and_then(|rest| rest.strip_suffix("/login")).unwrap_or_default();
        let verified = if mount == self.options().mount {
            self.cloud_login(body, now).await
        } else {
            let method = self.options().methods.get(mount);
            let method = method.ok_or_else(|| refusal(StatusCode::FORBIDDEN, "permission denied"));
            method.and_then(|method| method.prove(body))
        };
        let (name, role, metadata) = match verified {
            Ok(verified) => verified,
            Err(refused) => return refused,
        };
        let namespace = namespace.to_owned();
        let path = path.to_owned();
        let display_name = mount.to_owned();
        let origin = Origin { namespace, path, display_name, metadata, ..Origin::default() };
        let auth = self.faults().with_tokens(|tokens| tokens.issue(role, origin, None, now));
        tracing::info!(event = "dev.secrets.login", role = name, "the emulated Vault gave a token");
        WrappableResponse::Json(StatusCode::OK, envelope(&random_text(), "auth", auth))
    }

    /// Runs the checks of the real Azure auth method, in its order.
    async fn cloud_login<'a>(
        &'a self,
        body: &'a Value,
        now: ClockReading,
    ) -> Result<VerifiedLogin<'a>, WrappableResponse> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |text: &str| refusal(StatusCode::BAD_REQUEST, text);
        let jwt = text("jwt").ok_or_else(|| missing("jwt is required"))?;
        let name = text("role").ok_or_else(|| missing("role is required"))?;
        let role = self.options().roles.get(&name.to_lowercase());
        let role = role.ok_or_else(|| missing(&format!("invalid role name {name:?}")))?;
        let fields = LoginFields::from_body(body);
        if let Some(text) = fields.find_malformed() {
            return Err(missing(&text));
        }
        let mut metadata = fields.metadata();
        metadata.insert("role".to_owned(), name.to_owned());
        if let Some(verifier) = self.verifier() {
            let verified = verifier.verify(jwt, self.faults().apply_skew(now.wall)).await;
            match verified.and_then(|claims| role.bounds.admit(&claims, &fields).map(|()| claims)) {
                Ok(claims) => {
                    let app = claims.get("appid").and_then(Value::as_str).unwrap_or_default();
                    metadata.insert("app_id".to_owned(), app.to_owned());
                }
                Err(text) => {
                    tracing::info!(event = "dev.secrets.refused", role = name, error = text, "a login was refused");
                    return Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, &text));
                }
            }
        }
        Ok((name, role, metadata))
    }
}

/// An auth method for machines outside a cloud. Proofs are compared as text; no signature is verified.
#[derive(Debug, Clone)]
pub enum LoginMethod {
    /// `jwt`: signed tokens.
    Jwt {
        /// Texts of the accepted tokens.
        believed: Vec<SecretString>,
        /// Roles by name.
        roles: BTreeMap<String, Role>,
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
    AppRole {
        /// Role id.
        role_id: SecretString,
        /// Secret ids; if empty, none is required.
        secret_ids: Vec<SecretString>,
        /// Role of the token.
        role: Role,
    },
    /// `cert`: accepts whoever the server's TLS has admitted.
    Certificate {
        /// Roles by name. A login without a name gets the first.
        roles: BTreeMap<String, Role>,
    },
}

impl LoginMethod {
    fn prove<'a>(&'a self, body: &'a Value) -> Result<VerifiedLogin<'a>, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let one_of = |secrets: &[SecretString], name: &str| {
            secrets.iter().any(|secret| secret::ct_eq(secret, text(name).as_bytes()))
        };
        let (name, role) = match self {
            Self::Jwt { .. } | Self::Kubernetes { .. } if text("role").is_empty() => return Err(bad("missing role")),
            Self::Jwt { believed, .. } if !one_of(believed, "jwt") => {
                return Err(bad("error validating token: invalid signature"));
            }
            Self::Jwt { roles, .. } => {
                roles.get_key_value(text("role")).ok_or_else(|| bad("role could not be found"))?
            }
            Self::Kubernetes { believed, unbound, roles } => {
                let found = roles.get_key_value(text("role"));
                let found = found.ok_or_else(|| bad(&format!("invalid role name {:?}", text("role"))))?;
                if one_of(unbound, "jwt") {
                    return Err(refusal(StatusCode::FORBIDDEN, "service account name not authorized"));
                }
                // The real method says no more, whether the token is invalid or the API of the cluster cannot be reached.
                if !one_of(believed, "jwt") {
                    return Err(refusal(StatusCode::FORBIDDEN, "permission denied"));
                }
                found
            }
            Self::AppRole { role_id, .. } if !secret::ct_eq(role_id, text("role_id").as_bytes()) => {
                return Err(bad("invalid role or secret ID"));
            }
            Self::AppRole { secret_ids, .. } if !secret_ids.is_empty() && text("secret_id").is_empty() => {
                return Err(bad("missing secret_id"));
            }
            Self::AppRole { secret_ids, .. } if !secret_ids.is_empty() && !one_of(secret_ids, "secret_id") => {
                return Err(bad("invalid role or secret ID"));
            }
            Self::AppRole { role, .. } => return Ok(("approle", role, BTreeMap::new())),
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

/// Result of a login: the role's name, the role, and the metadata of the token.
type VerifiedLogin<'a> = (&'a str, &'a Role, BTreeMap<String, String>);
