//! `[gateway.mint]`: platform tokens that the gateway makes for itself.

use std::time::Duration;

use keyward_gateway::token_minting::{MintOptions, TokenOwner};

use super::reader::Reader;
use super::values::{self, ValueError, invalid};

/// Owner of the minted tokens, the key `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Team,
    AgentPool,
    User,
    Organization,
    TeamLegacy,
}

const KINDS: [(&str, Kind); 5] = [
    ("team", Kind::Team),
    ("agent-pool", Kind::AgentPool),
    ("user", Kind::User),
    ("organization", Kind::Organization),
    ("team-legacy", Kind::TeamLegacy),
];

/// Reads the section. Returns `None`, with errors recorded, if required settings are missing or invalid.
pub(super) fn read(mut table: Reader<'_>) -> Option<MintOptions> {
    let parent = table.required("parent_token_file", "the file of a token that may create tokens");
    let parent = parent.and_then(|text| {
        let path = table.parse(&text, values::secret_file_path);
        if let Some(path) = &path {
            table.warn_if_readable_by_others(&text, path);
        }
        if text.unknown { path.or_else(|| Some("/".into())) } else { path }
    });
    let meaning = "the owner of the tokens: \"team\", \"agent-pool\" or \"user\"; \"organization\" and \"team-legacy\" have one token";
    if table.locate("kind").is_none() {
        table.missing("kind", meaning);
    }
    let kind = table.choice("kind", &KINDS);
    let owner = match kind {
        Some(Kind::Organization) => "the organization's name",
        Some(Kind::AgentPool) => "the agent pool's id, such as \"apool-yoGUFz5zcRMMz53i\"",
        Some(Kind::User) => "the user's id, such as \"user-V3R563qtJNcExAkN\"",
        _ => "the team's id, such as \"team-6p5jTwJQXwqZBncC\"",
    };
    let owner = table.required("owner", owner).and_then(|text| table.parse(&text, id));
    let organization = organization(&mut table, kind);
    let ttl = table.duration("ttl", Duration::from_hours(1), Duration::from_mins(5)..=Duration::from_hours(24 * 365));
    let grace = table.duration("grace", Duration::from_mins(1), Duration::ZERO..=Duration::from_hours(24));
    if grace > ttl / 4 {
        let at = table.locate("grace").or_else(|| table.locate("ttl")).unwrap_or(table.at);
        let message = "longer than a quarter of ttl: a token that was replaced ends before it";
        table.error(at, "grace", message, "shorten it, or lengthen ttl");
    }
    let acknowledged = single_slot(&mut table, kind);
    table.finish();
    let owner = match (kind?, owner?) {
        (Kind::Team, team) => TokenOwner::Team { team, organization: organization? },
        (Kind::AgentPool, id) => TokenOwner::AgentPool(id),
        (Kind::User, id) => TokenOwner::User(id),
        (Kind::Organization, name) => TokenOwner::Organization(name),
        (Kind::TeamLegacy, id) => TokenOwner::TeamLegacy(id),
    };
    acknowledged.then_some(MintOptions { parent_token_file: parent?, owner, ttl, grace })
}

/// The team's organization, which lists the tokens of its teams.
fn organization(table: &mut Reader<'_>, kind: Option<Kind>) -> Option<String> {
    if kind == Some(Kind::Team) {
        let text = table.required("organization", "the name of the team's organization, which lists the team's tokens");
        return text.and_then(|text| table.parse(&text, id));
    }
    if let (Some(at), Some(_)) = (table.locate("organization"), kind) {
        let message = "not allowed for this kind";
        table.error(at, "organization", message, "leave it out: it is for kind = \"team\"");
    }
    None
}

/// Reads `single_slot`; false, with an error, if a kind with one token per owner lacks the acknowledgement.
fn single_slot(table: &mut Reader<'_>, kind: Option<Kind>) -> bool {
    let at = table.locate("single_slot");
    let is_acknowledged = table.choice("single_slot", &[("acknowledged", ())]).is_some();
    let key = table.key("single_slot");
    match kind {
        Some(Kind::Organization | Kind::TeamLegacy) if at.is_none() => {
            let at = table.locate("kind").unwrap_or(table.at);
            let (owner, alternative) = if kind == Some(Kind::Organization) {
                ("an organization", "use kind = \"team\", which has any number of tokens")
            } else {
                ("a team", "use kind = \"team\", which has any number of tokens with a description")
            };
            let message = format!(
                "missing: {owner} has one token of this kind, and making another ends it at once, wherever it is in use"
            );
            let advice =
                format!("{alternative}; or write single_slot = \"acknowledged\" if nobody else uses or makes it");
            table.scope.diagnostics.error(at, &key, message, advice);
            false
        }
        Some(Kind::Team | Kind::AgentPool | Kind::User) if at.is_some() => {
            let at = at.unwrap_or(table.at);
            let message = "not allowed for this kind, which may have any number of tokens";
            table.scope.diagnostics.error(at, &key, message, "leave it out");
            false
        }
        Some(Kind::Organization | Kind::TeamLegacy) => is_acknowledged,
        _ => true,
    }
}

/// An id or a name of the platform's: it becomes part of a path.
fn id(text: &str) -> Result<String, ValueError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if text.len() <= 128 && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    invalid("is not an id or a name of the platform", "it has letters, digits, - and _")
}
