//! Requests -> answers.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::bounds::Fields;
use super::dials::{Dials, Operation};
use super::kv::Store;
use super::reply::{Reply, canned, date, envelope, garbage, json, nothing, refusal};
use super::terraform::Engine;
use super::tokens::{Refusal, Token, random_text, rfc3339};
use super::verify::Verifier;
use super::{Options, Verification, lend};
use crate::clock::Moment;
use crate::http::client::BuildError;

/// What answers.
#[derive(Debug)]
pub(super) struct Wire {
    options: Options,
    dials: Dials,
    store: Store,
    /// `None` lets anyone in.
    verifier: Option<Verifier>,
    pub(super) engine: Engine,
}

impl Wire {
    pub(super) fn new(options: Options, dials: Dials) -> Result<Self, BuildError> {
        let verifier = match &options.verification {
            Verification::Anyone => None,
            Verification::Cloud { discovery, ca_file, audience } => {
                Some(Verifier::new(discovery, ca_file.clone(), audience)?)
            }
        };
        let engine = Engine::new(&options.terraform)?;
        Ok(Self { options, dials, store: Store::with_an_example(), verifier, engine })
    }

    pub(super) const fn dials(&self) -> &Dials {
        &self.dials
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let mut reply = self.answer_undated(request).await;
        date(&mut reply, self.dials.skewed(self.options.clock.now().wall));
        reply
    }

    async fn answer_undated(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MOST_BODY).collect().await else {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large");
        };
        let operation = operation(&head);
        let instead = operation.and_then(|operation| self.dials.asked(operation));
        self.dials.released().await;
        if self.dials.is_garbage() {
            return garbage();
        }
        if let Some(instead) = instead {
            return canned(instead);
        }
        self.real(operation, &head, &body.to_bytes()).await
    }

    async fn real(&self, operation: Option<Operation>, head: &Parts, body: &Bytes) -> Reply {
        let now = self.options.clock.now();
        for credential in self.dials.swept(now) {
            self.engine.end(&credential).await;
        }
        let Some(operation) = operation else {
            return match head.uri.path() {
                "/v1/sys/health" => json(StatusCode::OK, &health(now)),
                path => refusal(StatusCode::NOT_FOUND, &format!("no handler for route {path:?}")),
            };
        };
        let body = match body.as_ref() {
            b"" => Value::Null,
            body => match serde_json::from_slice(body) {
                Ok(body) => body,
                Err(_) => return refusal(StatusCode::BAD_REQUEST, "error parsing JSON"),
            },
        };
        match operation {
            Operation::Login => self.login(head, &body, now).await,
            Operation::Unwrap => self.unwrap(head, &body, now),
            _ => {
                let namespace = namespace(head);
                let secret = sent_token(head).unwrap_or_default();
                match self.dials.with_tokens(|tokens| tokens.use_once(secret, namespace, now)) {
                    Some(_) if lend::lends(operation, head) => self.lend(operation, head, &body, secret, now).await,
                    Some(token) => self.with_token(operation, head, &body, secret, &token, now),
                    None => refusal(StatusCode::FORBIDDEN, INVALID_TOKEN),
                }
            }
        }
    }

    async fn login(&self, head: &Parts, body: &Value, now: Moment) -> Reply {
        let path = head.uri.path().trim_start_matches("/v1/");
        if path != format!("auth/{}/login", self.options.mount) {
            return refusal(StatusCode::FORBIDDEN, "permission denied");
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(jwt) = text("jwt") else { return refusal(StatusCode::BAD_REQUEST, "jwt is required") };
        let Some(name) = text("role") else { return refusal(StatusCode::BAD_REQUEST, "role is required") };
        let Some(role) = self.options.roles.get(&name.to_lowercase()) else {
            return refusal(StatusCode::BAD_REQUEST, &format!("invalid role name {name:?}"));
        };
        let fields = Fields::of(body);
        if let Some(text) = fields.malformed() {
            return refusal(StatusCode::BAD_REQUEST, &text);
        }
        let mut metadata = fields.metadata();
        metadata.insert("role".to_owned(), name.to_owned());
        if let Some(verifier) = &self.verifier {
            let verified = verifier.verify(jwt, self.dials.skewed(now.wall)).await;
            match verified.and_then(|claims| role.bounds.admit(&claims, &fields).map(|()| claims)) {
                Ok(claims) => {
                    let app = claims.get("appid").and_then(Value::as_str).unwrap_or_default();
                    metadata.insert("app_id".to_owned(), app.to_owned());
                }
                Err(text) => {
                    tracing::info!(event = "dev.secrets.refused", role = name, reason = text, "a login was refused");
                    return refusal(StatusCode::INTERNAL_SERVER_ERROR, &text);
                }
            }
        }
        let auth = self.dials.with_tokens(|tokens| tokens.issue(role, namespace(head), metadata, now));
        tracing::info!(event = "dev.secrets.login", role = name, "the emulated secrets server gave a token");
        let answer = envelope(&random_text(), "auth", auth);
        match wrap_ttl(head) {
            Ok(None) => json(StatusCode::OK, &answer),
            Ok(Some(ttl)) => {
                let info = self.dials.with_tokens(|tokens| tokens.wrap(answer, ttl, path, now));
                json(StatusCode::OK, &envelope("", "wrap_info", info))
            }
            Err(()) => refusal(StatusCode::BAD_REQUEST, "error parsing X-Vault-Wrap-TTL header"),
        }
    }

    fn unwrap(&self, head: &Parts, body: &Value, now: Moment) -> Reply {
        let secret = body.get("token").and_then(Value::as_str).or_else(|| sent_token(head)).unwrap_or_default();
        match self.dials.with_tokens(|tokens| tokens.unwrap(secret, now)) {
            Some(answer) => json(StatusCode::OK, &answer),
            None => refusal(StatusCode::BAD_REQUEST, "wrapping token is not valid or does not exist"),
        }
    }

    fn with_token(
        &self,
        operation: Operation,
        head: &Parts,
        body: &Value,
        secret: &str,
        token: &Token,
        now: Moment,
    ) -> Reply {
        let good = |key, value| json(StatusCode::OK, &envelope(&random_text(), key, value));
        match operation {
            Operation::Lookup => good("data", token.data(secret, &self.options.mount, now)),
            Operation::Renew => {
                let increment = body.get("increment").and_then(seconds);
                match self.dials.with_tokens(|tokens| tokens.renew(secret, increment, now)) {
                    Ok(auth) => good("auth", auth),
                    Err(Refusal::Batch) => refusal(StatusCode::BAD_REQUEST, "batch tokens cannot be renewed"),
                    Err(Refusal::NotRenewable) => refusal(StatusCode::BAD_REQUEST, "lease is not renewable"),
                }
            }
            Operation::Revoke => match self.dials.with_tokens(|tokens| tokens.revoke(secret)) {
                Ok(()) => nothing(),
                Err(_) => refusal(StatusCode::BAD_REQUEST, "batch tokens cannot be revoked"),
            },
            Operation::Secret => {
                let path = head.uri.path().trim_start_matches(SECRET_PATH);
                if head.method == Method::GET {
                    match self.store.read(namespace(head), path) {
                        Some(data) => good("data", data),
                        None => json(StatusCode::NOT_FOUND, &json!({ "errors": [] })),
                    }
                } else {
                    let value = body.get("data").cloned().unwrap_or_default();
                    good("data", self.store.write(namespace(head), path, value))
                }
            }
            Operation::Login | Operation::Unwrap | Operation::RenewLease | Operation::RevokeLease => {
                refusal(StatusCode::NOT_FOUND, "no handler for route")
            }
        }
    }
}

