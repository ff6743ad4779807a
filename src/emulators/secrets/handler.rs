//! Dispatch of requests to the parts of the server.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use keyward_http::server::IncomingBody;
use keyward_machine::clock::ClockReading;
use serde_json::Value;

use super::cloud_method::CloudVerifier;
use super::faults::{FaultInjector, PERMISSION_DENIED};
use super::kv::{self, Stores};
use super::pki::Authority;
use super::reply::{
    Reply, ReplyBody, WrappableResponse, build_canned, date, envelope, garbage, method_not_allowed, no_route, refusal,
    success,
};
use super::route::{Engine, RequestKind, Route, Verb, query, seconds};
use super::secret_ids::SecretIds;
use super::ssh::{SshAuthority, SshCaller};
use super::terraform;
use super::token_api::{self, Caller};
use super::verify::Verifier;
use super::{SecretsOptions, StartError, Verification, policies, system, token_roles};

/// State of all request handlers.
#[derive(Debug)]
pub(super) struct RequestHandler {
    options: SecretsOptions,
    faults: FaultInjector,
    stores: Stores,
    /// `None` admits every login.
    verifier: Option<Verifier>,
    cloud_verifiers: BTreeMap<String, CloudVerifier>,
    authority: Authority,
    ssh_authority: SshAuthority,
    pub(super) engine: terraform::Engine,
    pub(super) secret_ids: SecretIds,
}

impl RequestHandler {
    pub(super) fn new(options: SecretsOptions, faults: FaultInjector) -> Result<Self, StartError> {
        let verifier = match &options.verification {
            Verification::Anyone => None,
            Verification::Cloud { discovery, ca_file, audience } => {
                Some(Verifier::new(discovery, ca_file.clone(), audience)?)
            }
        };
        let build = |(mount, method): (&String, &_)| Ok((mount.clone(), CloudVerifier::new(Clone::clone(method))?));
        let cloud_verifiers = options.cloud_methods.iter().map(build).collect::<Result<_, StartError>>()?;
        let engine = terraform::Engine::new(&options.terraform)?;
        let stores = Stores::with_examples(options.clock.now());
        let authority = Authority::new().ok_or(StartError::Authority)?;
        let ssh_authority = SshAuthority::new().ok_or(StartError::Authority)?;
        Ok(Self {
            options,
            faults,
            stores,
            verifier,
            cloud_verifiers,
            authority,
            ssh_authority,
            engine,
            secret_ids: SecretIds::default(),
        })
    }

    pub(super) const fn options(&self) -> &SecretsOptions {
        &self.options
    }

    pub(super) const fn faults(&self) -> &FaultInjector {
        &self.faults
    }

