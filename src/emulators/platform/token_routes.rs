//! Routes that create, show and delete tokens.

use std::time::SystemTime;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::ids;
use super::page::Paging;
use super::reply::{ApiError, ApiResult, created, no_content, ok};
use super::request::{ApiRequest, required, text};
use super::state::State;
use super::tokens::{Token, TokenKind, TokenRequest};

/// Returns true if a caller may manage tokens of an owner. User tokens are managed by the user only.
fn may_manage(state: &State, caller: &Token, kind: TokenKind, owner: &str) -> bool {
    match kind {
        TokenKind::User => caller.kind == TokenKind::User && caller.owner == owner,
        _ => state.may_see(caller, owner),
    }
}

/// Returns the owner in the path, if the caller may manage its tokens.
fn owner(request: &ApiRequest, state: &State, kind: TokenKind) -> Result<String, ApiError> {
    let (emulator, name) = match kind {
        TokenKind::User => ("users", "user"),
        TokenKind::Team | TokenKind::TeamLegacy => ("teams", "entry"),
        TokenKind::Organization | TokenKind::AuditTrails => ("organizations", "organization"),
        TokenKind::AgentPool => ("agent-pools", "entry"),
    };
    let id = request.name(name);
    state.store.find(emulator, id)?;
    if may_manage(state, request.caller()?, kind, id) { Ok(id.to_owned()) } else { Err(ApiError::not_found()) }
}

/// `?token=audit-trails` is another token, which only HCP Terraform has.
fn organization_kind(request: &ApiRequest, state: &State) -> Result<TokenKind, ApiError> {
    match request.query("token") {
        None => Ok(TokenKind::Organization),
        Some("audit-trails") if state.settings.edition.is_hosted() => Ok(TokenKind::AuditTrails),
        Some(_) => Err(ApiError::not_found()),
    }
}

fn expiry(attributes: &Map<String, Value>) -> Result<Option<SystemTime>, ApiError> {
    let Some(text) = text(attributes, "expired-at") else { return Ok(None) };
    let time = OffsetDateTime::parse(text, &Rfc3339);
    time.map(|time| Some(time.into())).map_err(|_| ApiError::invalid("expired-at", "is not a valid date"))
}

fn make(request: &ApiRequest, mut state: impl std::ops::DerefMut<Target = State>, kind: TokenKind) -> ApiResult {
    let attributes = request.attributes()?;
    let owner = owner(request, &state, kind)?;
    let ends = kind != TokenKind::AgentPool && state.settings.edition.has_token_expiry();
    let expires = if ends { expiry(&attributes)? } else { None };
    let description = match kind {
        TokenKind::Team | TokenKind::AgentPool => Some(required(&attributes, "description")?.to_owned()),
        TokenKind::User => text(&attributes, "description").map(ToOwned::to_owned),
        _ => None,
    };
    let created_by = request.caller()?.acts_as();
    let secret = ids::token();
    let token_request = TokenRequest { kind, owner, description, expires, created_by };
    let token = state.tokens.make(token_request, &secret, request.now.wall)?;
    tracing::info!(
        event = "dev.platform.token",
        id = token.id,
        kind = kind.as_str(),
        "the emulated platform made a token"
    );
    Ok(created(&token.document(Some(&secret))))
}

fn only<'a>(state: &'a State, kind: TokenKind, owner: &str) -> Result<&'a Token, ApiError> {
    let mut tokens = state.tokens.list(|token| token.kind == kind && token.owner == owner);
    tokens.pop().ok_or_else(ApiError::not_found)
}

pub(super) async fn make_for_user(request: ApiRequest) -> ApiResult {
    make(&request, request.state(), TokenKind::User)
}

pub(super) async fn make_for_team(request: ApiRequest) -> ApiResult {
    make(&request, request.state(), TokenKind::Team)
}

pub(super) async fn create_team_token(request: ApiRequest) -> ApiResult {
    make(&request, request.state(), TokenKind::TeamLegacy)
}

