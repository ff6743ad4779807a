//! Responses to lists, encoded page by page. Between two pages other requests are served, and a long list is sent while it is read:
//! its memory is that of one page.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use keyward_telemetry::error_chain::format_chain;

use super::json::JsonArray;
use super::response::{ApiResponse, BodyInterrupted};
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::lists::RecordPages;
use crate::store::StoreError;

/// Records of a list.
pub(super) trait ListSource: Send + 'static {
    /// Returns the pages.
    fn pages(&self) -> &RecordPages;

    /// Encodes the next page; returns false after the last.
    fn encode_page(
        &mut self,
        service: &AclService,
        array: &mut JsonArray,
    ) -> impl Future<Output = Result<bool, ServiceError>> + Send;
}

/// Size in bytes from which on a list is sent before it is complete.
const PIECE: usize = 64 * 1024;

/// List that is being encoded.
pub(super) struct ListResponse<S> {
    /// The records.
    pub(super) source: S,
    service: Arc<AclService>,
    array: JsonArray,
    /// Encoded but not sent.
    first: Option<Bytes>,
    /// The list is encoded to its end.
    pub(super) is_complete: bool,
    /// The headers, sent first, say that unreadable records are omitted.
    announced: bool,
}

impl<S: ListSource> ListResponse<S> {
    /// Encodes the first piece: a failure of the store still becomes a status, and an unreadable record a header.
    pub(super) async fn begin(service: &Arc<AclService>, source: S, pretty: bool) -> Result<Self, ServiceError> {
        let service = Arc::clone(service);
        let array = JsonArray::begin(pretty);
        let mut list = Self { source, service, array, first: None, is_complete: false, announced: true };
        list.first = list.next().await?;
        list.announced = list.source.pages().omitted.unreadable;
        Ok(list)
    }

    /// Returns the response: with the whole list if it is short.
    pub(super) fn into_response(mut self) -> ApiResponse {
        let omitted = self.source.pages().omitted;
        let first = if self.is_complete { self.first.take() } else { None };
        let response = match first {
            Some(whole) => ApiResponse::encoded_json(whole),
            None => ApiResponse::stream(StreamBody::new(self.into_frames()).boxed_unsync()),
        };
        ApiResponse { omitted, ..response }
    }

    fn into_frames(self) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, BodyInterrupted>> + Send {
        try_unfold(self, async |mut list: Self| match list.next().await {
            Ok(bytes) => Ok(bytes.map(|bytes| (Frame::data(bytes), list))),
            Err(error) => {
                tracing::error!(event = "acl.list.broken", error = format_chain(&error), "interrupted a list");
                Err(BodyInterrupted)
            }
        })
    }

    /// Encodes the next piece; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.is_complete {
            return Ok(None);
        }
        while self.array.len() < PIECE {
            let more = self.source.encode_page(&self.service, &mut self.array).await?;
            let pages = self.source.pages();
            pages.require_same_epoch(&self.service).await?;
            // The headers have announced a complete list. The next list announces the unreadable record.
            if let Some(key) = pages.unreadable.as_ref().filter(|_| !self.announced) {
                return Err(StoreError::Unreadable { key: key.as_str().to_owned() }.into());
            }
            if !more {
                self.array.end();
                self.is_complete = true;
                break;
            }
        }
        Ok(Some(self.array.take()))
    }
}
