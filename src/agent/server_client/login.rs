//! Logins, each in its own words, and what comes wrapped.

use std::time::Duration;

use http::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::{Value, json};

use super::parse_response;
use super::{CallError, LoginAnswer, Upstream};
use crate::agent::token::ClientToken;

impl Upstream {
    /// `POST auth/MOUNT/login` with the id of a role and, where it wants one, its secret id.
    ///
    /// # Errors
    /// There was no answer, the server refused, or it answered with something else than a usable token.
    pub async fn login_by_approle(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        role_id: &SecretString,
        secret_id: Option<&SecretString>,
    ) -> Result<LoginAnswer, CallError> {
        let body = WireAppRole {
            role_id: role_id.expose_secret(),
            secret_id: secret_id.map(secrecy::ExposeSecret::expose_secret),
        };
        self.log_in(mount, namespace, wrap_ttl, &body, secret_id.unwrap_or(role_id)).await
    }

    /// `POST auth/MOUNT/login` on a connection that shows a client certificate. Without a role the server looks for one that
    /// the certificate fits.
    ///
    /// # Errors
    /// There was no answer, the server refused, or it answered with something else than a usable token.
    pub async fn login_by_certificate(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        role: Option<&str>,
    ) -> Result<LoginAnswer, CallError> {
        let body = role.map_or_else(|| json!({}), |role| json!({ "name": role }));
        self.log_in(mount, namespace, wrap_ttl, &body, &SecretString::default()).await
    }

    /// `POST auth/token/create`: a token below the one that asks, which ends with it.
    ///
    /// # Errors
    /// There was no answer, the server refused, or it answered with something else than a token.
    pub async fn create_child(
        &self,
        parent: &ClientToken,
        namespace: Option<&str>,
        options: &ChildOptions,
    ) -> Result<LoginAnswer, CallError> {
        let mut body = json!({ "ttl": format!("{}s", options.ttl.as_secs()), "num_uses": options.num_uses });
        if !options.policies.is_empty() {
            body["policies"] = json!(options.policies);
        }
        let request = self.with_token(Method::POST, "v1/auth/token/create", parent, namespace).json(&body);
        let answer = self.client.send(request).await?;
        // Its uses are for whoever it is made for.
        parse_response::login(parse_response::ok(&answer, parent.secret())?, false).map(|(answer, _)| answer)
    }

    /// `POST sys/wrapping/wrap`: a token in a wrapping, as the field `token`.
    ///
    /// # Errors
    /// There was no answer, the server refused, or it answered with something else than a wrapping.
    pub async fn wrap(
        &self,
        token: &ClientToken,
        namespace: Option<&str>,
        ttl: Duration,
    ) -> Result<LoginAnswer, CallError> {
        let request = self.with_token(Method::POST, "v1/sys/wrapping/wrap", token, namespace);
        let request = request.header("x-vault-wrap-ttl", ttl.as_secs().max(1));
        let request = request.json(&WireWrapping { token: token.secret().expose_secret() });
        let answer = self.client.send(request).await?;
        parse_response::login(parse_response::ok(&answer, token.secret())?, true).map(|(answer, _)| answer)
    }

    /// Which path's answer is in a wrapping, without opening it.
    ///
    /// # Errors
    /// There was no answer, the wrapping is not there (any more), or the answer made no sense.
    pub async fn wrapped_path(&self, wrapping: &ClientToken, namespace: Option<&str>) -> Result<String, CallError> {
        let found = self.wrapping("lookup", wrapping, namespace).await?;
        let path = found.pointer("/data/creation_path").and_then(Value::as_str);
        path.map(str::to_owned).ok_or_else(|| CallError::Garbage { what: "data.creation_path is missing".to_owned() })
    }

    /// Opens a wrapping, which can be done once, and takes one field of what is inside.
    ///
    /// # Errors
    /// There was no answer, the wrapping is not there (any more), or it holds no such field.
    pub async fn unwrap(
        &self,
        wrapping: &ClientToken,
        field: &str,
        namespace: Option<&str>,
    ) -> Result<SecretString, CallError> {
        let mut found = self.wrapping("unwrap", wrapping, namespace).await?;
        match found.get_mut("data").and_then(|data| data.get_mut(field)).map(Value::take) {
            Some(Value::String(text)) if !text.is_empty() => Ok(SecretString::from(text)),
            _ => Err(CallError::Garbage { what: format!("there is no {field} in what was wrapped") }),
        }
    }

    async fn wrapping(&self, what: &str, wrapping: &ClientToken, namespace: Option<&str>) -> Result<Value, CallError> {
        let request = self.request(Method::POST, &format!("v1/sys/wrapping/{what}"), namespace);
        let request = request.json(&WireWrapping { token: wrapping.secret().expose_secret() });
        let answer = self.client.send(request).await?;
        parse_response::ok(&answer, wrapping.secret())
    }

    /// Sends a login. `sent` is the credential in it, which a server might echo.
    pub(super) async fn log_in(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        body: &impl Serialize,
        sent: &SecretString,
    ) -> Result<LoginAnswer, CallError> {
        let mut request = self.request(Method::POST, &format!("v1/auth/{mount}/login"), namespace);
        if let Some(ttl) = wrap_ttl {
            request = request.header("x-vault-wrap-ttl", ttl.as_secs().max(1));
        }
        let answer = self.client.send_within(request.json(body), self.login_timeout).await?;
        let answer = parse_response::ok(&answer, sent)?;
        match parse_response::login(answer, wrap_ttl.is_some())? {
            (answer, None) => Ok(answer),
            (answer, Some(uses)) => {
                // Nobody else will: each try would leave one more on the server.
                let _ = self.revoke_self(&answer.secret, namespace).await;
                Err(CallError::LimitedUse { uses })
            }
        }
    }
}

/// What a child token may do, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOptions {
    /// Its policies, which its parent must have; none for those of its parent.
    pub policies: Vec<String>,
    /// How long it lives.
    pub ttl: Duration,
    /// Number of uses after which it ends; 0 for no such end.
    pub num_uses: u64,
}

#[derive(Serialize)]
struct WireAppRole<'a> {
    role_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_id: Option<&'a str>,
}

#[derive(Serialize)]
struct WireWrapping<'a> {
    token: &'a str,
}
