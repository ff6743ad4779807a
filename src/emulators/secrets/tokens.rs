//! Tokens and their lifetimes. Time is passed in.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_machine::clock::ClockReading;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Role;

/// Type of a role's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    /// Stored by the server.
    Service,
    /// Not stored: cannot be renewed or revoked.
    Batch,
}

/// All tokens, by their secret text.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    tokens: HashMap<String, Token>,
    wrapped: HashMap<String, WrappedToken>,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    accessor: String,
    role: Role,
    created: ClockReading,
    issued_ttl: Duration,
    renewed: Option<ClockReading>,
    /// `None` for no expiry.
    ends: Option<ClockReading>,
    uses_left: Option<u64>,
    /// Token that created it; it ends with its parent.
    parent: Option<String>,
    origin: Origin,
}

/// Origin of a token.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    pub(super) namespace: String,
    /// Path such as `auth/azure/login`.
    pub(super) path: String,
    pub(super) display_name: String,
    /// Empty for a token that no login made.
    pub(super) entity_id: String,
    pub(super) metadata: BTreeMap<String, String>,
    /// Addresses that it is bound to; empty for every address.
    pub(super) bound_cidrs: Vec<String>,
    /// End over all renewals that its creation asked for; zero for none.
    pub(super) explicit_max_ttl: Duration,
    /// Token role that created it; empty for none.
    pub(super) role: String,
}

#[derive(Debug)]
struct WrappedToken {
    response: Value,
    created: ClockReading,
    ttl: Duration,
    path: String,
}

impl Tokens {
    /// Issues a token for a role; returns the `auth` part of a login response.
    pub(super) fn issue(&mut self, role: &Role, origin: Origin, parent: Option<String>, now: ClockReading) -> Value {
        let ttl = role.max_ttl.map_or(role.ttl, |max| role.ttl.min(max));
        let batch = role.token_type == TokenType::Batch;
        let secret = format!("{}.emulated-{}", if batch { "hvb" } else { "hvs" }, random_text());
        let token = Token {
            accessor: if batch { String::new() } else { random_text() },
            role: role.clone(),
            created: now,
            issued_ttl: ttl,
            renewed: None,
            ends: (!ttl.is_zero()).then(|| now + ttl),
            uses_left: (role.num_uses > 0).then_some(role.num_uses),
            parent,
            origin,
        };
        let auth = token.auth(&secret, now);
        self.tokens.insert(secret, token);
        auth
    }

    /// Consumes one use of a token. `None` if it is unknown, expired, used up, or of another namespace.
    pub(super) fn use_once(&mut self, secret: &str, namespace: &str, now: ClockReading) -> Option<Token> {
        if !self.is_alive(secret, now) {
            self.remove(secret);
            return None;
        }
        let token = self.tokens.get_mut(secret).filter(|token| token.origin.namespace == namespace)?;
        if let Some(uses) = &mut token.uses_left {
            *uses -= 1;
        }
        Some(token.clone())
    }

    /// Returns the remaining lifetime of a token: `None` if it is not valid, [`Duration::MAX`] if it never expires.
    pub(super) fn remaining(&self, secret: &str, now: ClockReading) -> Option<Duration> {
        let token = self.tokens.get(secret).filter(|_| self.is_alive(secret, now))?;
        Some(token.ends.map_or(Duration::MAX, |ends| now.until(ends)))
    }

    /// Returns true if a token and all its ancestors are valid.
    pub(super) fn is_alive(&self, secret: &str, now: ClockReading) -> bool {
        self.tokens.get(secret).is_some_and(|token| {
            token.ends.is_none_or(|ends| !now.until(ends).is_zero())
                && token.uses_left != Some(0)
                && token.parent.as_ref().is_none_or(|parent| self.is_alive(parent, now))
        })
    }

    /// Returns a token without using it.
    pub(super) fn look_up(&self, secret: &str, now: ClockReading) -> Option<&Token> {
        self.tokens.get(secret).filter(|_| self.is_alive(secret, now))
    }

