//! Where tokens are made and ended: one place a kind, and one for what all kinds share.

use std::time::SystemTime;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::ids;
use super::page::Paging;
use super::reply::{Answer, Refusal, made, nothing, shown};
use super::request::{Asked, required, text};
use super::state::State;
use super::tokens::{Kind, Token, Wish};

/// Whether a caller may make, see and end tokens of an owner. Users are the one kind that only the user may.
fn may_manage(state: &State, caller: &Token, kind: Kind, owner: &str) -> bool {
    match kind {
        Kind::User => caller.kind == Kind::User && caller.owner == owner,
        _ => state.may_see(caller, owner),
    }
}

/// The owner in the path, if the caller may manage its tokens.
fn owner(asked: &Asked, state: &State, kind: Kind) -> Result<String, Refusal> {
    let (held, name) = match kind {
        Kind::User => ("users", "user"),
        Kind::Team | Kind::TeamLegacy => ("teams", "entry"),
        Kind::Organization | Kind::AuditTrails => ("organizations", "organization"),
        Kind::AgentPool => ("agent-pools", "entry"),
    };
    let id = asked.name(name);
    state.store.find(held, id)?;
    if may_manage(state, asked.caller()?, kind, id) { Ok(id.to_owned()) } else { Err(Refusal::not_found()) }
}

/// `?token=audit-trails` is another token, which only the hosted product has.
fn organization_kind(asked: &Asked, state: &State) -> Result<Kind, Refusal> {
    match asked.query("token") {
        None => Ok(Kind::Organization),
        Some("audit-trails") if state.turned.edition.is_hosted() => Ok(Kind::AuditTrails),
        Some(_) => Err(Refusal::not_found()),
    }
}

fn expiry(attributes: &Map<String, Value>) -> Result<Option<SystemTime>, Refusal> {
    let Some(text) = text(attributes, "expired-at") else { return Ok(None) };
    let time = OffsetDateTime::parse(text, &Rfc3339);
    time.map(|time| Some(time.into())).map_err(|_| Refusal::invalid("expired-at", "is not a valid date"))
}

fn make(asked: &Asked, mut state: impl std::ops::DerefMut<Target = State>, kind: Kind) -> Answer {
    let attributes = asked.attributes()?;
    let owner = owner(asked, &state, kind)?;
    let ends = kind != Kind::AgentPool && state.turned.edition.tokens_end();
    let expires = if ends { expiry(&attributes)? } else { None };
    let description = match kind {
        Kind::Team | Kind::AgentPool => Some(required(&attributes, "description")?.to_owned()),
        Kind::User => text(&attributes, "description").map(ToOwned::to_owned),
        _ => None,
    };
    let created_by = asked.caller()?.acts_as();
    let secret = ids::token();
    let wish = Wish { kind, owner, description, expires, created_by };
    let token = state.tokens.make(wish, &secret, asked.now.wall)?;
    tracing::info!(event = "dev.platform.token", id = token.id, kind = ?kind, "the emulated platform made a token");
    Ok(made(&token.document(Some(&secret))))
}

fn only<'a>(state: &'a State, kind: Kind, owner: &str) -> Result<&'a Token, Refusal> {
    let mut tokens = state.tokens.list(|token| token.kind == kind && token.owner == owner);
    tokens.pop().ok_or_else(Refusal::not_found)
}

pub(super) async fn make_for_user(asked: Asked) -> Answer {
    make(&asked, asked.state(), Kind::User)
}

pub(super) async fn make_for_team(asked: Asked) -> Answer {
    make(&asked, asked.state(), Kind::Team)
}

pub(super) async fn make_the_one_of_team(asked: Asked) -> Answer {
    make(&asked, asked.state(), Kind::TeamLegacy)
}

pub(super) async fn make_for_agent_pool(asked: Asked) -> Answer {
    make(&asked, asked.state(), Kind::AgentPool)
}

