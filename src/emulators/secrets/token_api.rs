//! Handlers of `auth/token`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::{Value, json};

use super::Role;
use super::TokenRole;
use super::reply::{WrappableResponse, refusal, success};
use super::route::{TokenCall, seconds};
use super::tokens::{Origin, Token, TokenError, TokenType, Tokens};

/// Token and namespace of a request.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    pub(super) token_roles: &'a BTreeMap<String, TokenRole>,
    pub(super) secret: &'a str,
    pub(super) token: &'a Token,
    pub(super) namespace: &'a str,
}

/// Handles a call. `path` is below `auth/token/`.
pub(super) fn response(
    tokens: &mut Tokens,
    call: TokenCall,
    path: &str,
    caller: &Caller<'_>,
    body: &Value,
    now: ClockReading,
) -> WrappableResponse {
    let increment = body.get("increment").and_then(seconds);
    match call {
        TokenCall::LookupSelf => success("data", caller.token.data(caller.secret, now)),
        TokenCall::RenewSelf => renewal_response(tokens.renew(caller.secret, increment, now)),
        TokenCall::RevokeSelf => revoked(tokens.revoke(caller.secret)),
        TokenCall::Create => create(tokens, path, caller, body, now),
        TokenCall::Accessors => success("data", json!({ "keys": tokens.accessors() })),
        TokenCall::Lookup | TokenCall::Renew | TokenCall::Revoke | TokenCall::RevokeOrphan => {
            let by_accessor = path.ends_with("-accessor");
            let field = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
            let secret = if by_accessor {
                tokens.by_accessor(field("accessor")).unwrap_or_default()
            } else if field("token").is_empty() && call == TokenCall::Lookup {
                caller.secret.to_owned()
            } else {
                field("token").to_owned()
            };
            let Some(other) = tokens.look_up(&secret, now) else {
                return unknown(call, by_accessor);
            };
            match call {
                // A lookup by accessor does not reveal the token.
                TokenCall::Lookup => success("data", other.data(if by_accessor { "" } else { &secret }, now)),
                TokenCall::Renew => renewal_response(tokens.renew(&secret, increment, now)),
                TokenCall::RevokeOrphan => {
                    tokens.revoke_orphan(&secret);
                    WrappableResponse::Nothing
                }
                _ => revoked(tokens.revoke(&secret)),
            }
        }
    }
}

fn unknown(call: TokenCall, by_accessor: bool) -> WrappableResponse {
    match (call, by_accessor) {
        (TokenCall::Lookup, true) => refusal(StatusCode::FORBIDDEN, "invalid accessor"),
        (TokenCall::Lookup, false) => refusal(StatusCode::FORBIDDEN, "bad token"),
        (_, true) => refusal(StatusCode::BAD_REQUEST, "invalid accessor"),
        (_, false) => refusal(StatusCode::BAD_REQUEST, "token not found"),
    }
}

fn renewal_response(renewed: Result<Value, TokenError>) -> WrappableResponse {
    match renewed {
        Ok(auth) => success("auth", auth),
        Err(TokenError::Batch) => refusal(StatusCode::BAD_REQUEST, "batch tokens cannot be renewed"),
        Err(TokenError::NotRenewable) => refusal(StatusCode::BAD_REQUEST, "lease is not renewable"),
    }
}

fn revoked(revoked: Result<(), TokenError>) -> WrappableResponse {
    match revoked {
        Ok(()) => WrappableResponse::Nothing,
        Err(_) => refusal(StatusCode::BAD_REQUEST, "batch tokens cannot be revoked"),
    }
}

