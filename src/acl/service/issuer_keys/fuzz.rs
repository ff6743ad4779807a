//! Entry points of the fuzz targets `jwks` and `certificates`.

use super::documents::{JwkSet, parse_object};
use super::fixed;

/// Counts the signature keys of a JWK set; `None` if it is none.
pub fn count_jwks(document: &[u8]) -> Option<usize> {
    parse_object::<JwkSet>(document).map(|set| set.signing_keys().len())
}

/// Counts the public keys of a PEM text; `None` if one is not supported.
pub fn count_pem_keys(text: &str) -> Option<usize> {
    fixed::pem_keys(text).map(|keys| keys.len()).ok()
}
