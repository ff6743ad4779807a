//! Lists that come in pages, and their merging into one document.

mod merger;

use std::sync::LazyLock;

use http::Method;
use url::Url;

pub(crate) use merger::{MergeError, NextPage, PageMerger};

use super::ApiCall;
use crate::api_changelog::{Change, Changelog, GatewayAction, Route};

/// Largest page size of the platform.
pub(crate) const PAGE_SIZE: u32 = 100;

/// Maximum of pages that are merged.
pub(crate) const MAX_PAGES: u32 = 100;

/// Maximum of all pages of a list together, in bytes.
pub(crate) const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Memory for the pages and documents of all calls together, in bytes.
pub(crate) const MERGE_BUDGET: usize = 96 * 1024 * 1024;

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

#[cfg(test)]
mod tests;
