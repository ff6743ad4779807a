//! Tokens are listed, as they are read: a list of any length takes the memory of one page.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use super::view::with_names;
use crate::acl::api::error::ApiError;
use crate::acl::api::json::rendered;
use crate::acl::api::request::{Ask, Scope};
use crate::acl::api::response::{Broken, Reply, Seen};
use crate::acl::api::state::Rooms;
use crate::acl::api::watched::Watched;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::lists::LeftOut;
use crate::acl::service::tokens::{Listed, TokenFilter, TokenPages};
use crate::acl::store::{Freshness, StoreError};
use crate::error_chain::format_chain;

pub(in crate::acl::api) async fn list(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    let caller = ask.caller(rooms, freshness).await?;
    let scope = ask.scope(&caller, None)?;
    let filter = filter(ask, &scope)?;
    let kinds = Watched::linked(scope.named()).into_iter().chain([keys::within("token", scope.named())]);
    let (index, watch) = Watched::take(rooms, kinds, freshness).await?.end();
    let mut pages = rooms.directory.tokens(caller, scope.named(), filter, freshness).await?;
    // While nothing is sent, a store that fails can still be told by a status, and what cannot be read by a header.
    let read = pages.next(&rooms.directory).await?;
    let (directory, told) = (Arc::clone(&rooms.directory), pages.left_out);
    let text = Text { directory, read, pages, told, pretty: ask.pretty(), written: Written::Nothing };
    let frames = try_unfold(text, async |mut text: Text| match text.next().await {
        Ok(bytes) => Ok(bytes.map(|bytes| (Frame::data(bytes), text))),
        Err(error) => {
            tracing::error!(event = "acl.list.broken", error = format_chain(&error), "a list of tokens broke off");
            Err(Broken)
        }
    });
    let mut reply = Reply::stream(StreamBody::new(frames).boxed_unsync());
    reply.left_out = told;
    Ok(Seen { reply, index, watch, until: None })
}

/// What the query asks for.
fn filter(ask: &Ask, scope: &Scope) -> Result<TokenFilter, ApiError> {
    let query = &ask.query;
    let policy = query.get("policy")?.map(|id| TokenFilter::Policy(id.parse().ok()));
    let role = query.get("role")?.map(|id| TokenFilter::Role(id.parse().ok()));
    let service = query.get("servicename")?.map(|name| TokenFilter::Service(name.to_owned()));
    let method = match query.get("authmethod")? {
        Some(name) => {
            let namespace = match query.get("authmethod-ns")? {
                Some(name) => Some(Ask::named(name)?),
                None => scope.named().cloned(),
            };
            Some(TokenFilter::Method { name: name.to_owned(), namespace })
        }
        None => None,
    };
    let mut given = [policy, role, service, method].into_iter().flatten();
    let filter = given.next().unwrap_or(TokenFilter::All);
    if given.next().is_some() {
        let text = "can only filter by one of policy, role, serviceName, or methodName at a time";
        return Err(ApiError::Invalid(text.to_owned()));
    }
    Ok(filter)
}

/// A list on its way to JSON.
struct Text {
    directory: Arc<Directory>,
    /// A page that was read and is not written.
    read: Option<Vec<Listed>>,
    pages: TokenPages,
    /// What the headers say of it.
    told: LeftOut,
    pretty: bool,
    written: Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Tokens,
    All,
}

impl Text {
    /// The next piece of text; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        let mut text = Vec::new();
        while text.is_empty() && self.written != Written::All {
            let page = match self.read.take() {
                Some(page) => Some(page),
                None => self.pages.next(&self.directory).await?,
            };
            // Its headers say that it is whole. The next list will say what is known by now.
            if let Some(key) = self.pages.unreadable.as_ref().filter(|_| !self.told.unreadable) {
                return Err(StoreError::Unreadable { key: key.as_str().to_owned() }.into());
            }
            let Some(page) = page else {
                self.end(&mut text);
                break;
            };
            for listed in page {
                self.between(&mut text);
                let view = with_names(&listed.token, listed.secret.reveal(), listed.policies, listed.roles);
                let token = rendered(&view, self.pretty).map_err(ServiceError::Encode)?;
                // A text in JSON holds no line break: these stand between its parts.
                for (number, line) in token.trim_ascii_end().split(|byte| *byte == b'\n').enumerate() {
                    if number > 0 {
                        new_line(&mut text);
                    }
                    text.extend_from_slice(line);
                }
            }
        }
        Ok(Some(text.into()).filter(|text: &Bytes| !text.is_empty()))
    }

    fn between(&mut self, text: &mut Vec<u8>) {
        text.push(if self.written == Written::Nothing { b'[' } else { b',' });
        if self.pretty {
            new_line(text);
        }
        self.written = Written::Tokens;
    }

    fn end(&mut self, text: &mut Vec<u8>) {
        let end: &[u8] = match (self.written, self.pretty) {
            (Written::All, _) => b"",
            (Written::Nothing, true) => b"[]\n",
            (Written::Nothing, false) => b"[]",
            (Written::Tokens, true) => b"\n]\n",
            (Written::Tokens, false) => b"]",
        };
        text.extend_from_slice(end);
        self.written = Written::All;
    }
}

fn new_line(text: &mut Vec<u8>) {
    text.extend_from_slice(b"\n    ");
}
