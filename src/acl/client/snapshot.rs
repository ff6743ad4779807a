//! Snapshots: everything that the service keeps, as it comes and goes.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::call::{Client, To, parse};
use super::error::{Error, refusal};
use crate::acl::model::snapshot::{Reader, SnapshotError};
use crate::http::client::{StreamingResponse, TransportError};

const TO: To<'static> = To { path: &["snapshot"], name: "the calls for snapshots", since: None };

/// How long the server may send nothing of a snapshot.
const STALL: Duration = Duration::from_mins(1);

/// How long a snapshot may take to be sent, judged and restored.
const RESTORED_WITHIN: Duration = Duration::from_hours(4);

/// The largest answer that is no snapshot, in bytes.
const LARGEST_ANSWER: usize = 1024 * 1024;

/// A snapshot as it comes. It is judged on the way: once the last bytes were given, it is whole and undamaged.
#[derive(Debug)]
pub struct Snapshot {
    coming: StreamingResponse,
    reader: Reader,
}

/// What a restore did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Restored {
    /// How many records there are now.
    pub records: u64,
    /// The server's index after it.
    pub index: u64,
}

impl Client {
    /// Begins to take a snapshot of everything in every namespace, as it is now. Takes `operator:write` and `acl:write` in
    /// `default`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let coming = self.http().open(self.request(Method::GET, &TO)?, self.answer_timeout()).await?;
        if coming.status() == StatusCode::OK {
            return Ok(Snapshot { coming, reader: Reader::default() });
        }
        Err(self.refused(coming).await?)
    }

    /// Replaces everything by a snapshot, which must have been written under a key that the server has, in its datacenter.
    /// Takes the same privileges. Tokens of before open nothing afterwards but those that are in it.
    ///
    /// # Errors
    /// See [`Error`]. Where it is in doubt, the server may be shut until a restore with the same token ends well.
    pub async fn restore(&self, snapshot: reqwest::Body) -> Result<Restored, Error> {
        let request = self.request(Method::PUT, &TO)?.body(snapshot);
        let coming = self.http().open(request, RESTORED_WITHIN).await?;
        if coming.status() == StatusCode::OK {
            return parse(&coming.read_all(self.answer_timeout(), LARGEST_ANSWER).await?);
        }
        Err(self.refused(coming).await?)
    }

    async fn refused(&self, coming: StreamingResponse) -> Result<Error, TransportError> {
        let answer = coming.read_all(self.answer_timeout(), LARGEST_ANSWER).await?;
        let sent = self.token().map_or("", |token| token.expose_secret());
        Ok(refusal((answer.status, &answer.headers, &answer.body), TO.name, TO.since, sent))
    }
}

impl Snapshot {
    /// The next bytes; `None` after the last.
    ///
    /// # Errors
    /// The server sends nothing more, or what came is no whole snapshot.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let damaged = |error: SnapshotError| {
            let text = format!("what came is no whole snapshot: {error}");
            Error::Unexpected { status: StatusCode::OK.as_u16(), text }
        };
        let Some(bytes) = self.coming.chunk(STALL).await? else {
            self.reader.finish().map_err(damaged)?;
            return Ok(None);
        };
        self.reader.feed(&bytes);
        while self.reader.piece().map_err(damaged)?.is_some() {}
        Ok(Some(bytes))
    }

    /// How many records came.
    pub fn records(&self) -> u64 {
        self.reader.records()
    }
}
