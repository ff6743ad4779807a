//! Where an issuer's keys may be fetched: who can change what is answered there can make every login.

use url::Url;

use crate::http::client::is_loopback;

/// Why keys are not fetched from a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysUrlError {
    /// It is none.
    #[error("is no URL")]
    NoUrl,
    /// It has a part that may hold a secret, and would be written to logs.
    #[error("holds a user, a query or a fragment")]
    NotBare,
    /// Plain HTTP to another machine, or another scheme.
    #[error("could be answered by anyone on the way: it must be https, or http on loopback")]
    Plain,
}

/// Reads such a URL: `https`, or `http` on loopback, with no user, query and fragment.
///
/// # Errors
/// It is no such URL.
pub fn keys_url(text: &str) -> Result<Url, KeysUrlError> {
    let url = Url::parse(text).map_err(|_| KeysUrlError::NoUrl)?;
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        return Err(KeysUrlError::NotBare);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(KeysUrlError::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        for url in ["https://issuer.example/keys", "http://127.0.0.1:80/x", "http://[::1]/", "http://localhost:8080"] {
            assert!(keys_url(url).is_ok(), "{url}");
        }
        let check = |url: &str, wanted: KeysUrlError| assert_eq!(keys_url(url), Err(wanted), "{url}");
        check("issuer.example", KeysUrlError::NoUrl);
        check("https://", KeysUrlError::NoUrl);
        check("https://user@issuer.example/", KeysUrlError::NotBare);
        check("https://:secret@issuer.example/", KeysUrlError::NotBare);
        check("https://issuer.example/?sig=secret", KeysUrlError::NotBare);
        check("https://issuer.example/#x", KeysUrlError::NotBare);
        check("http://issuer.example/", KeysUrlError::Plain);
        check("http://169.254.169.254/", KeysUrlError::Plain);
        check("http://127.0.0.1.example/", KeysUrlError::Plain);
        check("file:///etc/passwd", KeysUrlError::Plain);
        check("ftp://127.0.0.1/", KeysUrlError::Plain);
    }
}
