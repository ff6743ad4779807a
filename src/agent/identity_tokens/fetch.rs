//! Fetches a token of the machine's identity, or the credentials of a role by it.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use keyward_machine::clock::Clock;

use super::resource;
use crate::identity::{
    AwsCredentials, AwsRoleExchange, AwsRoleOptions, IdentityError, IdentityErrorKind, IdentityProof, IdentitySource,
    IdentityTokenOrigin, SignedToken,
};
use crate::token::ClientToken;

/// A way to something with an end.
#[async_trait]
pub(super) trait Fetch: Send + Sync + 'static {
    /// Value that is fetched.
    type Value: Send + Sync + 'static;

    /// Fetches it, with retries of temporary failures. It has not ended.
    async fn fetch(&self) -> Result<Fetched<Self::Value>, IdentityError>;
}

/// A value that was fetched, and its end by the wall clock.
#[derive(Debug)]
pub(super) struct Fetched<V> {
    pub(super) value: V,
    pub(super) exp: SystemTime,
}

/// Fetches the token for a resource.
#[derive(Debug)]
pub(super) struct TokenFetch {
    source: Box<dyn IdentitySource>,
    resource: String,
    clock: Clock,
}

impl TokenFetch {
    /// Creates it without any request.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete.
    pub(super) fn build(origin: &IdentityTokenOrigin, resource: &str, clock: Clock) -> Result<Self, IdentityError> {
        Ok(Self::new(origin.build(resource, clock.clone())?, resource, clock))
    }

    pub(super) fn new(source: Box<dyn IdentitySource>, resource: &str, clock: Clock) -> Self {
        Self { source, resource: resource.to_owned(), clock }
    }

    /// Checks a token that was obtained.
    fn accept(&self, proof: IdentityProof) -> Result<Fetched<ClientToken>, IdentityError> {
        let IdentityProof::Signed(signed) = proof else { return Err(invalid("gives no signed token".to_owned())) };
        let SignedToken { jwt, claims, audience, .. } = *signed;
        let claims = claims.ok_or_else(|| invalid("gives a token that cannot be decoded".to_owned()))?;
        let exp = claims.exp.ok_or_else(|| invalid("gives a token without an end (exp)".to_owned()))?;
        // A token from a file is for whom it was made.
        if audience.is_none() && !claims.aud.iter().any(|aud| resource::is_same(aud, &self.resource)) {
            let found = claims.aud.join(", ").escape_debug().take(200).collect::<String>();
            return Err(invalid(format!("gives a token for another audience: {found}")));
        }
        let value =
            ClientToken::parse(jwt).ok_or_else(|| invalid("gives a token of more than 4096 bytes".to_owned()))?;
        check_end(exp, &self.clock)?;
        Ok(Fetched { value, exp })
    }
}

#[async_trait]
impl Fetch for TokenFetch {
    type Value = ClientToken;

    async fn fetch(&self) -> Result<Fetched<ClientToken>, IdentityError> {
        self.accept(self.source.prove().await?)
    }
}

/// Gets a token for a resource once, without retries, for a check: what the keeper would refuse is an error here too. Returns its end.
///
/// # Errors
/// There is no token that tools could use.
pub async fn try_token(
    origin: &IdentityTokenOrigin,
    resource: &str,
    clock: Clock,
) -> Result<SystemTime, IdentityError> {
    let fetch = TokenFetch::new(origin.build_once(resource, clock.clone())?, resource, clock);
    Ok(fetch.fetch().await?.exp)
}

/// Fetches the credentials of a role of AWS, for a token of the machine.
#[derive(Debug)]
pub(super) struct RoleFetch {
    token: TokenFetch,
    exchange: AwsRoleExchange,
    clock: Clock,
}

impl RoleFetch {
    pub(super) fn new(token: TokenFetch, role: AwsRoleOptions, clock: Clock) -> Self {
        Self { token, exchange: AwsRoleExchange::new(role, clock.clone()), clock }
    }
}

#[async_trait]
impl Fetch for RoleFetch {
    type Value = AwsCredentials;

    async fn fetch(&self) -> Result<Fetched<AwsCredentials>, IdentityError> {
        let token = self.token.fetch().await?.value;
        let value = self.exchange.exchange(token.secret()).await?;
        let exp = value.expires.ok_or_else(|| invalid("gives credentials without an end".to_owned()))?;
        check_end(exp, &self.clock)?;
        Ok(Fetched { value, exp })
    }
}

fn check_end(exp: SystemTime, clock: &Clock) -> Result<(), IdentityError> {
    if exp.duration_since(clock.now().wall).unwrap_or(Duration::ZERO).is_zero() {
        return Err(IdentityError {
            kind: IdentityErrorKind::NotReady,
            hint: Some("the source gave an old token again, or this machine's clock is ahead"),
            ..invalid("gives a token that has expired".to_owned())
        });
    }
    Ok(())
}

pub(super) fn invalid(message: String) -> IdentityError {
    IdentityError {
        kind: IdentityErrorKind::Config,
        source_name: "identity token",
        message,
        hint: None,
        retry_after: None,
    }
}
