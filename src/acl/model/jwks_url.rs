//! URLs of issuers: whoever controls the response can forge logins.

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
    if url.query().is_some() { Err(JwksUrlError::NotBare) } else { require_secure(url) }
}

/// Error of a URL of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointUrlError {
    /// The parts that it shares with key URLs.
    #[error("is not a URL")]
    Malformed,
    /// It has a user or a fragment.
    #[error("must not contain a user or a fragment")]
    NotBare,
    /// Plain HTTP to another host, or another scheme.
    #[error("must be https, or http on loopback")]
    Insecure,
}

/// Parses the URL of an endpoint: like [`parse_jwks_url`], and it may have a query (RFC 6749, 3.1 and 3.2).
pub(crate) fn parse_endpoint_url(text: &str) -> Result<Url, EndpointUrlError> {
    let url = Url::parse(text).map_err(|_| EndpointUrlError::Malformed)?;
    require_secure(url).map_err(|error| match error {
        JwksUrlError::Malformed => EndpointUrlError::Malformed,
        JwksUrlError::NotBare => EndpointUrlError::NotBare,
        JwksUrlError::Insecure => EndpointUrlError::Insecure,
    })
}

fn require_secure(url: Url) -> Result<Url, JwksUrlError> {
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
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

    #[test]
    fn the_url_of_an_endpoint_may_have_a_query() {
        for url in ["https://issuer.example/token?p=people", "http://localhost:80/x", "https://issuer.example/o/token/"]
        {
            assert_eq!(parse_endpoint_url(url).map(String::from), Ok(url.replace(":80/", "/")), "{url}");
        }
        let check = |url: &str, expected| assert_eq!(parse_endpoint_url(url), Err(expected), "{url}");
        check("/token", EndpointUrlError::Malformed);
        check("https://user@issuer.example/", EndpointUrlError::NotBare);
        check("https://issuer.example/#x", EndpointUrlError::NotBare);
        check("http://issuer.example/?p=people", EndpointUrlError::Insecure);
        check("javascript:alert(1)", EndpointUrlError::Insecure);
    }
}