fn create(tokens: &mut Tokens, path: &str, caller: &Caller<'_>, body: &Value, now: ClockReading) -> WrappableResponse {
    let role_name = path.strip_prefix("create/").unwrap_or_default();
    let token_role = caller.token_roles.get(role_name);
    if !role_name.is_empty() && token_role.is_none() {
        return refusal(StatusCode::BAD_REQUEST, &format!("unknown role {role_name}"));
    }
    let own_role = caller.token.role();
    if own_role.token_type == TokenType::Batch {
        return refusal(StatusCode::BAD_REQUEST, "batch tokens cannot create more tokens");
    }
    if own_role.num_uses > 0 {
        return refusal(StatusCode::BAD_REQUEST, "restricted use token cannot generate child tokens");
    }
    let batch = body.get("type").and_then(Value::as_str) == Some("batch");
    let token_type =
        token_role.map_or(if batch { TokenType::Batch } else { TokenType::Service }, TokenRole::token_type);
    if let Some(option) = find_service_option(body).filter(|_| token_type == TokenType::Batch) {
        return refusal(StatusCode::BAD_REQUEST, &format!("batch tokens cannot have {option:?} set"));
    }
    if let Some(text) = find_invalid_duration(body) {
        return refusal(StatusCode::BAD_REQUEST, &format!("time: invalid duration {text:?}"));
    }
    let flag = |name: &str, otherwise: bool| body.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
    let span = |name: &str| body.get(name).and_then(seconds).filter(|span| !span.is_zero());
    let policies = match child_policies(caller, token_role, body) {
        Ok(policies) => policies,
        Err(message) => return refusal(StatusCode::BAD_REQUEST, &message),
    };
    let role = Role {
        policies,
        ttl: span("ttl").or_else(|| span("period")).unwrap_or(DEFAULT_TTL),
        max_ttl: span("explicit_max_ttl").or(if span("period").is_some() { None } else { Some(MAX_TTL) }),
        token_type,
        renewable: flag("renewable", true),
        num_uses: body.get("num_uses").and_then(Value::as_u64).unwrap_or(0),
        bounds: super::Bounds::default(),
    };
    let metadata = body.get("meta").and_then(Value::as_object).into_iter().flatten();
    let origin = Origin {
        namespace: caller.namespace.to_owned(),
        path: format!("auth/token/{path}"),
        bound_cidrs: token_role.map_or_else(|| caller.token.bound_cidrs().to_vec(), |role| role.bound_cidrs.clone()),
        explicit_max_ttl: span("explicit_max_ttl").unwrap_or_default(),
        role: role_name.to_owned(),
        display_name: match body.get("display_name").and_then(Value::as_str) {
            None | Some("") => "token".to_owned(),
            Some(name) => format!("token-{name}"),
        },
        entity_id: caller.token.entity_id().to_owned(),
        metadata: metadata.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect(),
    };
    let orphan = path == "create-orphan" || token_role.is_some_and(|role| role.orphan);
    let parent = (!orphan && !flag("no_parent", false)).then(|| caller.secret.to_owned());
    success("auth", tokens.issue(&role, origin, parent, now))
}

/// Returns the first text of a request that is not a duration but must be one.
fn find_invalid_duration(body: &Value) -> Option<&str> {
    let names = ["ttl", "explicit_max_ttl", "period"];
    let texts = names.into_iter().filter_map(|name| body.get(name).filter(|value| seconds(value).is_none()));
    texts.filter_map(Value::as_str).find(|text| !text.is_empty())
}

/// Returns the first option of a request that only service tokens may have.
fn find_service_option(body: &Value) -> Option<&'static str> {
    let is_set = |name: &&str| body.get(name).and_then(seconds).is_some_and(|value| !value.is_zero());
    ["explicit_max_ttl", "num_uses", "period"].into_iter().find(is_set)
}

/// Returns the policies of a child: those that the request names, else all that the role or the parent has.
fn child_policies(caller: &Caller<'_>, token_role: Option<&TokenRole>, body: &Value) -> Result<Vec<String>, String> {
    let own_policies = &caller.token.role().policies;
    // A role decides which policies its tokens may have, whatever those of the parent are.
    let allowed = token_role.map(|role| &role.allowed_policies).filter(|allowed| !allowed.is_empty());
    let texts = |values: &Vec<Value>| values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let policies: Option<Vec<String>> = body.get("policies").and_then(Value::as_array).map(texts);
    let policies = policies.filter(|policies| !policies.is_empty()).or_else(|| allowed.cloned());
    let Some(mut policies) = policies else { return Ok(own_policies.clone()) };
    let no_default = body.get("no_default_policy").and_then(Value::as_bool).unwrap_or(false);
    if !no_default && !policies.iter().any(|policy| policy == "root") {
        policies.push("default".to_owned());
    }
    policies.sort();
    policies.dedup();
    let is_root = own_policies.iter().any(|policy| policy == "root");
    let is_within = |these: &[String]| policies.iter().all(|policy| policy == "default" || these.contains(policy));
    match allowed {
        Some(allowed) if !is_within(allowed) => {
            Err(format!("token policies ({policies:?}) must be subset of the role's allowed policies ({allowed:?})"))
        }
        None if !is_root && !is_within(own_policies) => Err("child policies must be subset of parent".to_owned()),
        Some(_) | None => Ok(policies),
    }
}

/// Default of the real server.
const DEFAULT_TTL: Duration = Duration::from_hours(768);
const MAX_TTL: Duration = DEFAULT_TTL;
