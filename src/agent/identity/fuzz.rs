//! Entry points of the fuzz targets `azure` and `certificates`.

use http::{HeaderMap, StatusCode};
use keyward_machine::secret_string::SecretString;

use super::client_certificate::Signer;
use super::token_response;

/// Parses a token response of Azure; errors as an operator reads them.
pub fn parse_token(body: &[u8], secrets: &[SecretString]) -> Result<SecretString, String> {
    token_response::parse_token(body, secrets).map_err(|error| error.to_string())
}

/// Parses an error response of Azure into the message that an operator reads.
pub fn parse_error(status: StatusCode, body: &[u8], secrets: &[SecretString]) -> String {
    token_response::parse_error(status, &HeaderMap::new(), body, secrets).to_string()
}

/// Parses a certificate with its key, in PEM or PKCS#12.
pub fn certificate_and_key(content: &[u8], password: &str) -> Result<(), &'static str> {
    Signer::parse(content, password).map(drop)
}
