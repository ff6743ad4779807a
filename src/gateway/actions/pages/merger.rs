//! Merges pages of a list. Entries are copied as they are written and never parsed into values, which would take several times
//! their memory; the copies are counted against a budget that all calls share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use keyward_http::body_buffer::{BodyBuffer, BufferBudget, BufferFull};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{MAX_BYTES, MAX_PAGES};

/// Largest members of a page besides its entries, in bytes.
const MAX_MEMBERS: usize = 256 * 1024;

/// Accumulates pages into one document.
#[derive(Debug)]
pub(crate) struct PageMerger {
    /// The document so far: `{"data":[` and the entries of all pages.
    document: BodyBuffer,
    /// Resources of `included`, separated by commas.
    included: BodyBuffer,
    /// Types and ids of those, which occur once (JSON:API, 7.2.5).
    seen: BTreeSet<(String, String)>,
    /// Other members of the first page.
    members: BTreeMap<String, Value>,
    /// Links to next pages seen so far.
    links: BTreeSet<String>,
    count: usize,
    pages: u32,
    bytes: usize,
}

/// Next step of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextPage {
    /// Request the page with this number.
    Number(u32),
    /// Request the page at this address: the list has no page numbers. See [`super::query_from_link`].
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
    /// The memory for merging is used up by other calls.
    #[error("the gateway merges too many lists at once; make the call again, or request the list's pages one by one")]
    Busy,
}

impl From<BufferFull> for MergeError {
    fn from(full: BufferFull) -> Self {
        match full {
            BufferFull::Limit => Self::TooLarge,
            BufferFull::Budget => Self::Busy,
        }
    }
}

/// Raw members of a page.
type Members<'a> = BTreeMap<String, &'a RawValue>;

impl PageMerger {
    /// Creates an empty document that draws on the budget.
    pub(crate) fn new(budget: &BufferBudget) -> Self {
        // The members after the entries are small, see `MAX_MEMBERS`.
        let [document, included] = [(); 2].map(|()| budget.buffer(MAX_BYTES + 2 * MAX_MEMBERS));
        let (seen, members, links) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Self { document, included, seen, members, links, count: 0, pages: 0, bytes: 0 }
    }

    /// Adds the next page, beginning with the first.
    pub(crate) fn add_page(&mut self, page: &[u8]) -> Result<NextPage, MergeError> {
        self.bytes = self.bytes.saturating_add(page.len());
        self.pages += 1;
        if self.bytes > MAX_BYTES {
            return Err(MergeError::TooLarge);
        }
        let mut page: Members<'_> = serde_json::from_slice(page).map_err(|_| MergeError::NotAList)?;
        let entries = page.remove("data").ok_or(MergeError::NotAList)?;
        let before = self.count;
        for_each(entries, |entry| self.add_entry(entry)).ok_or(MergeError::NotAList)??;
        if let Some(included) = page.remove("included") {
            for_each(included, |resource| self.include(resource)).unwrap_or(Ok(()))?;
        }
        if page.iter().map(|(name, value)| name.len() + value.get().len()).sum::<usize>() > MAX_MEMBERS {
            return Err(MergeError::TooLarge);
        }
        let parse = |value: &RawValue| serde_json::from_str(value.get()).map_err(|_| MergeError::NotAList);
        let members = page.into_iter().map(|(name, value)| Ok((name, parse(value)?)));
        let members: BTreeMap<String, Value> = members.collect::<Result<_, MergeError>>()?;
        let next = self.next_page(&members, self.count == before)?;
        if self.pages == 1 {
            self.members = members;
        }
        if next != NextPage::Done && self.pages >= MAX_PAGES {
            return Err(MergeError::TooLarge);
        }
        Ok(next)
    }

    fn add_entry(&mut self, entry: &RawValue) -> Result<(), MergeError> {
        self.document.push(if self.count == 0 { b"{\"data\":[" } else { b"," })?;
        self.count += 1;
        Ok(self.document.push(entry.get().as_bytes())?)
    }