    /// Returns the token of an accessor.
    pub(super) fn by_accessor(&self, accessor: &str) -> Option<String> {
        let entry = self.tokens.iter().find(|(_, token)| !accessor.is_empty() && token.accessor == accessor);
        entry.map(|(secret, _)| secret.clone())
    }

    pub(super) fn accessors(&self) -> Vec<&str> {
        self.tokens.values().map(|token| token.accessor.as_str()).filter(|accessor| !accessor.is_empty()).collect()
    }

    /// Renews a token for `increment` or its role's lifetime, up to the role's maximum; returns the `auth` part.
    pub(super) fn renew(
        &mut self,
        secret: &str,
        increment: Option<Duration>,
        now: ClockReading,
    ) -> Result<Value, TokenError> {
        let token = self.tokens.get_mut(secret).ok_or(TokenError::NotRenewable)?;
        match (token.role.token_type, token.role.renewable) {
            (TokenType::Batch, _) => return Err(TokenError::Batch),
            (TokenType::Service, false) => return Err(TokenError::NotRenewable),
            (TokenType::Service, true) => {}
        }
        let requested = increment.filter(|increment| !increment.is_zero()).unwrap_or(token.role.ttl);
        let max_ttl = token.role.max_ttl.map_or(requested, |max| now.until(token.created + max));
        if token.ends.is_some() {
            token.ends = Some(now + requested.min(max_ttl));
        }
        token.renewed = Some(now);
        Ok(token.auth(secret, now))
    }

    /// Revokes a token and all its descendants.
    pub(super) fn revoke(&mut self, secret: &str) -> Result<(), TokenError> {
        if self.tokens.get(secret).is_some_and(|token| token.role.token_type == TokenType::Batch) {
            return Err(TokenError::Batch);
        }
        self.remove(secret);
        Ok(())
    }

    /// Revokes a token only; its children become orphans.
    pub(super) fn revoke_orphan(&mut self, secret: &str) {
        self.tokens.remove(secret);
        for token in self.tokens.values_mut().filter(|token| token.parent.as_deref() == Some(secret)) {
            token.parent = None;
        }
    }

    pub(super) fn revoke_all(&mut self) {
        self.tokens.retain(|_, token| token.role.token_type == TokenType::Batch);
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Stores a wrapped response; returns `wrap_info`.
    pub(super) fn wrap(&mut self, response: Value, ttl: Duration, path: &str, now: ClockReading) -> Value {
        let secret = format!("hvs.emulated-wrap-{}", random_text());
        let accessor = response.pointer("/auth/accessor").cloned();
        self.wrapped.insert(secret.clone(), WrappedToken { response, created: now, ttl, path: path.to_owned() });
        let mut info = json!({
            "token": secret, "accessor": random_text(), "ttl": ttl.as_secs(),
            "creation_time": rfc3339(now.wall), "creation_path": path,
        });
        if let Some(accessor) = accessor {
            info["wrapped_accessor"] = accessor;
        }
        info
    }

    /// Returns a wrapped response, once.
    pub(super) fn unwrap(&mut self, secret: &str, now: ClockReading) -> Option<Value> {
        let wrapped = self.wrapped.remove(secret)?;
        (!now.until(wrapped.created + wrapped.ttl).is_zero()).then_some(wrapped.response)
    }

    /// Returns the properties of a wrapping token.
    pub(super) fn look_up_wrapped(&self, secret: &str, now: ClockReading) -> Option<Value> {
        let wrapped = self.wrapped.get(secret).filter(|wrapped| !now.until(wrapped.created + wrapped.ttl).is_zero())?;
        Some(json!({
            "creation_path": wrapped.path, "creation_time": rfc3339(wrapped.created.wall),
            "creation_ttl": wrapped.ttl.as_secs(),
        }))
    }

    fn remove(&mut self, secret: &str) {
        let mut pending = vec![secret.to_owned()];
        while let Some(next) = pending.pop() {
            self.tokens.remove(&next);
            let children = self.tokens.iter().filter(|(_, token)| token.parent.as_ref() == Some(&next));
            pending.extend(children.map(|(child, _)| child.clone()));
        }
    }
}

impl Token {
    pub(super) const fn role(&self) -> &Role {
        &self.role
    }

