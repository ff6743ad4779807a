//! Snapshots of all records: download and restore.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use keyward_http::client::{StreamingResponse, TransportError};
use serde::Deserialize;

use super::acl_client::{AclClient, Endpoint, parse};
use super::error::{AclClientError, parse_error};
use crate::model::snapshot::{SnapshotError, SnapshotReader};

const ENDPOINT: Endpoint<'static> =
    Endpoint { path: &["snapshot"], name: Cow::Borrowed("the calls for snapshots"), since: None };

/// Maximum time between two parts of a snapshot.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum time to send, verify and restore a snapshot.
const RESTORE_TIMEOUT: Duration = Duration::from_hours(4);

/// Largest response other than a snapshot, in bytes.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Snapshot that is being received. It is verified on the way: after the last bytes it is complete and undamaged.
#[derive(Debug)]
pub struct SnapshotDownload {
    response: StreamingResponse,
    reader: SnapshotReader,
}

/// Result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RestoreResponse {
    /// Number of records after the restore.
    pub records: u64,
    /// Index of the server after the restore.
    pub index: u64,
}

impl AclClient {
    /// Starts the download of a snapshot of all records in all namespaces. Needs `operator:write` and `acl:write` in `default`.
    pub async fn snapshot(&self) -> Result<SnapshotDownload, AclClientError> {
        let response = self.http().open(self.request(Method::GET, &ENDPOINT)?, self.response_timeout()).await?;
        if response.status() == StatusCode::OK {
            return Ok(SnapshotDownload { response, reader: SnapshotReader::default() });
        }
        Err(self.read_error(response).await?)
    }

    /// Replaces all records by a snapshot, which must be of the server's datacenter and under a key of its key file. Needs the
    /// same privileges. Afterwards only tokens of the snapshot are valid. After an error with
    /// [`AclClientError::is_in_doubt`], the server may refuse requests until a restore with the same token succeeds.
    pub async fn restore(&self, snapshot: reqwest::Body) -> Result<RestoreResponse, AclClientError> {
        let request = self.request(Method::PUT, &ENDPOINT)?.body(snapshot);
        let response = self.http().open(request, RESTORE_TIMEOUT).await?;
        if response.status() == StatusCode::OK {
            return parse(&response.read_all(self.response_timeout(), MAX_RESPONSE_BYTES).await?);
        }
        Err(self.read_error(response).await?)
    }

    async fn read_error(&self, response: StreamingResponse) -> Result<AclClientError, TransportError> {
        let response = response.read_all(self.response_timeout(), MAX_RESPONSE_BYTES).await?;
        let sent = self.token().map_or("", |token| token.expose_secret());
        Ok(parse_error(response.status, &response.headers, &response.body, &ENDPOINT.name, ENDPOINT.since, sent))
    }
}

impl SnapshotDownload {
    /// Returns the next bytes; `None` after the last. An incomplete or damaged snapshot is an error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AclClientError> {
        let damaged = |error: SnapshotError| {
            let text = format!("the snapshot is incomplete or damaged: {error}");
            AclClientError::Unexpected { status: StatusCode::OK.as_u16(), text }
        };
        let Some(bytes) = self.response.chunk(STALL_TIMEOUT).await? else {
            self.reader.finish().map_err(damaged)?;
            return Ok(None);
        };
        self.reader.feed(&bytes);
        while self.reader.piece().map_err(damaged)?.is_some() {}
        Ok(Some(bytes))
    }

    /// Number of records received.
    pub fn records(&self) -> u64 {
        self.reader.records()
    }
}