const MOST_BODY: usize = 1024 * 1024;
const SECRET_PATH: &str = "/v1/secret/data/";

/// How Vault says that a token is not there.
const INVALID_TOKEN: &str = "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n";

fn operation(head: &Parts) -> Option<Operation> {
    let write = head.method == Method::POST || head.method == Method::PUT;
    let path = head.uri.path();
    match path {
        "/v1/auth/token/lookup-self" if head.method == Method::GET => Some(Operation::Lookup),
        "/v1/auth/token/renew-self" if write => Some(Operation::Renew),
        "/v1/auth/token/revoke-self" if write => Some(Operation::Revoke),
        "/v1/sys/wrapping/unwrap" if write => Some(Operation::Unwrap),
        "/v1/sys/leases/renew" if write => Some(Operation::RenewLease),
        "/v1/sys/leases/revoke" if write => Some(Operation::RevokeLease),
        _ if lend::path(path).is_some() => Some(Operation::Secret),
        _ if path.starts_with(SECRET_PATH) && (write || head.method == Method::GET) => Some(Operation::Secret),
        _ if path.starts_with("/v1/auth/") && path.ends_with("/login") && write => Some(Operation::Login),
        _ => None,
    }
}

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

fn sent_token(head: &Parts) -> Option<&str> {
    header(head, "x-vault-token").or_else(|| header(head, "authorization")?.strip_prefix("Bearer "))
}

fn namespace(head: &Parts) -> &str {
    header(head, "x-vault-namespace").unwrap_or_default().trim_matches('/')
}

fn wrap_ttl(head: &Parts) -> Result<Option<Duration>, ()> {
    let Some(value) = header(head, "x-vault-wrap-ttl") else { return Ok(None) };
    seconds(&Value::from(value)).filter(|ttl| !ttl.is_zero()).map(Some).ok_or(())
}

/// A number of seconds, or a text such as `90`, `90s` or `2m`.
pub(super) fn seconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => {
            text.parse().map(Duration::from_secs).ok().or_else(|| humantime::parse_duration(text).ok())
        }
        _ => None,
    }
}

fn health(now: Moment) -> Value {
    json!({
        "initialized": true, "sealed": false, "standby": false, "version": "emulated by keyward",
        "server_time": rfc3339(now.wall),
    })
}