    pub(super) const fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) const fn verifier(&self) -> Option<&Verifier> {
        self.verifier.as_ref()
    }

    /// Returns the verifier of the method of another cloud at a mount.
    pub(super) fn cloud_verifier(&self, mount: &str) -> Option<&CloudVerifier> {
        self.cloud_verifiers.get(mount)
    }

    pub(super) async fn response(&self, request: Request<IncomingBody>) -> Reply {
        let mut reply = self.dispatch(request).await;
        date(&mut reply, self.faults.apply_skew(self.options.clock.now().wall));
        reply
    }

    async fn dispatch(&self, request: Request<IncomingBody>) -> Reply {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_SIZE).collect().await else {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large").reply();
        };
        let route = Route::parse(&head);
        let operation = route.as_ref().and_then(|route| route.kind.operation());
        let replacement = operation.and_then(|operation| self.faults.record_call(operation));
        self.faults.wait_until_released(operation).await;
        if self.faults.is_garbage() {
            return garbage();
        }
        if let Some(replacement) = replacement {
            return build_canned(replacement);
        }
        let now = self.options.clock.now();
        for credential in self.faults.sweep_leases(now) {
            self.revoke_credential(&credential).await;
        }
        match route {
            // A response to HEAD has no length: nothing was written.
            Some(route) if head.method == Method::HEAD && route.kind == RequestKind::Health => {
                let mut reply = self.handle(&route, &head, &Bytes::new(), now).await.reply();
                *reply.body_mut() = ReplyBody::default();
                reply
            }
            Some(route) => self.handle(&route, &head, &body.to_bytes(), now).await.reply(),
            None => refusal(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation").reply(),
        }
    }

    async fn handle(&self, route: &Route<'_>, head: &Parts, body: &Bytes, now: ClockReading) -> WrappableResponse {
        let body = match body.as_ref() {
            b"" => Value::Null,
            body => match serde_json::from_slice(body) {
                Ok(body) => body,
                Err(error) => {
                    let message = self.faults.wording().invalid_json(body, &error);
                    return refusal(StatusCode::BAD_REQUEST, &message);
                }
            },
        };
        let is_sealed = self.faults.is_sealed();
        let response = match route.kind {
            RequestKind::Health => return system::health(&route.path, is_sealed, now),
            RequestKind::HealthMethod => return method_not_allowed(),
            _ if is_sealed => return refusal(StatusCode::SERVICE_UNAVAILABLE, "Vault is sealed"),
            RequestKind::Login => self.login(&route.path, namespace(head), &body, now).await,
            RequestKind::Unwrap => return self.unwrap(head, &body, now),
            RequestKind::PublicCertificate => {
                if route.path == "ssh/public_key" {
                    self.ssh_authority.read_public_key()
                } else {
                    self.authority.read(route.strip_prefix("pki")).unwrap_or_else(|| no_route(&route.path))
                }
            }
            RequestKind::LookupWrapped => {
                let secret = wrapping_token(head, &body);
                match self.faults.with_tokens(|tokens| tokens.look_up_wrapped(secret, now)) {
                    Some(data) => success("data", data),
                    None => refusal(StatusCode::BAD_REQUEST, NO_WRAPPING_TOKEN),
                }
            }
            _ => self.with_token(route, head, body, now).await,
        };
        self.wrap(response, head, &route.path, now)
    }

    /// Wraps a successful response, if the request asks for it.
    fn wrap(&self, response: WrappableResponse, head: &Parts, path: &str, now: ClockReading) -> WrappableResponse {
        match (wrap_ttl(head), response) {
            (Err(()), _) => refusal(StatusCode::BAD_REQUEST, "error parsing X-Vault-Wrap-TTL header"),
            (Ok(Some(ttl)), WrappableResponse::Json(StatusCode::OK, response)) => {
                let info = self.faults.with_tokens(|tokens| tokens.wrap(response, ttl, path, now));
                WrappableResponse::Json(StatusCode::OK, envelope("", "wrap_info", info))
            }
            (_, response) => response,
        }
    }

    fn unwrap(&self, head: &Parts, body: &Value, now: ClockReading) -> WrappableResponse {
        let secret = wrapping_token(head, body);
        match self.faults.with_tokens(|tokens| tokens.unwrap(secret, now)) {
            Some(response) => WrappableResponse::Raw(StatusCode::OK, response),
            None => refusal(StatusCode::BAD_REQUEST, NO_WRAPPING_TOKEN),
        }
    }

    /// Handles requests that need a token.
    async fn with_token(&self, route: &Route<'_>, head: &Parts, body: Value, now: ClockReading) -> WrappableResponse {
        let secret = sent_token(head).unwrap_or_default();
        let namespace = namespace(head);
        let Some(token) = self.faults.with_tokens(|tokens| tokens.use_once(secret, namespace, now)) else {
            return refusal(StatusCode::FORBIDDEN, self.faults.wording().dead_token());
        };
        // Its clients are on this machine, and come from the address that they connect to.
        if !token_roles::admit(token.bound_cidrs(), self.options.address.ip()) {
            return refusal(StatusCode::FORBIDDEN, PERMISSION_DENIED);
        }
        let names = &token.role().policies;
        if !policies::allow(&self.options.policies, names, &route.path, route.verb) {
            return refusal(StatusCode::FORBIDDEN, PERMISSION_DENIED);
        }
        match route.kind {
            RequestKind::Token(call) => {
                let caller = Caller { token_roles: &self.options.token_roles, secret, token: &token, namespace };
                let path = route.strip_prefix("auth/token");
                self.faults.with_tokens(|tokens| token_api::response(tokens, call, path, &caller, &body, now))
            }
            RequestKind::Lease(call) => self.lease(call, route, &body, now).await,
            RequestKind::System if route.path == "sys/capabilities-self" => {
                system::capabilities(&body, &self.options.policies, names)
            }
            RequestKind::System if route.verb == Verb::Read => {
                system::mounts(&route.path, |mount| policies::reach(&self.options.policies, names, mount))
            }
            RequestKind::Seal => {
                self.faults.seal(true);
                WrappableResponse::Nothing
            }
            RequestKind::AppRole => self.secret_ids.respond(&self.options.methods, route, &body, now),
            RequestKind::Wrap if wrap_ttl(head) == Ok(None) => {
                refusal(StatusCode::BAD_REQUEST, "endpoint requires response wrapping to be used")
            }
            RequestKind::Wrap => success("data", body),
            RequestKind::Engine(engine) => match engine {
                Engine::Terraform => self.platform_token(route, secret, now).await,
                Engine::Database => self.database_credential(route, secret, now),
                Engine::Pki => self.certificate(route, secret, &body, now),
                Engine::Ssh => {
                    let caller = SshCaller { display_name: token.display_name(), wording: self.faults.wording() };
                    self.ssh_authority.handle(route, &self.options().ssh, &body, caller, now.wall)
                }
                Engine::Versioned | Engine::Plain | Engine::Cubbyhole => {
                    let version = query(head, "version").and_then(|version| version.parse().ok()).unwrap_or(0);
                    let path = route.strip_prefix(engine.mount());
                    let wording = self.faults.wording();
                    let call = kv::Call { verb: route.verb, path, version, body, namespace, now, wording };
                    match engine {
                        Engine::Plain => self.stores.plain(call),
                        Engine::Cubbyhole => self.stores.cubbyhole(secret, call),
                        _ => self.stores.versioned(call),
                    }
                }
            },
            _ => no_route(&route.path),
        }
    }
}

const MAX_BODY_SIZE: usize = 1024 * 1024;

const NO_WRAPPING_TOKEN: &str = "wrapping token is not valid or does not exist";

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

fn sent_token(head: &Parts) -> Option<&str> {
    header(head, "x-vault-token").or_else(|| header(head, "authorization")?.strip_prefix("Bearer "))
}

/// Returns the wrapping token, which may be sent as the caller's own.
fn wrapping_token<'a>(head: &'a Parts, body: &'a Value) -> &'a str {
    body.get("token").and_then(Value::as_str).or_else(|| sent_token(head)).unwrap_or_default()
}

fn namespace(head: &Parts) -> &str {
    header(head, "x-vault-namespace").unwrap_or_default().trim_matches('/')
}

fn wrap_ttl(head: &Parts) -> Result<Option<Duration>, ()> {
    let Some(value) = header(head, "x-vault-wrap-ttl") else { return Ok(None) };
    seconds(&Value::from(value)).filter(|ttl| !ttl.is_zero()).map(Some).ok_or(())
}
