//! Login of a person by `OpenID` Connect: authorization code flow (`OpenID` Connect Core 1.0, 3.1) of a public client, with PKCE
//! (RFC 7636).

mod error;
mod endpoints;
mod login_attempt;
mod settings;

pub(crate) use endpoints::{DiscoveredEndpoints, ProviderEndpoints};
pub(crate) use error::OidcError;
pub(crate) use login_attempt::LoginAttempt;
pub(crate) use settings::{IdTokenError, OidcSettings};
