//! The current tokens of an identity, as tools read them.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::Clock;

use super::{resource, schedule};
use crate::token::{Token, TokenWatch};

/// Tokens of one identity by resource. Clones share them.
#[derive(Debug, Clone)]
pub struct IdentityTokens {
    name: Arc<str>,
    clock: Clock,
    resources: Arc<[(String, TokenWatch)]>,
}

/// Reason why there is no token for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoIdentityToken {
    /// The resource is not listed.
    NotListed,
    /// There is no token now, for this reason, which holds no secret.
    Unavailable {
        /// The reason.
        reason: Arc<str>,
        /// Time after which to ask again.
        retry_after: Duration,
    },
}

impl IdentityTokens {
    pub(super) fn new(name: &str, clock: Clock, resources: Vec<(String, TokenWatch)>) -> Self {
        Self { name: name.into(), clock, resources: resources.into() }
    }

    /// Name of the identity.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the resource as it is listed, and its token, which is valid for longer than it takes to use it.
    ///
    /// # Errors
    /// The resource is not listed, or there is no token for it.
    pub fn find(&self, requested: &str) -> Result<(&str, Arc<Token>), NoIdentityToken> {
        let listed = self.resources.iter().map(|(resource, _)| resource.as_str());
        let (resource, watch) = resource::find(listed, requested)
            .and_then(|at| self.resources.get(at))
            .ok_or(NoIdentityToken::NotListed)?;
        watch.read(|state| match &state.availability {
            Availability::Available(token) if self.is_served(token) => Ok((resource.as_str(), Arc::clone(token))),
            Availability::Available(_) => Err(NoIdentityToken::Unavailable {
                reason: "the token has expired, and could not be replaced".into(),
                retry_after: Duration::from_secs(1),
            }),
            Availability::Unavailable { reason, retry_after } => Err(NoIdentityToken::Unavailable {
                reason: Arc::clone(reason),
                retry_after: state.remaining_wait(*retry_after, self.clock.now()),
            }),
        })
    }

    /// Returns the watch on the token for a listed resource.
    pub fn watch(&self, requested: &str) -> Option<&TokenWatch> {
        let listed = self.resources.iter().map(|(resource, _)| resource.as_str());
        resource::find(listed, requested).and_then(|at| self.resources.get(at)).map(|(_, watch)| watch)
    }

    /// Listed resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(|(resource, _)| resource.as_str())
    }

    fn is_served(&self, token: &Token) -> bool {
        let end = token.expires.map(|expires| schedule::end_of_serving(token.obtained, expires));
        end.is_none_or(|end| !self.clock.has_reached(end))
    }
}
