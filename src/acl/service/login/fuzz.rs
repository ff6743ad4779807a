//! Entry point of the fuzz target `bearer`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::Value;

use super::signature;
use crate::model::auth_method::Algorithm;
use crate::service::issuer_keys::{self, IssuerKeys};

/// Verifies an identity token with a JWK set; `None` if the text is not one. Returns the claims.
pub fn verify(jwks: &[u8], jwt: &str, allowed: &[&str], must_name_key: bool) -> Option<Result<Value, String>> {
    let allowed: Vec<_> = allowed.iter().filter_map(|name| Algorithm::parse(name)).collect();
    verify_with(&issuer_keys::fuzz::from_jwks(jwks)?, jwt, &allowed, must_name_key)
}

/// Verifies an identity token with the public keys of a PEM text; `None` if it has none.
pub fn verify_by_pem(pem: &str, jwt: &str, allowed: &[&str]) -> Option<Result<Value, String>> {
    let allowed: Vec<_> = allowed.iter().filter_map(|name| Algorithm::parse(name)).collect();
    let keys = IssuerKeys::fixed(issuer_keys::pem_keys(pem).ok()?);
    verify_with(&keys, jwt, &allowed, false)
}

/// The keys are already loaded, so the future never waits.
fn verify_with(
    keys: &IssuerKeys,
    jwt: &str,
    allowed: &[Algorithm],
    must_name_key: bool,
) -> Option<Result<Value, String>> {
    let jwt = jwt.into();
    let claims = pin!(signature::signed_claims::<Value>(&jwt, keys, allowed, must_name_key));
    match claims.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(claims) => Some(claims.map_err(|error| error.to_string())),
        Poll::Pending => None,
    }
}
