//! Logins: `auth/MOUNT/login`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::Value;

use super::Role;
use super::bounds::Fields;
use super::reply::{Answer, envelope, refusal};
use super::tokens::{Origin, random_text};
use super::wire::Wire;
use crate::clock::Moment;

impl Wire {
    /// Answers a login at `path`, such as `auth/azure/login`.
    pub(super) async fn login(&self, path: &str, namespace: &str, body: &Value, now: Moment) -> Answer {
        let mount = path.strip_prefix("auth/").and_then(|rest| rest.strip_suffix("/login")).unwrap_or_default();
        let proved = if mount == self.options().mount {
            self.cloud_login(body, now).await
        } else {
            Err(refusal(StatusCode::FORBIDDEN, "permission denied"))
        };
        let (name, role, metadata) = match proved {
            Ok(proved) => proved,
            Err(refused) => return refused,
        };
        let origin =
            Origin { namespace: namespace.to_owned(), path: path.to_owned(), display_name: mount.to_owned(), metadata };
        let auth = self.dials().with_tokens(|tokens| tokens.issue(role, origin, None, now));
        tracing::info!(event = "dev.secrets.login", role = name, "the emulated secrets server gave a token");
        Answer::Json(StatusCode::OK, envelope(&random_text(), "auth", auth))
    }

    /// The real Azure method's checks, in its order.
    async fn cloud_login<'a>(&'a self, body: &'a Value, now: Moment) -> Result<Proved<'a>, Answer> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |text: &str| refusal(StatusCode::BAD_REQUEST, text);
        let jwt = text("jwt").ok_or_else(|| missing("jwt is required"))?;
        let name = text("role").ok_or_else(|| missing("role is required"))?;
        let role = self.options().roles.get(&name.to_lowercase());
        let role = role.ok_or_else(|| missing(&format!("invalid role name {name:?}")))?;
        let fields = Fields::of(body);
        if let Some(text) = fields.malformed() {
            return Err(missing(&text));
        }
        let mut metadata = fields.metadata();
        metadata.insert("role".to_owned(), name.to_owned());
        if let Some(verifier) = self.verifier() {
            let verified = verifier.verify(jwt, self.dials().skewed(now.wall)).await;
            match verified.and_then(|claims| role.bounds.admit(&claims, &fields).map(|()| claims)) {
                Ok(claims) => {
                    let app = claims.get("appid").and_then(Value::as_str).unwrap_or_default();
                    metadata.insert("app_id".to_owned(), app.to_owned());
                }
                Err(text) => {
                    tracing::info!(event = "dev.secrets.refused", role = name, reason = text, "a login was refused");
                    return Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, &text));
                }
            }
        }
        Ok((name, role, metadata))
    }
}

/// Who logged in: the role's name, the role, and what the token is to say of it.
type Proved<'a> = (&'a str, &'a Role, BTreeMap<String, String>);
