//! Entry point of the fuzz target `login`.

use http::{HeaderMap, StatusCode};
use keyward_http::client::ClientResponse;
use keyward_machine::secret_string::SecretString;

use super::{CallError, LoginResponse, consul_login, parse_response};

/// Kind of a response.
#[derive(Debug, Clone, Copy)]
pub enum ResponseKind {
    /// To a login by Vault's API.
    Login,
    /// To a login whose token is wrapped.
    WrappedLogin,
    /// To a login by Consul's API.
    ConsulLogin,
    /// To the look-up of a token.
    Lookup,
    /// To a renewal.
    Renewal,
}

/// Parses a response to a call that sent the credential `sent`; returns the token of a login.
pub fn parse(
    kind: ResponseKind,
    status: StatusCode,
    body: &[u8],
    sent: &SecretString,
) -> Result<Option<LoginResponse>, CallError> {
    let headers = HeaderMap::new();
    let body = body.to_vec();
    let response = ClientResponse { status, headers, body };
    if matches!(kind, ResponseKind::ConsulLogin) {
        return consul_login::parse_login(&response, sent).map(Some);
    }
    let mut json = parse_response::parse_json(&response, sent)?;
    match kind {
        ResponseKind::Login => parse_response::login(&mut json, false).map(|(login, _)| Some(login)),
        ResponseKind::WrappedLogin => parse_response::login(&mut json, true).map(|(login, _)| Some(login)),
        ResponseKind::Lookup | ResponseKind::ConsulLogin => parse_response::lookup(&json).map(|_| None),
        ResponseKind::Renewal => parse_response::renewal(&json).map(|_| None),
    }
}