    /// Name for people, which other engines put into what they make.
    pub(super) fn display_name(&self) -> &str {
        &self.origin.display_name
    }

    pub(super) fn bound_cidrs(&self) -> &[String] {
        &self.origin.bound_cidrs
    }

    fn renewable(&self) -> bool {
        self.role.renewable && self.role.token_type == TokenType::Service
    }

    const fn type_name(&self) -> &'static str {
        match self.role.token_type {
            TokenType::Service => "service",
            TokenType::Batch => "batch",
        }
    }

    fn seconds_left(&self, now: ClockReading) -> u64 {
        self.ends.map_or(0, |ends| whole_seconds(now.until(ends)))
    }

    fn auth(&self, secret: &str, now: ClockReading) -> Value {
        json!({
            "client_token": secret, "accessor": self.accessor, "policies": self.role.policies,
            "token_policies": self.role.policies, "metadata": self.metadata(),
            "lease_duration": self.seconds_left(now), "renewable": self.renewable(),
            "entity_id": self.origin.entity_id,
            "token_type": self.type_name(), "orphan": self.parent.is_none(), "mfa_requirement": null,
            "num_uses": self.uses_left.unwrap_or(0),
        })
    }

    fn metadata(&self) -> Value {
        if self.origin.metadata.is_empty() { Value::Null } else { json!(self.origin.metadata) }
    }

    pub(super) fn entity_id(&self) -> &str {
        &self.origin.entity_id
    }

    /// Returns the uses that a look-up shows: 0 for no limit, and -1 after the last one, as on the real server.
    fn num_uses(&self) -> i64 {
        match self.uses_left {
            None => 0,
            Some(0) => -1,
            Some(uses) => uses.try_into().unwrap_or(i64::MAX),
        }
    }

    /// Builds the `data` part of a lookup response.
    pub(super) fn data(&self, secret: &str, now: ClockReading) -> Value {
        let mut data = json!({
            "accessor": self.accessor, "creation_time": unix_seconds(self.created.wall),
            "creation_ttl": self.issued_ttl.as_secs(), "display_name": self.origin.display_name,
            "entity_id": self.origin.entity_id,
            "expire_time": self.ends.map(|ends| rfc3339(now.wall + now.until(ends))), "explicit_max_ttl": self.origin.explicit_max_ttl.as_secs(),
            "id": secret, "issue_time": rfc3339(self.created.wall), "meta": self.metadata(),
            "num_uses": self.num_uses(),
            "orphan": self.parent.is_none(), "path": self.origin.path, "policies": self.role.policies,
            "renewable": self.renewable(), "ttl": self.seconds_left(now), "type": self.type_name(),
        });
        if let Some(renewed) = self.renewed {
            data["last_renewal"] = rfc3339(renewed.wall).into();
            data["last_renewal_time"] = unix_seconds(renewed.wall).into();
        }
        if !self.origin.namespace.is_empty() {
            data["namespace_path"] = format!("{}/", self.origin.namespace).into();
        }
        if !self.origin.bound_cidrs.is_empty() {
            data["bound_cidrs"] = json!(self.origin.bound_cidrs);
        }
        if !self.origin.role.is_empty() {
            data["role"] = json!(self.origin.role);
        }
        data
    }
}

/// Reason why a token is not renewed or revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenError {
    Batch,
    NotRenewable,
}

/// Generates a random secret. Panics without random bytes: nothing safe can follow.
#[expect(clippy::expect_used, reason = "no secret can be made without the system's generator")]
pub(super) fn random_text() -> String {
    let mut bytes = [0_u8; 18];
    rand::fill(&mut bytes).expect("the system's random generator works");
    // Only letters and digits, as Vault's: no accessor begins with a hyphen.
    URL_SAFE_NO_PAD.encode(bytes).replace(['-', '_'], "x")
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

pub(super) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn rfc3339(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}
