//! A request for a page, with the rights of its browser.

use http::{HeaderMap, Method, StatusCode};

use super::browser_session::BrowserRights;
use super::form::Fields;
use super::pages::agent::LIVE;
use super::pages::sign_in::SignIn;
use super::pages::{Frame, error_page};
use super::response::{PageResponse, html};

/// A request that passed the guard, with the rights of its browser.
pub(super) struct PageRequest {
    pub(super) method: Method,
    pub(super) path: String,
    /// Path and query.
    pub(super) target: String,
    pub(super) query: Fields,
    pub(super) headers: HeaderMap,
    /// User of this machine, if known.
    pub(super) user: Option<u32>,
    pub(super) rights: BrowserRights,
    pub(super) frame: Frame,
}

impl PageRequest {
    /// Path of the page that asks for a secret, and leads back here.
    pub(super) fn sign_in_link(&self, method: SignIn) -> String {
        let next = if self.path == LIVE { "/agent" } else { self.target.as_str() };
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        format!("{}?{query}", method.path())
    }

    /// Builds the page for an error.
    pub(super) fn error(&self, status: StatusCode, message: &str) -> PageResponse {
        html(status, error_page(self.frame, status.canonical_reason().unwrap_or("Error"), message))
    }
}
