//! Lists that come in pages, merged into one answer for who asks for that.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use super::Call;
use crate::gateway::changes::{Action, Change, Changelog, Route};

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

/// Pages on their way into one document.
#[derive(Debug, Default)]
pub struct Merge {
    document: Map<String, Value>,
    items: Vec<Value>,
    included: Vec<Value>,
    pages: u32,
    bytes: usize,
}

/// What is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// This page is to be asked for.
    Ask(u32),
    /// All pages are there: see [`Merge::document`].
    Done,
}

/// Why pages cannot be merged. A list is never given short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A page is no document with a list.
    #[error("a page is no JSON:API list")]
    NoList,
    /// A page does not say in numbers which one is next.
    #[error("a page of the list does not say in numbers which page is next; ask for its pages one by one")]
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
        let (current, next) = (number("current-page"), number("next-page"));
        if next.is_none() && pagination.is_some_and(|pages| !pages["next-page"].is_null()) {
            return Err(MergeError::NoPager);
        }
        let next = next.filter(|_| !empty);
        if next.is_some_and(|next| next <= current.unwrap_or_else(|| u64::from(self.pages))) {
            // Where the list says how long it is, that is believed.
            let whole = number("total-count") == u64::try_from(self.items.len()).ok();
            if !whole {
                return Err(MergeError::Loops);
            }
            self.keep_first(page);
            return Ok(Turn::Done);
        }
        self.keep_first(page);
        match next.map(u32::try_from) {
            None => Ok(Turn::Done),
            Some(Ok(next)) if self.pages < MAX_PAGES => Ok(Turn::Ask(next)),
            Some(_) => Err(MergeError::TooMany),
        }
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
        let paged = self.document.get("meta").is_some_and(|meta| meta.get("pagination").is_some());
        if paged {
            let one = json!({"current-page": 1, "prev-page": null, "next-page": null, "total-pages": 1, "total-count": count});
            self.document["meta"]["pagination"] = one;
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

/// Each resource once, by its type and id (JSON:API, 7.2.5).
fn distinct(resources: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::BTreeSet::new();
    let name = |resource: &Value| (resource["type"].to_string(), resource["id"].to_string());
    resources.into_iter().filter(|resource| seen.insert(name(resource))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(method: &'a Method, path: &'a str, query: &'a str) -> Call<'a> {
        Call { method, path, query }
    }

    #[test]
    fn the_lists_of_the_history_are_merged_and_nothing_else() {
        let lists = [
            "/feature-sets",
            "/workspaces/w/notification-configurations",
            "/organizations/o/oauth-clients",
            "/oauth-clients/c/oauth-tokens",
            "/organizations/o/feature-sets",
            "/organizations",
            "/runs/r/policy-checks",
            "/policy-sets/p/parameters",
            "/organizations/o/ssh-keys",
            "/users/u/authentication-tokens",
            "/team-workspaces",
        ];
        assert_eq!(LISTS.len(), lists.len());
        for list in lists {
            let path = format!("/api/v2{list}");
            assert!(merges(call(&Method::GET, &path, "q=x")), "{list}");
            assert!(!merges(call(&Method::POST, &path, "")), "{list}");
            assert!(!merges(call(&Method::GET, &path, "page%5Bnumber%5D=2")), "{list}");
            assert!(!merges(call(&Method::GET, &path, "page[size]=5")), "{list}");
            assert!(!merges(call(&Method::GET, list, "")), "{list}");
            assert!(!merges(call(&Method::GET, &format!("{path}/x"), "")), "{list}");
        }
    }

    #[test]
    fn a_page_is_asked_for_beside_what_was_asked() {
        assert_eq!(query(call(&Method::GET, "/", ""), 1), "page%5Bnumber%5D=1&page%5Bsize%5D=100");
        assert_eq!(query(call(&Method::GET, "/", "q=a%20b"), 2), "q=a%20b&page%5Bnumber%5D=2&page%5Bsize%5D=100");
    }

    fn page(items: &[u32], current: u32, next: impl Into<Value>) -> Vec<u8> {
        let data: Vec<Value> = items.iter().map(|id| json!({"id": id.to_string(), "type": "x"})).collect();
        let pagination = json!({"current-page": current, "next-page": next.into(), "total-count": 99});
        let included = [json!({"id": "1", "type": "y"})];
        let meta = json!({"pagination": pagination, "other": 7});
        json!({"data": data, "links": {"next": "x"}, "meta": meta, "included": included}).to_string().into_bytes()
    }

    #[test]
    fn pages_become_one_document() {
        let mut merge = Merge::default();
        assert_eq!(merge.take(&page(&[1, 2], 1, 2)), Ok(Turn::Ask(2)));
        assert_eq!(merge.take(&page(&[3], 2, Value::Null)), Ok(Turn::Done));
        let document: Value = serde_json::from_slice(&merge.document("/api/v2/organizations")).unwrap();
        assert_eq!(document["data"].as_array().unwrap().len(), 3);
        let wanted =
            json!({"current-page": 1, "prev-page": null, "next-page": null, "total-pages": 1, "total-count": 3});
        assert_eq!(document["meta"], json!({"pagination": wanted, "other": 7}));
        assert_eq!(
            (&document["links"]["next"], &document["links"]["self"]),
            (&Value::Null, &json!("/api/v2/organizations"))
        );
        assert_eq!(document["included"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_pager_that_loops_or_says_nothing_ends() {
        let ends = |body: &[u8]| assert_eq!(Merge::default().take(body), Ok(Turn::Done));
        let loops = |body: &[u8]| assert_eq!(Merge::default().take(body), Err(MergeError::Loops));
        // 99 are told of.
        loops(&page(&[1], 2, 2));
        loops(&page(&[1], 2, 1));
        let all: Vec<u32> = (0..99).collect();
        ends(&page(&all, 1, 1));
        ends(&page(&[], 1, 2));
        ends(br#"{"data":[]}"#);
        let mut whole = Merge::default();
        assert_eq!(whole.take(br#"{"data":[{"id":"1"}]}"#), Ok(Turn::Done));
        assert_eq!(&whole.document("/x")[..], br#"{"data":[{"id":"1"}]}"#);
    }

    #[test]
    fn a_list_is_never_given_short() {
        for next in [json!("2"), json!(2.0), json!(-1), json!([2])] {
            assert_eq!(Merge::default().take(&page(&[1], 1, next)), Err(MergeError::NoPager));
        }
        for body in [&b"{}"[..], b"", b"[]", br#"{"data":{}}"#, br#"{"errors":[]}"#] {
            assert_eq!(Merge::default().take(body), Err(MergeError::NoList));
        }
        let mut merge = Merge::default();
        for number in 1..MAX_PAGES {
            assert_eq!(merge.take(&page(&[number], number, number + 1)), Ok(Turn::Ask(number + 1)));
        }
        assert_eq!(merge.take(&page(&[1], MAX_PAGES, MAX_PAGES + 1)), Err(MergeError::TooMany));
        assert_eq!(Merge::default().take(&vec![b' '; MAX_BYTES + 1]), Err(MergeError::TooMany));
    }
}
