//! Calls for records: once for all kinds. A kind adds its types and its paths by [`AclRecord`].

use std::borrow::Cow;

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::acl_client::{AclClient, Endpoint, parse};
use super::error::AclClientError;
use super::query::{QueryOptions, ReadResponse};
use crate::model::id::Id;

/// Kind of record, as the server returns it.
pub trait AclRecord: DeserializeOwned {
    /// Id of a record, or its name if the kind has no ids.
    type Id: ?Sized + ToString + Sync;
    /// Record to be created.
    type New: Serialize + Sync;
    /// New content of a record. It replaces all mutable fields.
    type Update: Serialize + Sync;
    /// Filter of a list; the default selects all.
    type Filter: Default + Sync;

    /// Name of the kind in messages.
    const KIND: &'static str;
    /// Name of several records in messages.
    const PLURAL: &'static str;
    /// Segments of the path of a new record, with which those of a record's path begin.
    const PATH: &'static [&'static str];
    /// Segments of the path of the list.
    const LIST_PATH: &'static [&'static str];
    /// First version of Consul with the calls; `None` if all have them.
    const SINCE: Option<&'static str> = None;
    /// False if the records are in no namespace.
    const IS_IN_NAMESPACE: bool = true;

    /// Returns a filter as parameters of the query.
    fn parameters(_filter: &Self::Filter) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl AclClient {
    /// Creates a record.
    pub async fn create<R: AclRecord>(&self, new: &R::New) -> Result<R, AclClientError> {
        self.scoped::<R>().send_json(Method::PUT, &endpoint::<R>(R::PATH), new).await
    }

    /// Reads a record.
    pub async fn read<R: AclRecord>(
        &self,
        id: &R::Id,
        query: &QueryOptions,
    ) -> Result<ReadResponse<R>, AclClientError> {
        self.scoped::<R>().get(&endpoint::<R>(&[R::PATH, &[&id.to_string()]].concat()), &[], query).await
    }

    /// Reads the record of a name, of a kind that has ids and names.
    pub async fn read_by_name<R: AclRecord<Id = Id>>(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<ReadResponse<R>, AclClientError> {
        self.scoped::<R>().get(&endpoint::<R>(&[R::PATH, &["name", name]].concat()), &[], query).await
    }

    /// Replaces the mutable fields of a record.
    pub async fn update<R: AclRecord>(&self, id: &R::Id, update: &R::Update) -> Result<R, AclClientError> {
        let id = id.to_string();
        let path = [R::PATH, &[&id]].concat();
        self.scoped::<R>().send_json(Method::PUT, &endpoint::<R>(&path), update).await
    }

    /// Deletes a record; a namespace is only marked for deletion. Returns false if there was none, by status or by body.
    pub async fn delete<R: AclRecord>(&self, id: &R::Id) -> Result<bool, AclClientError> {
        let id = id.to_string();
        let path = [R::PATH, &[&id]].concat();
        match self.scoped::<R>().call(Method::DELETE, &endpoint::<R>(&path)).await {
            // Deletions of namespaces have no response body.
            Ok(response) if response.body.trim_ascii().is_empty() => Ok(true),
            Ok(response) => parse(&response),
            // Consul from 1.15 on; older versions and keyward answer with a bool.
            Err(AclClientError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists records. Policies lack their rules, and auth methods the configuration of their type.
    pub async fn list<R: AclRecord>(
        &self,
        filter: &R::Filter,
        query: &QueryOptions,
    ) -> Result<ReadResponse<Vec<R>>, AclClientError> {
        self.scoped::<R>().get(&endpoint::<R>(R::LIST_PATH), &R::parameters(filter), query).await
    }

    /// Returns the client in its namespace, or in none if the kind is in none.
    fn scoped<R: AclRecord>(&self) -> Cow<'_, Self> {
        if R::IS_IN_NAMESPACE { Cow::Borrowed(self) } else { Cow::Owned(self.in_namespace(None)) }
    }
}

pub(super) fn endpoint<'a, R: AclRecord>(path: &'a [&'a str]) -> Endpoint<'a> {
    Endpoint { path, name: format!("calls for {}", R::PLURAL).into(), since: R::SINCE }
}
