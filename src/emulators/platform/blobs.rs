//! States and archives at URLs that need no token: the URL is the secret.

use std::collections::HashMap;

use bytes::Bytes;

use super::ids;
use super::reply::ApiError;

/// Resource that a blob belongs to, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    State(String),
    JsonState(String),
    Archive(String),
}

#[derive(Debug)]
struct Blob {
    purpose: Purpose,
    bytes: Option<Bytes>,
}

/// All blobs, by the secret at the end of their URL.
#[derive(Debug, Default)]
pub(super) struct Blobs {
    blobs: HashMap<String, Blob>,
    bytes: usize,
}

/// Maximum of all blobs together, in bytes.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Path of blobs on the platform. HCP Terraform has them on another host.
pub(super) const PATH: &str = "/_archivist/v1/object/";

impl Blobs {
    /// Reserves a blob for a later upload; returns its secret.
    pub(super) fn make(&mut self, purpose: Purpose) -> String {
        let secret = ids::url_secret();
        self.blobs.insert(secret.clone(), Blob { purpose, bytes: None });
        secret
    }

    /// Stores an upload; returns its purpose.
    pub(super) fn put(&mut self, secret: &str, bytes: Bytes) -> Result<Purpose, ApiError> {
        let blob = self.blobs.get_mut(secret).ok_or_else(ApiError::not_found)?;
        let previous_bytes = blob.bytes.as_ref().map_or(0, Bytes::len);
        let total = self.bytes + bytes.len() - previous_bytes;
        if total > MAX_BYTES {
            return Err(ApiError::too_large());
        }
        self.bytes = total;
        blob.bytes = Some(bytes);
        Ok(blob.purpose.clone())
    }

    /// Returns the uploaded bytes.
    pub(super) fn get(&self, secret: &str) -> Option<Bytes> {
        self.blobs.get(secret)?.bytes.clone()
    }

    pub(super) fn remove(&mut self, secret: &str) {
        if let Some(blob) = self.blobs.remove(secret) {
            self.bytes -= blob.bytes.map_or(0, |bytes| bytes.len());
        }
    }
}