pub(super) async fn make_for_organization(asked: Asked) -> Answer {
    let state = asked.state();
    let kind = organization_kind(&asked, &state)?;
    make(&asked, state, kind)
}

pub(super) async fn show_the_one_of_team(asked: Asked) -> Answer {
    let state = asked.state();
    let owner = owner(&asked, &state, Kind::TeamLegacy)?;
    Ok(shown(&only(&state, Kind::TeamLegacy, &owner)?.document(None)))
}

pub(super) async fn show_that_of_organization(asked: Asked) -> Answer {
    let state = asked.state();
    let kind = organization_kind(&asked, &state)?;
    let owner = owner(&asked, &state, kind)?;
    Ok(shown(&only(&state, kind, &owner)?.document(None)))
}

pub(super) async fn end_the_one_of_team(asked: Asked) -> Answer {
    let mut state = asked.state();
    let owner = owner(&asked, &state, Kind::TeamLegacy)?;
    let id = only(&state, Kind::TeamLegacy, &owner)?.id.clone();
    state.tokens.revoke(&id);
    Ok(nothing())
}

pub(super) async fn end_that_of_organization(asked: Asked) -> Answer {
    let mut state = asked.state();
    let kind = organization_kind(&asked, &state)?;
    let owner = owner(&asked, &state, kind)?;
    let id = only(&state, kind, &owner)?.id.clone();
    state.tokens.revoke(&id);
    Ok(nothing())
}

/// One of the ten lists of 2021-11-17.
pub(super) async fn list_of_user(asked: Asked) -> Answer {
    let state = asked.state();
    let owner = owner(&asked, &state, Kind::User)?;
    let paging = state.turned.paging;
    list(&asked, &state.tokens.list(|token| token.kind == Kind::User && token.owner == owner), paging)
}

pub(super) async fn list_of_agent_pool(asked: Asked) -> Answer {
    let state = asked.state();
    let owner = owner(&asked, &state, Kind::AgentPool)?;
    let tokens = state.tokens.list(|token| token.kind == Kind::AgentPool && token.owner == owner);
    list(&asked, &tokens, Paging::Always)
}

/// The entry of 2024-08-14: the tokens of all teams of an organization.
pub(super) async fn list_of_teams(asked: Asked) -> Answer {
    let state = asked.state();
    let organization = asked.organization(&state)?;
    let name =
        |token: &Token| state.store.get(&token.owner).map(|team| team.text("name").to_owned()).unwrap_or_default();
    let wanted = asked.query("q").unwrap_or_default();
    let mut tokens = state.tokens.list(|token| {
        matches!(token.kind, Kind::Team | Kind::TeamLegacy)
            && state.store.organization_of(&token.owner) == Some(&organization)
            && name(token).contains(wanted)
    });
    let sort = asked.query("sort").unwrap_or_default();
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
    list(&asked, &tokens, Paging::Always)
}

fn list(asked: &Asked, tokens: &[&Token], paging: Paging) -> Answer {
    let tokens: Vec<Value> = tokens.iter().map(|token| token.document(None)).collect();
    asked.list(&tokens, paging)
}

fn any<'a>(asked: &Asked, state: &'a State) -> Result<&'a Token, Refusal> {
    let token = state.tokens.get(asked.name("token")).ok_or_else(Refusal::not_found)?;
    let may = may_manage(state, asked.caller()?, token.kind, &token.owner);
    if may { Ok(token) } else { Err(Refusal::not_found()) }
}

pub(super) async fn show(asked: Asked) -> Answer {
    let state = asked.state();
    Ok(shown(&any(&asked, &state)?.document(None)))
}

pub(super) async fn end(asked: Asked) -> Answer {
    let mut state = asked.state();
    let id = any(&asked, &state)?.id.clone();
    state.tokens.revoke(&id);
    tracing::info!(event = "dev.platform.revoked", id, "the emulated platform ended a token");
    Ok(nothing())
}
