//! URLs of issuer keys: whoever controls the response can forge logins.

use url::Url;

use keyward_http::client::is_loopback;

/// Error of a key URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwksUrlError {
    /// Not a URL.
    #[error("is not a URL")]
    Malformed,
    /// It has a user, query or fragment, which may contain a secret and would be logged.
    #[error("must not contain a user, a query or a fragment")]
    NotBare,
    /// Plain HTTP to another host, or another scheme.
    #[error("must be https, or http on loopback")]
    Insecure,
}

/// Parses a key URL: `https`, or `http` on loopback, without user, query and fragment.
pub fn parse_jwks_url(text: &str) -> Result<Url, JwksUrlError> {
    let url = Url::parse(text).map_err(|_| JwksUrlError::Malformed)?;
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        return Err(JwksUrlError::NotBare);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(JwksUrlError::Insecure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_urls_are_https_or_loopback() {
        for url in ["https://issuer.example/keys", "http://127.0.0.1:80/x", "http://[::1]/", "http://localhost:8080"] {
            assert!(parse_jwks_url(url).is_ok(), "{url}");
        }
        let check = |url: &str, expected: JwksUrlError| assert_eq!(parse_jwks_url(url), Err(expected), "{url}");
        check("issuer.example", JwksUrlError::Malformed);
        check("https://", JwksUrlError::Malformed);
        check("https://user@issuer.example/", JwksUrlError::NotBare);
        check("https://:secret@issuer.example/", JwksUrlError::NotBare);
        check("https://issuer.example/?sig=secret", JwksUrlError::NotBare);
        check("https://issuer.example/#x", JwksUrlError::NotBare);
        check("http://issuer.example/", JwksUrlError::Insecure);
        check("http://169.254.169.254/", JwksUrlError::Insecure);
        check("http://127.0.0.1.example/", JwksUrlError::Insecure);
        check("file:///etc/passwd", JwksUrlError::Insecure);
        check("ftp://127.0.0.1/", JwksUrlError::Insecure);
    }
}
