//! Logins of Vault's auth methods, derived tokens, and response wrapping.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use keyward_machine::secret_string::SecretString;
use serde::Serialize;
use serde_json::{Value, json};

use super::parse_response;
use super::{CallError, LoginResponse, ServerClient, TokenVerdict};
use crate::token::ClientToken;

impl ServerClient {
    /// Logs in by a role id and, if the role requires one, a secret id (`POST auth/MOUNT/login`).
    pub(crate) async fn login_by_approle(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        role_id: &SecretString,
        secret_id: Option<&SecretString>,
    ) -> Result<LoginResponse, CallError> {
        let body =
            AppRoleBody { role_id: role_id.expose_secret(), secret_id: secret_id.map(SecretString::expose_secret) };
        self.send_login(mount, namespace, wrap_ttl, &body, secret_id.unwrap_or(role_id)).await
    }

    /// Logs in by a signed request for the caller's identity at AWS (`POST auth/MOUNT/login`, type `iam`).
    pub(crate) async fn login_by_caller_identity(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        role: &str,
        signed: &SignedCallerIdentity,
    ) -> Result<LoginResponse, CallError> {
        let body = CallerIdentityBody {
            role,
            iam_http_request_method: "POST",
            iam_request_url: BASE64_STANDARD.encode(&signed.url),
            iam_request_body: BASE64_STANDARD.encode(signed.body),
            iam_request_headers: BASE64_STANDARD.encode(signed.headers.expose_secret()),
        };
        let sent = SecretString::from(body.iam_request_headers.as_str());
        self.send_login(mount, namespace, wrap_ttl, &body, &sent).await
    }

    /// Logs in by the connection's client certificate (`POST auth/MOUNT/login`).
    ///
    /// Without a role the server selects one that the certificate fits.
    pub(crate) async fn login_by_certificate(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        role: Option<&str>,
    ) -> Result<LoginResponse, CallError> {
        let body = role.map_or_else(|| json!({}), |role| json!({ "name": role }));
        self.send_login(mount, namespace, wrap_ttl, &body, &SecretString::default()).await
    }

    /// Creates a child token of `parent`, which is revoked with it (`POST auth/token/create`, or that of a token role).
    pub(crate) async fn create_derived_token(
        &self,
        parent: &ClientToken,
        namespace: Option<&str>,
        options: &DerivedTokenOptions,
    ) -> Result<LoginResponse, CallError> {
        match self.send_derived_token(parent, namespace, options).await {
            // The role makes batch tokens. These cannot be renewed, so their time to live is a fixed end without the option. It is
            // sent again the next time: the role may make service tokens by then.
            Err(error) if options.has_fixed_end && options.num_uses == 0 && error.refuses_batch_option() => {
                let options = DerivedTokenOptions { has_fixed_end: false, ..options.clone() };
                self.send_derived_token(parent, namespace, &options).await
            }
            created => created,
        }
    }

    async fn send_derived_token(
        &self,
        parent: &ClientToken,
        namespace: Option<&str>,
        options: &DerivedTokenOptions,
    ) -> Result<LoginResponse, CallError> {
        let request = self.with_token(Method::POST, &format!("v1/{}", options.path()), parent, namespace);
        let response = self.send(request.json(&options.to_body())).await?;
        // A limit of uses is allowed here: it applies to the consumer of the token.
        parse_response::login(&mut parse_response::parse_json(&response, parent.secret())?, false)
            .map(|(response, _)| response)
    }

    /// Revokes the token of an accessor by another token (`POST auth/token/revoke-accessor`).
    pub(crate) async fn revoke_accessor(
        &self,
        token: &ClientToken,
        accessor: &str,
        namespace: Option<&str>,
    ) -> Result<(), CallError> {
        let request = self.with_token(Method::POST, "v1/auth/token/revoke-accessor", token, namespace);
        let response = self.send(request.json(&json!({ "accessor": accessor }))).await?;
        parse_response::check_status(&response, token.secret())
    }

    /// Wraps a token as the field `token` (`POST sys/wrapping/wrap`).
    pub(crate) async fn wrap(
        &self,
        token: &ClientToken,
        namespace: Option<&str>,
        ttl: Duration,
    ) -> Result<LoginResponse, CallError> {
        let request = self.with_token(Method::POST, "v1/sys/wrapping/wrap", token, namespace);
        // Whole seconds: a shorter time must not become zero.
        let request = request.header("x-vault-wrap-ttl", ttl.as_secs().max(1));
        let request = request.json(&WrappingBody { token: token.secret().expose_secret() });
        let response = self.send(request).await?;
        parse_response::login(&mut parse_response::parse_json(&response, token.secret())?, true)
            .map(|(response, _)| response)
    }

    /// Returns the API path whose response a wrapping token holds, without unwrapping it.
    pub(crate) async fn wrapping_creation_path(
        &self,
        wrapping: &ClientToken,
        namespace: Option<&str>,
    ) -> Result<String, CallError> {
        let document = self.send_wrapping_call("lookup", wrapping, namespace).await?;
        let path = document.pointer("/data/creation_path").and_then(Value::as_str);
        path.map(str::to_owned)
            .ok_or_else(|| CallError::InvalidResponse { what: "data.creation_path is missing".to_owned() })
    }

