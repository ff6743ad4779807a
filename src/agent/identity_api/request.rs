//! A request to a form, the token that it gets, and its refusals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::identity_tokens::{IdentityTokens, NoIdentityToken, RoleCredentials};
use crate::json_response::{json, retry_later};
use crate::token::Token;

/// A request that may use an identity.
pub(super) struct FormRequest<'a> {
    pub(super) identity: &'a IdentityTokens,
    /// Parameters of the query, or of the form in the body, each given once.
    pub(super) parameters: BTreeMap<String, String>,
}

/// Token for a request.
pub(super) struct FoundToken<'a> {
    /// Resource as it is listed.
    pub(super) resource: &'a str,
    pub(super) token: Arc<Token>,
    /// Seconds from 1970 to its end.
    pub(super) expires_on: u64,
}

/// Refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormError {
    pub(super) status: StatusCode,
    /// Outcome for metrics, logs and the audit.
    pub(super) outcome: &'static str,
    /// Message for the tool: the problem and the remedy.
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

/// Response of a form.
pub(super) type FormResponse = Response<Full<Bytes>>;

impl FormError {
    /// Builds its response, with a body in the words of the form's clients.
    pub(super) fn to_response(&self, body: &impl Serialize) -> FormResponse {
        match self.retry_after {
            Some(wait) => retry_later(self.status, body, wait),
            None => json(self.status, body),
        }
    }

    pub(super) fn new(status: StatusCode, outcome: &'static str, message: impl Into<String>) -> Self {
        Self { status, outcome, message: message.into(), retry_after: None }
    }

    /// There is no token; `not_listed` is for something that the configuration does not list.
    fn without_token(reason: NoIdentityToken, not_listed: impl FnOnce() -> String) -> Self {
        match reason {
            NoIdentityToken::NotListed => Self::new(StatusCode::FORBIDDEN, "not_listed", not_listed()),
            NoIdentityToken::Unavailable { reason, retry_after } => Self {
                retry_after: Some(retry_after),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &*reason)
            },
        }
    }

    /// A request that breaks a rule of its form.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }
}

impl<'a> FormRequest<'a> {
    /// Reads a query, or a form.
    pub(super) fn new(identity: &'a IdentityTokens, encoded: &[u8]) -> Result<Self, FormError> {
        let mut parameters = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(encoded) {
            // Of two values, the one that is checked might not be the one that is used.
            if parameters.insert(name.to_ascii_lowercase(), value.into_owned()).is_some() {
                return Err(FormError::invalid("a parameter is given twice"));
            }
        }
        Ok(Self { identity, parameters })
    }

    /// Returns a parameter that is not empty.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the token for the resource that the query names.
    pub(super) fn find_token(&self) -> Result<FoundToken<'a>, FormError> {
        let requested =
            self.parameter("resource").ok_or_else(|| FormError::invalid("the query parameter resource is missing"))?;
        self.find_token_for(requested)
    }

    /// Returns the token for a resource.
    pub(super) fn find_token_for(&self, requested: &str) -> Result<FoundToken<'a>, FormError> {
        let not_listed = || {
            let shown: String = requested.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
            let name = self.identity.name();
            format!("the resource {shown} is not listed: add it to resources of [identity.{name}]")
        };
        let found = self.identity.find(requested);
        let (resource, token) = found.map_err(|reason| FormError::without_token(reason, not_listed))?;
        let end = token.expires.map_or(SystemTime::UNIX_EPOCH, |expires| expires.wall);
        let expires_on = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Ok(FoundToken { resource, token, expires_on })
    }

    /// Returns the identity's role of AWS, and its credentials.
    pub(super) fn find_role(&self) -> Result<(&'a str, Arc<RoleCredentials>), FormError> {
        let not_listed = || {
            let name = self.identity.name();
            format!("the identity has no role of AWS: write [identity.{name}.aws_role]")
        };
        self.identity.find_role().map_err(|reason| FormError::without_token(reason, not_listed))
    }
}

/// Longest part of a resource's name in a message, in characters.
const MAX_SHOWN: usize = 200;
