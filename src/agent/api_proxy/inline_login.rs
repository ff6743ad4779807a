//! Logins that a request to OpenBao carries in its headers. The server logs in by them, and uses the token for that request only.

use http::{HeaderMap, HeaderValue};

use super::namespace;
use super::path::ApiPath;
use super::rules::Operation;

/// The login of a request, as the server sends it to itself.
#[derive(Debug)]
pub(super) struct InlineLogin<'a> {
    pub(super) operation: Operation,
    pub(super) path: ApiPath<'static>,
    /// Its namespace; `None` for that of the request.
    pub(super) namespace: Option<&'a str>,
}

impl<'a> InlineLogin<'a> {
    /// Reads the login; `None` if it has no path, or if programs may differ in how they read it.
    pub(super) fn parse(headers: &'a HeaderMap) -> Option<Self> {
        let path = single(headers, "x-vault-inline-auth-path").ok()??.to_str().ok()?;
        let operation = match single(headers, "x-vault-inline-auth-operation").ok()?.map(HeaderValue::as_bytes) {
            None | Some(b"update" | b"create") => Operation::POST,
            Some(b"read") => Operation::GET,
            Some(_) => return None,
        };
        let named = single(headers, "x-vault-inline-auth-namespace").ok()?;
        let namespace = named.map(|value| namespace::parse(value.as_bytes())).transpose().ok()?;
        // The server takes the path as it is written.
        if path.contains('%') {
            return None;
        }
        let path = ApiPath::parse(&format!("/v1/{path}")).ok()?.into_owned();
        Some(Self { operation, path, namespace })
    }
}

/// A header that may stand once is repeated.
struct RepeatedHeader;

/// Returns the only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, RepeatedHeader> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { Err(RepeatedHeader) } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_login_in_headers_is_read_as_the_server_reads_it() {
        let read = |given: &[(&str, &str)]| {
            let headers: HeaderMap = given
                .iter()
                .map(|(name, value)| {
                    (format!("x-vault-inline-auth-{name}").parse::<HeaderName>().unwrap(), value.parse().unwrap())
                })
                .fold(HeaderMap::new(), |mut headers, (name, value): (HeaderName, HeaderValue)| {
                    headers.append(name, value);
                    headers
                });
            InlineLogin::parse(&headers)
                .map(|login| (login.operation, login.path.as_str().to_owned(), login.namespace.map(str::to_owned)))
        };
        let path = ("path", "auth/jwt/login");
        assert_eq!(read(&[path]), Some((Operation::POST, "auth/jwt/login".to_owned(), None)));
        let namespaced = [path, ("operation", "read"), ("namespace", "/team/")];
        assert_eq!(read(&namespaced), Some((Operation::GET, "auth/jwt/login".to_owned(), Some("team".to_owned()))));
        for wrong in [
            &[][..],
            &[path, path],
            &[("path", "auth/jwt/%6cogin")],
            &[("path", "/auth/jwt/login")],
            &[("path", "auth/../jwt/login")],
            &[path, ("operation", "list")],
            &[path, ("namespace", "a"), ("namespace", "b")],
            &[path, ("namespace", "a//b")],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
