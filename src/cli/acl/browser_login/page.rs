//! Pages that the browser shows at the end of a login.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    /// The login is done.
    LoggedIn,
    /// The login failed for this reason.
    Failed(String),
    /// The request is not the answer of this login.
    Stranger,
    /// Another user of this machine asks.
    OtherUser,
    /// The login was answered before.
    Answered,
    /// There is no such page.
    Missing,
}

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    // The address of the page has the code.
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

impl Page {
    pub(super) fn to_response(&self) -> Response<Full<Bytes>> {
        let (status, title, text) = match self {
            Self::LoggedIn => (StatusCode::OK, "Logged in", "You are logged in. You can close this tab."),
            Self::Failed(reason) => (StatusCode::OK, "Login failed", reason.as_str()),
            Self::Stranger => {
                let text =
                    "This is not the answer of the login that keyward waits for. Use the address that it printed.";
                (StatusCode::BAD_REQUEST, "Not this login", text)
            }
            Self::OtherUser => {
                let text = "This login is of another user of this machine, or the one who asks cannot be told.";
                (StatusCode::FORBIDDEN, "Not your login", text)
            }
            Self::Answered => {
                (StatusCode::CONFLICT, "Answered", "This login was answered before. You can close this tab.")
            }
            Self::Missing => (StatusCode::NOT_FOUND, "Not found", "There is no such page."),
        };
        let end = if matches!(self, Self::Failed(_)) { "<p>You can close this tab.</p>" } else { "" };
        let text = escape(text);
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>keyward: {title}</title></head>\n\
             <body><h1>{title}</h1><p>{text}</p>{end}</body></html>\n"
        );
        let mut response = Response::new(Full::new(Bytes::from(html)));
        *response.status_mut() = status;
        response.headers_mut().extend(headers());
        response
    }
}

/// Leads the browser to the page of the provider.
pub(super) fn redirect(to: &HeaderValue) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().extend(headers());
    response.headers_mut().insert(header::LOCATION, to.clone());
    response
}

fn headers() -> [(HeaderName, HeaderValue); 5] {
    HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)))
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_are_no_markup() {
        assert_eq!(escape("<b a='\"&'>é"), "&lt;b a=&#39;&quot;&amp;&#39;&gt;é");
        let response = Page::Failed("<script>".to_owned()).to_response();
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], "default-src 'none'; frame-ancestors 'none'");
        assert_eq!(Page::Stranger.to_response().status(), 400);
    }
}
