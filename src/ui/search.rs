//! The search in everything: asks each part for what the browser may see of it, and for nothing else.

use http::StatusCode;
use keyward_http::in_process::InProcessService;
use keyward_machine::secret_string::SecretString;
use maud::{Markup, html};
use serde_json::Value;

use super::page_request::PageRequest;
use super::pages::acl::{self, AclKind};
use super::pages::history::{self, ChangesPage};
use super::pages::search::{self, HitGroup};
use super::pages::sign_in::SignIn;
use super::request::{self, SourceError};
use super::response::{PageResponse, html as respond_html};
use super::sources::Deps;

/// A search of a browser that has signed in.
pub(super) struct Search<'a> {
    pub(super) deps: &'a Deps,
    pub(super) request: &'a PageRequest,
}

impl Search<'_> {
    pub(super) async fn respond(&self) -> PageResponse {
        let text = self.request.query.get("q");
        let mut groups = Vec::new();
        let mut remarks = Vec::new();
        if !text.is_empty() {
            groups.push(search::find_codes(text));
            self.find_with_key(text, &mut groups, &mut remarks);
            self.find_with_token(text, &mut groups, &mut remarks).await;
            self.find_changes(text, &mut groups, &mut remarks).await;
        }
        respond_html(StatusCode::OK, search::page(self.request.frame, text, &groups, &remarks))
    }

    /// Finds sessions and components.
    fn find_with_key(&self, text: &str, groups: &mut Vec<HitGroup>, remarks: &mut Vec<Markup>) {
        if !self.request.rights.has_key {
            remarks.push(self.sign_in("Sessions, components and the API history", SignIn::Key, "the listener's key"));
            return;
        }
        groups.push(search::find_in_status(&self.deps.agent.read(), self.deps.clock.now().wall, text));
    }

    /// Finds changes of the API history, for browsers with the key.
    async fn find_changes(&self, text: &str, groups: &mut Vec<HitGroup>, remarks: &mut Vec<Markup>) {
        let Some(gateway) = self.deps.sources.gateway().filter(|_| self.request.rights.has_key) else { return };
        let path = format!("/v1/platform/changes?{}", history::search_query(text));
        match request::get::<ChangesPage>(&gateway, &path, None).await {
            Ok(changes) => groups.push(changes.to_hits(text)),
            Err(error) => remarks.push(html! { "The API history was not searched: " (error.message) }),
        }
    }

    /// Finds ACL records that the browser's token may read.
    async fn find_with_token(&self, text: &str, groups: &mut Vec<HitGroup>, remarks: &mut Vec<Markup>) {
        let Some(service) = self.deps.sources.acl() else { return };
        let Some(token) = &self.request.rights.acl_token else {
            remarks.push(self.sign_in("The ACL server", SignIn::AclToken, "an ACL token"));
            return;
        };
        for kind in AclKind::ALL {
            let mut records = match list(&service, token, kind).await {
                Ok(records) => records,
                Err(error) => {
                    let kinds = kind.title().to_lowercase();
                    remarks.push(html! { "The ACL server does not list " (kinds) " for your token: " (error.message) });
                    Vec::new()
                }
            };
            // A token may always read itself.
            if kind == AclKind::Token
                && let Ok(own) = request::get::<Value>(&service, "/v1/acl/token/self", Some(token)).await
                && records.iter().all(|record| record[kind.id_field()] != own[kind.id_field()])
            {
                records.push(own);
            }
            groups.push(acl::find(kind, &records, text));
        }
    }

    /// Says what is not searched, and leads to the page that asks for its secret, and back.
    fn sign_in(&self, parts: &str, method: SignIn, secret: &str) -> Markup {
        html! { (parts) ": " a href=(self.request.sign_in_link(method)) { "sign in" } " with " (secret) " to search there." }
    }
}

/// Lists the records of all namespaces; of the token's own where it sees none of all.
async fn list(service: &InProcessService, token: &SecretString, kind: AclKind) -> Result<Vec<Value>, SourceError> {
    match request::get::<Vec<Value>>(service, &kind.api_list("*"), Some(token)).await {
        Ok(records) if !records.is_empty() => Ok(records),
        _ => request::get(service, &kind.api_list(""), Some(token)).await,
    }
}
