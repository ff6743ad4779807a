//! Lists that come in pages, merged into one answer for who asks for that.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use url::Url;

use super::Call;
use crate::gateway::api_changelog::{Action, Change, Changelog, Route};

/// The largest page that the platform gives.
pub const PAGE_SIZE: u32 = 100;

/// How many pages are merged at most.
pub const MAX_PAGES: u32 = 100;

/// How many bytes the pages have together at most.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

static LISTS: LazyLock<Vec<&'static Route>> = LazyLock::new(|| {
    let paged = Changelog::get().changes().filter(|change| change.gateway.does == Action::Paginate);
    paged.flat_map(Change::endpoints).filter_map(|endpoint| endpoint.route()).collect()
});

/// Whether a call is for one of the lists of the history that come in pages, and asks for no page of its own.
pub fn merges(call: Call<'_>) -> bool {
    let asks = |query: &str| url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name.starts_with("page["));
    *call.method == Method::GET
        && call.below().is_some_and(|path| LISTS.iter().any(|list| list.takes(call.method, path, call.query)))
        && !asks(call.query)
}

/// The query that asks for one page, besides what the call asked.
pub fn query(call: Call<'_>, page: u32) -> String {
    let separator = if call.query.is_empty() { "" } else { "&" };
    format!("{}{separator}page%5Bnumber%5D={page}&page%5Bsize%5D={PAGE_SIZE}", call.query)
}

/// The query of the page at `link`, as a page of the list at `list`; `None` for an address with another path.
///
/// Only the query is taken: the page is asked for at the list's own address, whatever host the link names.
pub fn linked_query(link: &str, list: &Url) -> Option<String> {
    let url = list.join(link).ok()?;
    (url.path() == list.path()).then(|| url.query().unwrap_or_default().to_owned())
}

/// Pages on their way into one document.
#[derive(Debug, Default)]
pub struct Merge {
    document: Map<String, Value>,
    items: Vec<Value>,
    included: Vec<Value>,
    /// The links to next pages so far.
    links: BTreeSet<String>,
    pages: u32,
    bytes: usize,
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The page with this number is to be asked for.
    Page(u32),
    /// The page at this address is to be asked for: the list has no page numbers. See [`linked_query`].
    Link(String),
    /// All pages are there: see [`Merge::document`].
    Done,
}

/// Why pages cannot be merged. A list is never given short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A page is no document with a list.
    #[error("a page is no JSON:API list")]
    NoList,
    /// A page names its next page neither by a number nor by a link that can be followed.
    #[error(
        "a page of the list names its next page neither by number nor by a link to the same list; ask for its pages one by one"
    )]
    NoPager,
    /// A page leads back to itself or to one before it, and more is told of than came so far.
    #[error(
        "the list's pages lead back to pages that came already, before all of it came; ask for its pages one by one"
    )]
    Loops,
    /// They are more than are merged.
    #[error("the list has more than {MAX_PAGES} pages or {MAX_BYTES} bytes; ask for its pages one by one")]
    TooMany,
}

impl Merge {
    /// Takes the next page, beginning with the first.
    ///
    /// # Errors
    /// It is no list, or there is too much of it.
    pub fn take(&mut self, page: &[u8]) -> Result<Turn, MergeError> {
        self.bytes = self.bytes.saturating_add(page.len());
        self.pages += 1;
        if self.bytes > MAX_BYTES {
            return Err(MergeError::TooMany);
        }
        let Ok(Value::Object(mut page)) = serde_json::from_slice(page) else { return Err(MergeError::NoList) };
        let Some(Value::Array(items)) = page.remove("data") else { return Err(MergeError::NoList) };
        let empty = items.is_empty();
        self.items.extend(items);
        if let Some(Value::Array(included)) = page.remove("included") {
            self.included.extend(included);
        }
        let pagination = page.get("meta").and_then(|meta| meta.get("pagination"));
        let number = |name: &str| pagination?.get(name)?.as_u64();
        let told = pagination.and_then(|pages| pages.get("next-page"));
        // Where a list says how long it is, that is believed.
        let whole = number("total-count") == u64::try_from(self.items.len()).ok();
        let (turn, loops) = match told {
            Some(Value::Null) => (Turn::Done, false),
            Some(_) => {
                let next = number("next-page").ok_or(MergeError::NoPager)?;
                let current = number("current-page").unwrap_or_else(|| u64::from(self.pages));
                match u32::try_from(next) {
                    _ if empty => (Turn::Done, false),
                    _ if next <= current => (Turn::Done, true),
                    Ok(next) => (Turn::Page(next), false),
                    Err(_) => return Err(MergeError::TooMany),
                }
            }
            // A list without page numbers may still have a next page.
            None => match next_link(&page)? {
                None => (Turn::Done, false),
                Some(link) if !self.links.insert(link.clone()) => (Turn::Done, true),
                Some(link) => (Turn::Link(link), false),
            },
        };
        if loops && !whole {
            return Err(MergeError::Loops);
        }
        self.keep_first(page);
        if turn != Turn::Done && self.pages >= MAX_PAGES {
            return Err(MergeError::TooMany);
        }
        Ok(turn)
    }

    /// What is beside the lists of the first page stands for all.
    fn keep_first(&mut self, page: Map<String, Value>) {
        if self.pages == 1 {
            self.document = page;
        }
    }

    /// All pages as one. `address` is what the client asked for, for the links. A single page without pagination is the
    /// whole list, and says what it said.
    pub fn document(mut self, address: &str) -> Bytes {
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

/// The address of the next page by a document's links: a text, or an object with `href` (JSON:API, "Links").
fn next_link(page: &Map<String, Value>) -> Result<Option<String>, MergeError> {
    let link = page.get("links").and_then(|links| links.get("next"));
    match link.map(|link| link.get("href").unwrap_or(link)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(link)) => Ok((!link.is_empty()).then(|| link.clone())),
        Some(_) => Err(MergeError::NoPager),
    }
}

/// Each resource once, by its type and id (JSON:API, 7.2.5).
fn distinct(resources: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let name = |resource: &Value| (resource["type"].to_string(), resource["id"].to_string());
    resources.into_iter().filter(|resource| seen.insert(name(resource))).collect()
}

#[cfg(test)]
mod tests;