    fn include(&mut self, resource: &RawValue) -> Result<(), MergeError> {
        #[derive(Deserialize)]
        struct Identifier<'a> {
            #[serde(borrow, default)]
            r#type: Option<&'a RawValue>,
            #[serde(borrow, default)]
            id: Option<&'a RawValue>,
        }
        let text = |value: Option<&RawValue>| value.map_or_else(String::new, |value| value.get().to_owned());
        let name = serde_json::from_str(resource.get()).map(|Identifier { r#type, id }| (text(r#type), text(id)));
        if self.seen.insert(name.unwrap_or_else(|_| (resource.get().to_owned(), String::new()))) {
            if self.seen.len() > 1 {
                self.included.push(b",")?;
            }
            self.included.push(resource.get().as_bytes())?;
        }
        Ok(())
    }

    /// Finds the next page by the members of a page that has been added.
    fn next_page(&mut self, page: &BTreeMap<String, Value>, is_empty: bool) -> Result<NextPage, MergeError> {
        let pagination = page.get("meta").and_then(|meta| meta.get("pagination"));
        let number = |name: &str| pagination?.get(name)?.as_u64();
        let next_page = pagination.and_then(|pages| pages.get("next-page"));
        // The list's own `total-count` is believed.
        let complete = number("total-count") == u64::try_from(self.count).ok();
        let (next, looped) = match next_page {
            Some(Value::Null) => (NextPage::Done, false),
            Some(_) => {
                let next = number("next-page").ok_or(MergeError::NoNextPage)?;
                let current = number("current-page").unwrap_or_else(|| u64::from(self.pages));
                match u32::try_from(next) {
                    _ if is_empty => (NextPage::Done, false),
                    _ if next <= current => (NextPage::Done, true),
                    Ok(next) => (NextPage::Number(next), false),
                    Err(_) => return Err(MergeError::TooLarge),
                }
            }
            // A list without page numbers may still have a next page.
            None => match next_link(page)? {
                None => (NextPage::Done, false),
                Some(link) if !self.links.insert(link.clone()) => (NextPage::Done, true),
                Some(link) => (NextPage::Link(link), false),
            },
        };
        if looped && !complete { Err(MergeError::Loop) } else { Ok(next) }
    }

    /// Builds the merged document. `address` is the requested URL, for the links. A single page without pagination keeps its
    /// members unchanged.
    pub(crate) fn into_document(mut self, address: &str) -> Result<Bytes, MergeError> {
        let numbered = self.members.get("meta").is_some_and(|meta| meta.get("pagination").is_some());
        if numbered && let Some(meta) = self.members.get_mut("meta") {
            meta["pagination"] = json!({"current-page": 1, "prev-page": null, "next-page": null, "total-pages": 1, "total-count": self.count});
        }
        if numbered || self.pages > 1 {
            let links = json!({"self": address, "first": address, "prev": null, "next": null, "last": address});
            self.members.insert("links".to_owned(), links);
        }
        let mut rest = vec![if self.count == 0 { b"{\"data\":[]".to_vec() } else { b"]".to_vec() }];
        if !self.seen.is_empty() {
            rest.extend([b",\"included\":[".to_vec(), self.included.into_vec(), b"]".to_vec()]);
        }
        rest.extend(
            self.members.iter().map(|(name, value)| format!(",{}:{value}", Value::from(name.as_str())).into_bytes()),
        );
        rest.push(b"}".to_vec());
        self.document.push_last(&rest)?;
        Ok(self.document.into_bytes())
    }
}

/// Returns the address of the next page from `links`: a string, or an object with `href` (JSON:API, "Links").
fn next_link(page: &BTreeMap<String, Value>) -> Result<Option<String>, MergeError> {
    let link = page.get("links").and_then(|links| links.get("next"));
    match link.map(|link| link.get("href").unwrap_or(link)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(link)) => Ok((!link.is_empty()).then(|| link.clone())),
        Some(_) => Err(MergeError::NoNextPage),
    }
}

/// Calls a function with each entry of a list, one after the other. Returns `None` if the text is no list, and the first
/// error of the function.
fn for_each(
    list: &RawValue,
    mut function: impl FnMut(&RawValue) -> Result<(), MergeError>,
) -> Option<Result<(), MergeError>> {
    struct Entries<F>(F);

    impl<'de, F: FnMut(&'de RawValue) -> Result<(), MergeError>> Visitor<'de> for Entries<F> {
        type Value = Result<(), MergeError>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut result = Ok(());
            while let Some(entry) = entries.next_element::<&RawValue>()? {
                if result.is_ok() {
                    result = (self.0)(entry);
                }
            }
            Ok(result)
        }
    }

    impl<'de, F: FnMut(&'de RawValue) -> Result<(), MergeError>> DeserializeSeed<'de> for Entries<F> {
        type Value = Result<(), MergeError>;

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_seq(self)
        }
    }

    let mut text = serde_json::Deserializer::from_str(list.get());
    Entries(|entry: &RawValue| function(entry)).deserialize(&mut text).ok()
}
