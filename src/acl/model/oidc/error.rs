//! Errors of a login by OIDC.

/// Least length of a client's nonce in bytes. Whoever intercepts the redirect could guess a short one.
pub(super) const MIN_CLIENT_NONCE: usize = 16;
/// Greatest length of a client's nonce in bytes.
pub(super) const MAX_CLIENT_NONCE: usize = 256;

/// Reason why a login by OIDC does not begin or end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OidcError {
    /// The auth method verifies bearer tokens.
    #[error("the auth method is not of the type \"oidc\": send its proof of identity to /v1/acl/login")]
    NotOidc,
    /// The auth method logs in with a browser, and the request has a bearer token.
    #[error(
        "the auth method is of the type \"oidc\", which takes no bearer token: run `keyward acl login --oidc`, or call \
         /v1/acl/oidc/auth-url"
    )]
    NotBearer,
    /// The redirect URI is not listed.
    #[error("RedirectURI {0:?} is not in AllowedRedirectURIs of the auth method: add it there and at the provider")]
    RedirectUri(String),
    /// The client nonce is too short or too long.
    #[error("ClientNonce must have {MIN_CLIENT_NONCE} to {MAX_CLIENT_NONCE} random characters, new for each login")]
    ClientNonce,
    /// The metadata does not fit into a URL.
    #[error("Meta is larger than {0} bytes: it travels in the URL of the login")]
    Meta(usize),
    /// The state does not decrypt for this method.
    #[error("State is not of a login by this server and this auth method, or was altered: start the login again")]
    State,
    /// The login was begun too long ago.
    #[error("the login was not finished within 5 minutes: start it again")]
    TooLate,
    /// The client that finishes the login is not the one that began it.
    #[error("ClientNonce is not the one that the login began with: start the login again")]
    OtherClient,
    /// The discovery document cannot be fetched, or names no usable endpoint.
    #[error("the discovery document of the provider cannot be used: {0}")]
    Discovery(String),
    /// The token endpoint gives no usable answer.
    #[error("the token endpoint of the provider cannot be used: {0}")]
    TokenEndpoint(String),
    /// The token endpoint refuses the code.
    #[error("the provider refused the code: {0}")]
    CodeRefused(String),
    /// The ID token lacks a claim that it must have.
    #[error("the ID token has no usable claim {0:?}")]
    MissingClaim(&'static str),
    /// The ID token was made for another login.
    #[error("the nonce of the ID token is not the one of this login")]
    Nonce,
    /// The ID token was issued to another client.
    #[error("the ID token was issued to another client (azp)")]
    AuthorizedParty,
}
