//! Lists that once came whole and now come in pages, as one document for who asks for that.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};

use super::Inner;
use super::body::Asked;
use super::outcome::{Outcome, Platform};
use super::response::{refuse, set_length};
use super::upstream_call::{ASKS, Call, Refused};
use crate::gateway::actions::{self, pages};
use crate::http::body_buffer::collect;
use crate::http::reverse_proxy::remove_all;

impl Inner {
    /// Whether a call is answered with all pages in one: it is for such a list, asks for no page of its own, and either it or
    /// the configuration asks for that.
    pub(super) fn merges(&self, method: &Method, target: &PathAndQuery, headers: &HeaderMap) -> bool {
        let asked = || headers.get(&ASKS).is_some_and(|value| value.as_bytes() == b"true");
        let call = actions::Call { method, path: target.path(), query: target.query().unwrap_or_default() };
        (self.actions.options().merge_pages || asked()) && pages::merges(call)
    }

    /// All pages of a list, by their numbers or by the links from one to the next. A page that fails is the answer: a list is
    /// never given short.
    ///
    /// # Errors
    /// The platform did not answer, or its pages cannot be merged: what the caller is told.
    pub(super) async fn merged(&self, call: &Call, here: Option<&str>) -> Result<Outcome, Refused> {
        let address = format!("{}{}", here.unwrap_or_default(), call.target);
        let bad = |why: String| Box::new(refuse(StatusCode::BAD_GATEWAY, why));
        let list = self.asked(call);
        let (mut merge, mut query) = (pages::Merge::default(), pages::query(call.as_known(), 1));
        let mut headers = call.headers.clone();
        // What stands for a page does not stand for the list: a page that is as it was would be the answer.
        remove_all(&mut headers, |name| name.starts_with("if-"));
        loop {
            let target = format!("{}?{query}", call.target.path()).parse();
            let target = target.map_err(|_| bad("the list's pages cannot be asked for".to_owned()))?;
            let of_page = Call { caller: call.caller, method: Method::GET, target, headers: headers.clone() };
            let answer = self.exchange(&of_page, Asked::empty()).await?;
            if answer.status() != StatusCode::OK {
                return Ok(Outcome { other: None, answer: answer.map(Platform::Streamed) });
            }
            if let Some(refused) = self.refuse_encoded(&answer) {
                return Err(refused);
            }
            let (mut parts, body) = answer.into_parts();
            let whole = collect(body, pages::MAX_BYTES).await;
            let whole =
                whole.map_err(|_| bad("a page of the list is too large, or broke off".to_owned()))?.into_bytes();
            match merge.take(&whole).map_err(|error| bad(error.to_string()))? {
                pages::Turn::Page(next) => query = pages::query(call.as_known(), next),
                pages::Turn::Link(link) => {
                    query =
                        pages::linked_query(&link, &list).ok_or_else(|| bad(pages::MergeError::NoPager.to_string()))?;
                }
                pages::Turn::Done => {
                    let document = merge.document(&address);
                    remove_all(&mut parts.headers, |name| matches!(name, "etag" | "last-modified"));
                    set_length(&mut parts.headers, Some(document.len()));
                    let answer = Response::from_parts(parts, Platform::Whole(document));
                    return Ok(Outcome { other: None, answer });
                }
            }
        }
    }
}
