//! Merges the pages of a list into one document.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use url::Url;

use super::ApiCall;
use crate::api_changelog::{Change, Changelog, GatewayAction, Route};

/// Largest page size of the platform.
pub(crate) const PAGE_SIZE: u32 = 100;

/// Maximum of pages that are merged.
pub(crate) const MAX_PAGES: u32 = 100;

/// Maximum of all pages together, in bytes.
pub(crate) const MAX_BYTES: usize = 32 * 1024 * 1024;

static LISTS: LazyLock<Vec<&'static Route>> = LazyLock::new(|| {
    let paged = Changelog::get().changes().filter(|change| change.gateway.action == GatewayAction::Paginate);
    paged.flat_map(Change::endpoints).filter_map(|endpoint| endpoint.route()).collect()
});

/// Returns true for a call of a list that comes in pages, unless it asks for a page.
pub(crate) fn is_mergeable(call: ApiCall<'_>) -> bool {
    let wants_page =
        |query: &str| url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name.starts_with("page["));
    *call.method == Method::GET
        && call
            .path_below_base()
            .is_some_and(|path| LISTS.iter().any(|list| list.matches(call.method, path, call.query)))
        && !wants_page(call.query)
}

/// Builds the query for one page, added to the call's own query.
pub(crate) fn page_query(call: ApiCall<'_>, page: u32) -> String {
    let separator = if call.query.is_empty() { "" } else { "&" };
    format!("{}{separator}page%5Bnumber%5D={page}&page%5Bsize%5D={PAGE_SIZE}", call.query)
}

/// Extracts the query of the page at `link`, a page of the list at `list`; `None` for an address with another path.
///
/// Only the query is used: the page is requested at the list's own address, whatever host the link names.
pub(crate) fn query_from_link(link: &str, list: &Url) -> Option<String> {
    let url = list.join(link).ok()?;
    (url.path() == list.path()).then(|| url.query().unwrap_or_default().to_owned())
}

/// Accumulates pages into one document.
#[derive(Debug, Default)]
pub(crate) struct PageMerger {
    document: Map<String, Value>,
    items: Vec<Value>,
    included: Vec<Value>,
    /// Links to next pages seen so far.
    links: BTreeSet<String>,
    pages: u32,
    bytes: usize,
}

/// Next step of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextPage {
    /// Request the page with this number.
    Number(u32),
    /// Request the page at this address: the list has no page numbers. See [`query_from_link`].
    Link(String),
    /// All pages are there: see [`PageMerger::into_document`].
    Done,
}

/// Reason why pages cannot be merged. A list is never shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MergeError {
    /// A page is not a document with a list.
    #[error("a page is not a JSON:API list")]
    NotAList,
    /// A page names its next page neither by a number nor by a usable link.
    #[error(
        "a page of the list names its next page neither by number nor by a link to the same list; request its pages one by one"
    )]
    NoNextPage,
    /// A page leads back to an earlier one before the list is complete.
    #[error("the list's pages form a loop before the list is complete; request its pages one by one")]
    Loop,
    /// The list exceeds the maximum.
    #[error("the list has more than {MAX_PAGES} pages or {MAX_BYTES} bytes; request its pages one by one")]
    TooLarge,
}

impl PageMerger {
    /// Adds the next page, beginning with the first.
    pub(crate) fn add_page(&mut self, page: &[u8]) -> Result<NextPage, MergeError> {
        self.bytes = self.bytes.saturating_add(page.len());
        self.pages += 1;
        if self.bytes > MAX_BYTES {
            return Err(MergeError::TooLarge);
        }
        let Ok(Value::Object(mut page)) = serde_json::from_slice(page) else { return Err(MergeError::NotAList) };
        let Some(Value::Array(items)) = page.remove("data") else { return Err(MergeError::NotAList) };
        let empty = items.is_empty();
        self.items.extend(items);
        if let Some(Value::Array(included)) = page.remove("included") {
            self.included.extend(included);
        }
        let pagination = page.get("meta").and_then(|meta| meta.get("pagination"));
        let number = |name: &str| pagination?.get(name)?.as_u64();
        let next_page = pagination.and_then(|pages| pages.get("next-page"));
        // The list's own `total-count` is believed.
        let complete = number("total-count") == u64::try_from(self.items.len()).ok();
        let (turn, looped) = match next_page {
            Some(Value::Null) => (NextPage::Done, false),
            Some(_) => {
                let next = number("next-page").ok_or(MergeError::NoNextPage)?;
                let current = number("current-page").unwrap_or_else(|| u64::from(self.pages));
                match u32::try_from(next) {
                    _ if empty => (NextPage::Done, false),
                    _ if next <= current => (NextPage::Done, true),
                    Ok(next) => (NextPage::Number(next), false),
                    Err(_) => return Err(MergeError::TooLarge),
                }
            }
            // A list without page numbers may still have a next page.
            None => match next_link(&page)? {
                None => (NextPage::Done, false),
                Some(link) if !self.links.insert(link.clone()) => (NextPage::Done, true),
                Some(link) => (NextPage::Link(link), false),
            },
        };
        if looped && !complete {
            return Err(MergeError::Loop);
        }
        self.keep_first(page);
        if turn != NextPage::Done && self.pages >= MAX_PAGES {
            return Err(MergeError::TooLarge);
        }
        Ok(turn)
    }

    /// Keeps the first page's other members for the merged document.
    fn keep_first(&mut self, page: Map<String, Value>) {
        if self.pages == 1 {
            self.document = page;
        }
    }

    /// Builds the merged document. `address` is the requested URL, for the links. A single page without pagination is
    /// returned unchanged.
    pub(crate) fn into_document(mut self, address: &str) -> Bytes {
        let count = self.items.len();
        let numbered = self.document.get("meta").is_some_and(|meta| meta.get("pagination").is_some());
        if numbered {
            let one = json!({"current-page": 1, "prev-page": null, "next-page": null, "total-pages": 1, "total-count": count});
            self.document["meta"]["pagination"] = one;
        }
        if numbered || self.pages > 1 {
            let links = json!({"self": address, "first": address, "prev": null, "next": null, "last": address});
            self.document.insert("links".to_owned(), links);
        }
        self.document.insert("data".to_owned(), self.items.into());
        if !self.included.is_empty() {
            self.document.insert("included".to_owned(), distinct(self.included).into());
        }
        Value::Object(self.document).to_string().into()
    }
}

/// Returns the address of the next page from `links`: a string, or an object with `href` (JSON:API, "Links").
fn next_link(page: &Map<String, Value>) -> Result<Option<String>, MergeError> {
    let link = page.get("links").and_then(|links| links.get("next"));
    match link.map(|link| link.get("href").unwrap_or(link)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(link)) => Ok((!link.is_empty()).then(|| link.clone())),
        Some(_) => Err(MergeError::NoNextPage),
    }
}

/// Removes duplicates by type and id (JSON:API, 7.2.5).
fn distinct(resources: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let name = |resource: &Value| (resource["type"].to_string(), resource["id"].to_string());
    resources.into_iter().filter(|resource| seen.insert(name(resource))).collect()
}

#[cfg(test)]
mod tests;
