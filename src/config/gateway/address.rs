//! Addresses of the platform.

use keyward_http::client::is_loopback;
use url::Url;

use crate::values::{self, ValueError, invalid, invalid_secret};

/// The platform's address: `https://HOST`, or `http://` on loopback.
pub(super) fn upstream(text: &str) -> Result<Url, ValueError> {
    let form = "write \"https://HOST\", and nothing behind the host and port";
    let url = match Url::parse(text) {
        Ok(url) if text.contains("://") && url.has_host() => url,
        _ if text.contains('@') => return invalid_secret("is not an address", form),
        _ => return invalid("is not an address", values::host_advice(text, form)),
    };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return invalid_secret("contains a user, a query or a fragment", form);
    }
    if url.path() != "/" {
        return invalid("has a path", "leave it off: the platform serves its API at the root");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => invalid("would send tokens unencrypted", "use https://; http:// is for loopback only"),
        _ => invalid("is not an address", form),
    }
}

/// Another address of the platform, by which its links may begin. The gateway calls no address for it, so that plain
/// `http://` is no danger.
pub(super) fn alias(text: &str) -> Result<Url, ValueError> {
    let form = "write \"https://HOST\", and nothing behind the host and port";
    let origin = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match origin {
        Some(url) if url.as_str() == format!("{}/", url.origin().ascii_serialization()) => Ok(url),
        _ if text.contains('@') => invalid_secret("is not an address", form),
        _ => invalid("is not an address", values::host_advice(text, form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_an_origin_that_is_spoken_to_in_secret() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = upstream(text).map(String::from);
            assert_eq!(found.as_deref().map_err(|error| error.message.as_str()), expected, "{text}");
        };
        check("https://app.terraform.io", Ok("https://app.terraform.io/"));
        check("https://TFE.example.com:8443/", Ok("https://tfe.example.com:8443/"));
        check("http://127.0.0.1:8080", Ok("http://127.0.0.1:8080/"));
        check("http://tfe.example.com", Err("would send tokens unencrypted"));
        check("https://tfe.example.com/api/v2", Err("has a path"));
        check("https://me:hush@tfe.example.com", Err("contains a user, a query or a fragment"));
        check("https://tfe.example.com/?a", Err("contains a user, a query or a fragment"));
        check("tfe.example.com", Err("is not an address"));
        check("unix:///run/a.sock", Err("is not an address"));
    }

    #[test]
    fn another_name_of_the_platform_is_an_origin() {
        for (text, expected) in [
            ("https://TFE.internal", Some("https://tfe.internal/")),
            ("http://tfe.internal:8080/", Some("http://tfe.internal:8080/")),
            ("tfe.internal", None),
            ("https://tfe.internal/api/v2", None),
            ("https://me:hush@tfe.internal", None),
            ("ftp://tfe.internal", None),
        ] {
            assert_eq!(alias(text).ok().as_ref().map(Url::as_str), expected, "{text}");
        }
    }
}
