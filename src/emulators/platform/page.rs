//! Paging of lists.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Behavior of the ten lists that got pages on 2021-11-17.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paging {
    /// The complete list without pagination, unless a page parameter is present, as the platform's documentation says.
    #[default]
    OptIn,
    /// Always a page.
    Always,
    /// Always the complete list, as before that date.
    Never,
    /// Each page names itself as the next one; a client must not follow that forever.
    Looping,
}

/// `page[number]` and `page[size]` of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) number: Option<usize>,
    pub(super) size: Option<usize>,
}

/// Entries of a response, and its pagination if there is any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) entries: Range<usize>,
    pub(super) info: Option<PageInfo>,
}

/// `meta.pagination`, and the source of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageInfo {
    pub(super) current: usize,
    pub(super) size: usize,
    pub(super) next: Option<usize>,
    pub(super) previous: Option<usize>,
    pub(super) pages: usize,
    pub(super) total: usize,
}

const DEFAULT_SIZE: usize = 20;
const MAX_SIZE: usize = 100;

/// Computes the part of a list of `total` entries for a request.
pub(super) fn page(total: usize, page_request: PageRequest, paging: Paging) -> Page {
    let request = page_request.number.is_some() || page_request.size.is_some();
    if paging == Paging::Never || (paging == Paging::OptIn && !request) {
        return Page { entries: 0..total, info: None };
    }
    let size = page_request.size.unwrap_or(DEFAULT_SIZE).clamp(1, MAX_SIZE);
    let current = page_request.number.unwrap_or(1).max(1);
    let pages = total.div_ceil(size).max(1);
    let start = (current - 1).saturating_mul(size).min(total);
    let end = start.saturating_add(size).min(total);
    let next = if paging == Paging::Looping { Some(current) } else { (current < pages).then_some(current + 1) };
    let previous = (current > 1).then(|| (current - 1).min(pages));
    Page { entries: start..end, info: Some(PageInfo { current, size, next, previous, pages, total }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_paged_by_mode() {
        let page_request = |number, size| PageRequest { number, size };
        let cut = |total, number, size, paging| {
            let page = page(total, page_request(number, size), paging);
            (page.entries, page.info.map(|info| (info.current, info.previous, info.next, info.pages)))
        };
        assert_eq!(cut(45, None, None, Paging::OptIn), (0..45, None));
        assert_eq!(cut(45, Some(2), None, Paging::Never), (0..45, None));
        assert_eq!(cut(45, None, None, Paging::Always), (0..20, Some((1, None, Some(2), 3))));
        assert_eq!(cut(45, Some(3), None, Paging::OptIn), (40..45, Some((3, Some(2), None, 3))));
        assert_eq!(cut(450, None, Some(1000), Paging::OptIn), (0..100, Some((1, None, Some(2), 5))));
        assert_eq!(cut(45, Some(9), Some(20), Paging::OptIn), (45..45, Some((9, Some(3), None, 3))));
        assert_eq!(cut(0, Some(1), None, Paging::OptIn), (0..0, Some((1, None, None, 1))));
        assert_eq!(cut(45, Some(2), None, Paging::Looping), (20..40, Some((2, Some(1), Some(2), 3))));
        assert_eq!(cut(45, Some(0), Some(0), Paging::OptIn), (0..1, Some((1, None, Some(2), 45))));
    }
}
