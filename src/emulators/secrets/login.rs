//! Logins: `auth/MOUNT/login`.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::Value;

use super::bounds::LoginFields;
use super::handler::RequestHandler;
use super::login_method::VerifiedLogin;
use super::reply::{WrappableResponse, envelope, refusal};
use super::tokens::{Origin, random_text};

impl RequestHandler {
    /// Handles a login at `path`, such as `auth/azure/login` or `auth/userpass/login/NAME`.
    pub(super) async fn login(
        &self,
        path: &str,
        namespace: &str,
        body: &Value,
        now: ClockReading,
    ) -> WrappableResponse {
        let rest = path.strip_prefix("auth/").unwrap_or_default();
        let (mount, user) = rest.split_once("/login").unwrap_or_default();
        let verified = if mount == self.options().mount {
            self.cloud_login(body, now).await
        } else if let Some(verifier) = self.cloud_verifier(mount) {
            verifier.verify(body, self.faults().apply_skew(now.wall)).await
        } else {
            let method = self.options().methods.get(mount);
            let method = method.ok_or_else(|| refusal(StatusCode::FORBIDDEN, "permission denied"));
            let is_issued = |secret_id: &str| self.secret_ids.contains(mount, secret_id, now);
            method.and_then(|method| method.prove(body, user.trim_start_matches('/'), now, is_issued))
        };
        let (name, role, metadata) = match verified {
            Ok(verified) => verified,
            Err(refused) => return refused,
        };
        let namespace = namespace.to_owned();
        let path = path.to_owned();
        let display_name = mount.to_owned();
        let entity_id = entity_id(mount, &metadata);
        let origin = Origin { namespace, path, display_name, entity_id, metadata, ..Origin::default() };
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

/// Returns the id of the entity behind a login: the same for each login of the same name by the same method.
fn entity_id(mount: &str, metadata: &BTreeMap<String, String>) -> String {
    let alias = format!("{mount} {metadata:?}");
    let hash = digest::digest(&digest::SHA256, alias.as_bytes());
    let mut id = [0_u8; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    uuid::Uuid::from_bytes(id).to_string()
}