    /// Unwraps a wrapping token, which works once, and returns one field of its data.
    pub(crate) async fn unwrap(
        &self,
        wrapping: &ClientToken,
        field: &str,
        namespace: Option<&str>,
    ) -> Result<SecretString, CallError> {
        let mut document = self.send_wrapping_call("unwrap", wrapping, namespace).await?;
        match document.get_mut("data").and_then(|data| data.get_mut(field)).map(Value::take) {
            Some(Value::String(text)) if !text.is_empty() => Ok(SecretString::from(text)),
            _ => Err(CallError::InvalidResponse { what: format!("the wrapped response has no field {field}") }),
        }
    }

    async fn send_wrapping_call(
        &self,
        operation: &str,
        wrapping: &ClientToken,
        namespace: Option<&str>,
    ) -> Result<Value, CallError> {
        let request = self.request(Method::POST, &format!("v1/sys/wrapping/{operation}"), namespace);
        let request = request.json(&WrappingBody { token: wrapping.secret().expose_secret() });
        let response = self.send(request).await?;
        parse_response::parse_json(&response, wrapping.secret())
    }

    /// Sends a login. `sent` is its credential, which is redacted from errors that echo it.
    pub(super) async fn send_login(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        body: &impl Serialize,
        sent: &SecretString,
    ) -> Result<LoginResponse, CallError> {
        let mut request = self.request(Method::POST, &format!("v1/auth/{mount}/login"), namespace);
        if let Some(ttl) = wrap_ttl {
            request = request.header("x-vault-wrap-ttl", ttl.as_secs().max(1));
        }
        let response = self.send_within(request.json(body), self.login_timeout).await?;
        let mut response = parse_response::parse_json(&response, sent)?;
        match parse_response::login(&mut response, wrap_ttl.is_some())? {
            (response, None) => Ok(response),
            (response, Some(uses)) => {
                // Revoked, since each attempt would leave one more token on the server.
                let _ = self.revoke_self(&response.secret, namespace).await;
                Err(CallError::LimitedUse { uses })
            }
        }
    }
}

/// A signed request for the caller's identity at AWS. For 15 minutes, whoever has it can log in by it.
#[derive(Debug, Clone)]
pub struct SignedCallerIdentity {
    /// URL of the request.
    pub url: String,
    /// Body of the request, a form.
    pub body: &'static str,
    /// Headers of the request, as a JSON object of lists.
    pub headers: SecretString,
}

/// Options of a derived token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DerivedTokenOptions {
    /// Policies, a subset of the parent's; empty for those of the parent.
    pub policies: Vec<String>,
    /// Time to live.
    pub ttl: Duration,
    /// Number of uses; 0 for no limit.
    pub num_uses: u64,
    /// Role of the token method that the token is created by; `None` for no role.
    pub role: Option<String>,
    /// The token cannot be renewed beyond its time to live.
    pub has_fixed_end: bool,
    /// Metadata of the token, which the server's audit shows.
    pub meta: BTreeMap<&'static str, String>,
}

impl DerivedTokenOptions {
    /// Returns the path that creates the token, without `/v1/`.
    pub fn path(&self) -> String {
        const CREATE: &str = "auth/token/create";
        self.role.as_ref().map_or_else(|| CREATE.to_owned(), |role| format!("{CREATE}/{role}"))
    }

    /// Returns the body of the request that creates the token.
    pub(crate) fn to_body(&self) -> Value {
        let ttl = format!("{}s", self.ttl.as_secs());
        let mut body = json!({ "ttl": ttl, "num_uses": self.num_uses });
        if !self.policies.is_empty() {
            body["policies"] = json!(self.policies);
        }
        if self.has_fixed_end {
            body["explicit_max_ttl"] = json!(ttl);
        }
        if !self.meta.is_empty() {
            body["meta"] = json!(self.meta);
        }
        body
    }
}

/// Kind of a token derived from the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedTokenKind {
    /// A child token.
    Child(DerivedTokenOptions),
    /// The session's token, response-wrapped with this TTL.
    Wrapped(Duration),
}

impl DerivedTokenKind {
    /// Returns advice about a refused creation, to append to its error; empty if the cause is unknown.
    pub(crate) fn advice(&self, error: &CallError) -> String {
        match self {
            Self::Child(options) if error.verdict() == TokenVerdict::Denied => {
                format!("; the policies of the session's token must allow update on {}", options.path())
            }
            Self::Child(_) if error.refuses_batch_option() => {
                "; set token_type = service in the token role, or leave num_uses out".to_owned()
            }
            Self::Child(_) | Self::Wrapped(_) => String::new(),
        }
    }

    /// Returns true if the server ends the token after a number of uses.
    pub(crate) const fn ends_by_use(&self) -> bool {
        matches!(self, Self::Child(options) if options.num_uses > 0)
    }
}

#[derive(Serialize)]
struct AppRoleBody<'a> {
    role_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_id: Option<&'a str>,
}

/// Body of a login by a request that AWS answers; three fields are base64 (developer.hashicorp.com, "AWS auth method (API)").
#[derive(Serialize)]
struct CallerIdentityBody<'a> {
    role: &'a str,
    iam_http_request_method: &'a str,
    iam_request_url: String,
    iam_request_body: String,
    iam_request_headers: String,
}

#[derive(Serialize)]
struct WrappingBody<'a> {
    token: &'a str,
}
