//! The current tokens of an identity, as tools read them.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, CredentialState, CredentialWatch};
use keyward_machine::clock::{Clock, ClockReading};

use super::{resource, schedule};
use crate::identity::AwsCredentials;
use crate::token::{Token, TokenWatch};

/// Tokens of one identity by resource. Clones share them.
#[derive(Debug, Clone)]
pub struct IdentityTokens {
    name: Arc<str>,
    clock: Clock,
    resources: Arc<[(String, TokenWatch)]>,
    /// Role of AWS, and its credentials.
    role: Option<(String, CredentialWatch<RoleCredentials>)>,
}

/// Credentials of a role of AWS.
#[derive(Debug)]
pub(crate) struct RoleCredentials {
    pub(crate) credentials: AwsCredentials,
    pub(crate) obtained: ClockReading,
    pub(crate) expires: ClockReading,
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
        Self { name: name.into(), clock, resources: resources.into(), role: None }
    }

    pub(super) fn with_role(self, role: Option<(String, CredentialWatch<RoleCredentials>)>) -> Self {
        Self { role, ..self }
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
        let token = watch.read(|state| self.served(state, |token| Some((token.obtained, token.expires?))))?;
        Ok((resource, token))
    }

    /// Returns the seconds until the end of a token.
    pub(crate) fn seconds_left(&self, token: &Token) -> u64 {
        token.expires.map_or(0, |expires| self.clock.now().until(expires).as_secs())
    }

    /// Returns the role of AWS, and its credentials, which are valid for longer than it takes to use them.
    ///
    /// # Errors
    /// The identity has no role, or there are no credentials.
    pub(crate) fn find_role(&self) -> Result<(&str, Arc<RoleCredentials>), NoIdentityToken> {
        let (role, watch) = self.role.as_ref().ok_or(NoIdentityToken::NotListed)?;
        let credentials = watch.read(|state| self.served(state, |found| Some((found.obtained, found.expires))))?;
        Ok((role, credentials))
    }

    /// Returns what is published, unless its end is near; `times` are those when it was obtained and at which it ends.
    fn served<P>(
        &self,
        state: &CredentialState<P>,
        times: impl Fn(&P) -> Option<(ClockReading, ClockReading)>,
    ) -> Result<Arc<P>, NoIdentityToken> {
        match &state.availability {
            Availability::Available(found) => {
                let end = times(found).map(|(obtained, expires)| schedule::end_of_serving(obtained, expires));
                if end.is_none_or(|end| !self.clock.has_reached(end)) {
                    return Ok(Arc::clone(found));
                }
                Err(NoIdentityToken::Unavailable {
                    reason: "the token has expired, and could not be replaced".into(),
                    retry_after: Duration::from_secs(1),
                })
            }
            Availability::Unavailable { reason, retry_after } => Err(NoIdentityToken::Unavailable {
                reason: Arc::clone(reason),
                retry_after: state.remaining_wait(*retry_after, self.clock.now()),
            }),
        }
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
}