pub(super) async fn make_for_agent_pool(request: ApiRequest) -> ApiResult {
    make(&request, request.state(), TokenKind::AgentPool)
}

pub(super) async fn make_for_organization(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let kind = organization_kind(&request, &state)?;
    make(&request, state, kind)
}

pub(super) async fn show_team_token(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let owner = owner(&request, &state, TokenKind::TeamLegacy)?;
    Ok(ok(&only(&state, TokenKind::TeamLegacy, &owner)?.document(None)))
}

pub(super) async fn show_organization_token(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let kind = organization_kind(&request, &state)?;
    let owner = owner(&request, &state, kind)?;
    Ok(ok(&only(&state, kind, &owner)?.document(None)))
}

pub(super) async fn delete_team_token(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let owner = owner(&request, &state, TokenKind::TeamLegacy)?;
    let id = only(&state, TokenKind::TeamLegacy, &owner)?.id.clone();
    state.tokens.revoke(&id);
    Ok(no_content())
}

pub(super) async fn delete_organization_token(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let kind = organization_kind(&request, &state)?;
    let owner = owner(&request, &state, kind)?;
    let id = only(&state, kind, &owner)?.id.clone();
    state.tokens.revoke(&id);
    Ok(no_content())
}

/// One of the ten lists of 2021-11-17.
pub(super) async fn list_of_user(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let owner = owner(&request, &state, TokenKind::User)?;
    let paging = state.settings.paging;
    list(&request, &state.tokens.list(|token| token.kind == TokenKind::User && token.owner == owner), paging)
}

pub(super) async fn list_of_agent_pool(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let owner = owner(&request, &state, TokenKind::AgentPool)?;
    let tokens = state.tokens.list(|token| token.kind == TokenKind::AgentPool && token.owner == owner);
    list(&request, &tokens, Paging::Always)
}

/// Tokens of all teams of an organization: changelog entry of 2024-08-14.
pub(super) async fn list_of_teams(request: ApiRequest) -> ApiResult {
    let state = request.state();
    let organization = request.organization(&state)?;
    let name =
        |token: &Token| state.store.get(&token.owner).map(|team| team.text("name").to_owned()).unwrap_or_default();
    let search = request.query("q").unwrap_or_default();
    let mut tokens = state.tokens.list(|token| {
        matches!(token.kind, TokenKind::Team | TokenKind::TeamLegacy)
            && state.store.organization_of(&token.owner) == Some(&organization)
            && name(token).contains(search)
    });
    let sort = request.query("sort").unwrap_or_default();
    match sort.trim_start_matches('-') {
        "team-name" => tokens.sort_by_key(|token| name(token)),
        "created-by" => tokens.sort_by_key(|token| token.created_by.clone()),
        "expired-at" => tokens.sort_by_key(|token| token.expires),
        "last-used-at" => tokens.sort_by_key(|token| token.last_used),
        _ => {}
    }
    if sort.starts_with('-') {
        tokens.reverse();
    }
    list(&request, &tokens, Paging::Always)
}

fn list(request: &ApiRequest, tokens: &[&Token], paging: Paging) -> ApiResult {
    let tokens: Vec<Value> = tokens.iter().map(|token| token.document(None)).collect();
    request.list(&tokens, paging)
}

fn any<'a>(request: &ApiRequest, state: &'a State) -> Result<&'a Token, ApiError> {
    let token = state.tokens.get(request.name("token")).ok_or_else(ApiError::not_found)?;
    let may = may_manage(state, request.caller()?, token.kind, &token.owner);
    if may { Ok(token) } else { Err(ApiError::not_found()) }
}

pub(super) async fn show(request: ApiRequest) -> ApiResult {
    let state = request.state();
    Ok(ok(&any(&request, &state)?.document(None)))
}

pub(super) async fn end(request: ApiRequest) -> ApiResult {
    let mut state = request.state();
    let id = any(&request, &state)?.id.clone();
    state.tokens.revoke(&id);
    tracing::info!(event = "dev.platform.revoked", id, "the emulated platform ended a token");
    Ok(no_content())
}
