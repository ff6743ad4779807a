//! Tokens by owner, with their limits and expiry. Their text is returned once and not kept.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::ids;
use super::reply::ApiError;

/// Kind of token, which decides how many an owner may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// User token; any number.
    User,
    /// Team token with a description; any number.
    Team,
    /// Team token without a description; one, which the next one replaces.
    TeamLegacy,
    /// Organization token; one.
    Organization,
    /// Token for an organization's audit trail only; one.
    AuditTrails,
    /// Agent pool token; any number, which never expire by themselves.
    AgentPool,
}

impl TokenKind {
    const fn single(self) -> bool {
        matches!(self, Self::TeamLegacy | Self::Organization | Self::AuditTrails)
    }

    /// Returns the kind as the log names it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Team => "team",
            Self::TeamLegacy => "team-legacy",
            Self::Organization => "organization",
            Self::AuditTrails => "audit-trails",
            Self::AgentPool => "agent-pool",
        }
    }

    const fn owner_kind(self) -> &'static str {
        match self {
            Self::User => "users",
            Self::Team | Self::TeamLegacy => "teams",
            Self::Organization | Self::AuditTrails => "organizations",
            Self::AgentPool => "agent-pools",
        }
    }
}

/// A token, without its text.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) id: String,
    pub kind: TokenKind,
    /// Id of the user, team, organization or agent pool.
    pub(super) owner: String,
    pub description: Option<String>,
    pub(super) created: SystemTime,
    pub expires: Option<SystemTime>,
    pub(super) last_used: Option<SystemTime>,
    /// User or service user that created it.
    pub(super) created_by: String,
    order: u64,
}

/// Properties of a new token.
#[derive(Debug)]
pub(super) struct TokenRequest {
    pub(super) kind: TokenKind,
    pub(super) owner: String,
    pub(super) description: Option<String>,
    pub(super) expires: Option<SystemTime>,
    pub(super) created_by: String,
}

impl Token {
    fn has_ended(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Returns the user that its bearer acts as: teams and organizations have a service user each.
    pub(super) fn acts_as(&self) -> String {
        match self.kind {
            TokenKind::User => self.owner.clone(),
            _ => format!("user-service-{}", self.owner),
        }
    }

    /// Renders the token; `text` only for its creator.
    pub(super) fn document(&self, text: Option<&str>) -> Value {
        let time = |time: Option<SystemTime>| time.map(ids::timestamp);
        let owner = self.kind.owner_kind();
        let relation = owner.trim_end_matches('s');
        let mut relationships = json!({"created-by": {"data": {"id": self.created_by, "type": "users"}}});
        relationships[relation] = json!({"data": {"id": self.owner, "type": owner}});
        json!({
            "id": self.id, "type": "authentication-tokens",
            "attributes": {
                "created-at": ids::timestamp(self.created), "last-used-at": time(self.last_used),
                "description": self.description, "token": text, "expired-at": time(self.expires),
            },
            "relationships": relationships,
        })
    }
}

/// All tokens.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    by_id: BTreeMap<String, Token>,
    ids_by_fingerprint: HashMap<[u8; 32], String>,
    next: u64,
}

const MAX_TOKENS: usize = 20_000;

impl Tokens {
    /// Creates a token with this text; a single token of its owner is replaced.
    pub(super) fn make(&mut self, request: TokenRequest, text: &str, now: SystemTime) -> Result<Token, ApiError> {
        let TokenRequest { kind, owner, description, expires, created_by } = request;
        let of_owner = |token: &&Token| token.kind == kind && token.owner == owner;
        if kind == TokenKind::Team && self.by_id.values().filter(of_owner).any(|token| token.description == description)
        {
            return Err(ApiError::invalid("description", "Description has already been taken"));
        }
        if self.by_id.len() >= MAX_TOKENS {
            return Err(ApiError::too_large());
        }
        if kind.single() {
            let replaced: Vec<String> = self.by_id.values().filter(of_owner).map(|token| token.id.clone()).collect();
            for id in replaced {
                self.revoke(&id);
            }
        }
        self.next += 1;
        let id = ids::id("at");
        let order = self.next;
        let token = Token {
            id: id.clone(),
            kind,
            owner,
            description,
            created: now,
            expires,
            last_used: None,
            created_by,
            order,
        };
        self.ids_by_fingerprint.insert(ids::fingerprint(text.as_bytes()), id.clone());
        self.by_id.insert(id, token.clone());
        Ok(token)
    }

    /// Returns the token with this secret if it is valid, and records its use.
    pub(super) fn authenticate(&mut self, text: &[u8], now: SystemTime) -> Option<Token> {
        let token = self.by_id.get_mut(self.ids_by_fingerprint.get(&ids::fingerprint(text))?)?;
        if token.has_ended(now) {
            return None;
        }
        token.last_used = Some(now);
        Some(token.clone())
    }

    pub(super) fn get(&self, id: &str) -> Option<&Token> {
        self.by_id.get(id)
    }

    /// Revokes a token at once.
    pub(super) fn revoke(&mut self, id: &str) -> bool {
        self.ids_by_fingerprint.retain(|_, other| other != id);
        self.by_id.remove(id).is_some()
    }

    /// Revokes every token that `ended` selects.
    pub(super) fn revoke_where(&mut self, ended: impl Fn(&Token) -> bool) -> usize {
        let ids: Vec<String> = self.by_id.values().filter(|token| ended(token)).map(|token| token.id.clone()).collect();
        ids.iter().filter(|id| self.revoke(id)).count()
    }

    /// Lists the tokens for which `is_listed` returns true, oldest first.
    pub(super) fn list(&self, is_listed: impl Fn(&Token) -> bool) -> Vec<&Token> {
        let mut list: Vec<&Token> = self.by_id.values().filter(|token| is_listed(token)).collect();
        list.sort_by_key(|token| token.order);
        list
    }
}

#[cfg(test)]
mod tests;
