//! Entry point of the fuzz target `certificates`.

use super::pem;

/// Counts the certificates of a PEM text.
pub fn count_certificates(text: &[u8]) -> Result<usize, String> {
    pem::parse_certificates(text, "ca.pem").map(|certificates| certificates.len()).map_err(|error| error.to_string())
}
