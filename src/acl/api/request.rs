//! Request of the ACL API, as far as it is the same for every operation: token, namespace and body.

use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use keyward_telemetry::audit::AuditedRequest;

use super::body::{self, MAX_BODY};
use super::error::ApiError;
use super::json::JsonFields;
use super::query_string::{ConsistencyMode, QueryString};
use super::request_headers::{self, token_secret};
use super::response_cache::CacheKey;
use super::state::ApiState;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::{PlainSecret, SecretHash};
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::store::Freshness;
use keyward_http::server::IncomingBody;

/// Request for an operation.
#[derive(Debug)]
pub(super) struct ApiRequest {
    /// Variable part of the path, decoded: the id or name of a record.
    pub(super) subject: String,
    pub(super) query: QueryString,
    /// Secret of the caller's token.
    pub(super) secret: Option<PlainSecret>,
    /// Keyed hash of the secret, computed at first use.
    secret_hash: OnceLock<SecretHash>,
    /// Namespace of the query or a header.
    namespace: Option<String>,
    body: Option<IncomingBody>,
    /// The request as its audit records it; `None` without an audit.
    pub(super) audited: Option<AuditedRequest>,
}

/// Longest name, in characters, that an error repeats.
const MAX_ECHOED: usize = 128;

/// Namespaces that a list covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamespaceScope {
    One(NamespaceName),
    All,
}

impl NamespaceScope {
    /// Returns the namespace; `None` for all.
    pub(super) const fn single(&self) -> Option<&NamespaceName> {
        match self {
            Self::One(name) => Some(name),
            Self::All => None,
        }
    }
}

impl ApiRequest {
    /// Parses the head of a request. Refuses headers and parameters that contradict each other, and partitions that do
    /// not exist.
    pub(super) fn parse(
        subject: String,
        query: Option<&str>,
        headers: &HeaderMap,
        body: IncomingBody,
        token_in_query: bool,
    ) -> Result<Self, ApiError> {
        let query = QueryString::parse(query)?;
        let secret = token_secret(headers, &query, token_in_query)?;
        let namespace = match query.get("ns")? {
            Some(name) => Some(name.to_owned()),
            None => request_headers::namespace(headers)?,
        };
        let partition = match query.get("partition")? {
            Some(name) => Some(name.to_owned()),
            None => request_headers::partition(headers)?,
        };
        if let Some(name) = partition.filter(|name| !name.eq_ignore_ascii_case(DEFAULT_PARTITION)) {
            return Err(ApiError::UnknownPartition(name.chars().take(MAX_ECHOED).collect()));
        }
        let secret_hash = OnceLock::new();
        let body = Some(body);
        Ok(Self { subject, query, secret, secret_hash, namespace, body, audited: None })
    }

    fn secret_hash(&self, service: &AclService) -> Option<&SecretHash> {
        let secret = self.secret.as_ref()?;
        Some(self.secret_hash.get_or_init(|| service.authenticator().presented_hash(secret)))
    }

    /// Builds the key under which the response of a read is cached; `operation` is its index.
    pub(super) fn cache_key(&self, service: &AclService, operation: usize, mode: ConsistencyMode) -> CacheKey {
        let subject = self.subject.clone();
        let query = self.query.encode();
        let caller = self.secret_hash(service).cloned();
        let namespace = self.namespace.clone();
        CacheKey { caller, operation, subject, query, namespace, mode }
    }

    /// True if the query asks for indented JSON.
    pub(super) fn pretty(&self) -> bool {
        self.query.has("pretty")
    }

    /// Parses the id in the path; `kind` is the record's kind in errors, such as `role`.
    pub(super) fn id_from_path(&self, kind: &'static str) -> Result<Id, ApiError> {
        self.id_from_path_as(kind, "ID")
    }

    /// Parses the id in the path like [`ApiRequest::id_from_path`]; `field` is the id's name in errors.
    pub(super) fn id_from_path_as(&self, kind: &'static str, field: &'static str) -> Result<Id, ApiError> {
        if self.subject.is_empty() {
            return Err(ApiError::MissingSubject { kind, field });
        }
        let is_uuid_length = self.subject.len() == 36;
        self.subject.parse().map_err(|_| ApiError::MalformedId { kind, is_uuid_length })
    }

    /// Returns the name in the path; `kind` is the record's kind in errors.
    pub(super) fn name_from_path(&self, kind: &'static str) -> Result<&str, ApiError> {
        match self.subject.as_str() {
            "" => Err(ApiError::MissingSubject { kind, field: "Name" }),
            name => Ok(name),
        }
    }

    /// Reads the body as a JSON object; `kind` is the record's kind in errors, such as `Token`.
    pub(super) async fn json_body(&mut self, kind: &'static str) -> Result<JsonFields, ApiError> {
        Ok(JsonFields::parse(&self.read_body().await?, kind)?)
    }

    /// Reads the body, which is empty after that.
    pub(super) async fn read_body(&mut self) -> Result<Vec<u8>, ApiError> {
        match self.body.take() {
            Some(body) => Ok(body::read_bounded(body, MAX_BODY).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Takes the body unread.
    pub(super) fn take_body(&mut self) -> Option<IncomingBody> {
        self.body.take()
    }

    /// Authenticates the caller by its token; without one it is the anonymous caller.
    pub(super) async fn authenticate(&self, state: &ApiState, freshness: Freshness) -> Result<Arc<Caller>, ApiError> {
        let service = &state.service;
        let secret = self.secret.as_ref();
        let caller = service.authenticator().authenticate_hashed(self.secret_hash(service), secret, freshness).await?;
        self.audit_accessor(caller.accessor());
        Ok(caller)
    }

    /// Notes for the audit the accessor of the token that the request uses or gets; `None` for the anonymous token.
    pub(super) fn audit_accessor(&self, accessor: Option<Id>) {
        if let (Some(audited), Some(accessor)) = (&self.audited, accessor) {
            audited.set_accessor(Some(&accessor.to_string()));
        }
    }

    /// Returns the namespace of the request: of the body, the query, a header, or the caller's token, in this order. The
    /// anonymous token is in `default`. Refuses `*`.
    pub(super) fn namespace(&self, caller: &Caller, body_namespace: Option<&str>) -> Result<NamespaceName, ApiError> {
        match self.scope(caller, body_namespace)? {
            NamespaceScope::One(name) => Ok(name),
            NamespaceScope::All => Err(ApiError::WildcardNamespace),
        }
    }

    /// Returns the namespace of the auth method of a login, whose caller has no token: of `authmethod-ns`, the body, the
    /// query, a header, or `default`, in this order.
    pub(super) fn method_namespace(&self, body_namespace: Option<&str>) -> Result<NamespaceName, ApiError> {
        match self.query.get("authmethod-ns")?.or(body_namespace).or(self.namespace.as_deref()) {
            None => Ok(NamespaceName::default_namespace()),
            Some(name) => Self::parse_namespace(name),
        }
    }

    /// True if the query or a header names a namespace.
    pub(super) fn names_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// Returns the namespaces of the request, found like those of [`ApiRequest::namespace`]; `*` names all.
    pub(super) fn scope(&self, caller: &Caller, body_namespace: Option<&str>) -> Result<NamespaceScope, ApiError> {
        let body_namespace = body_namespace.filter(|name| !name.is_empty());
        match body_namespace.or(self.namespace.as_deref()) {
            None => Ok(NamespaceScope::One(caller.namespace().clone())),
            Some("*") => Ok(NamespaceScope::All),
            Some(name) => Self::parse_namespace(name).map(NamespaceScope::One),
        }
    }

    /// Parses the name of a namespace.
    pub(super) fn parse_namespace(name: &str) -> Result<NamespaceName, ApiError> {
        name.parse::<NamespaceName>().map_err(|reason| {
            let name: String = name.chars().take(MAX_ECHOED).collect();
            ApiError::InvalidNamespace { name, reason: reason.to_string() }
        })
    }
}

/// The only admin partition: the API has no call that creates another.
pub(super) const DEFAULT_PARTITION: &str = "default";

/// Takes `Namespace` and `Partition` from a body, and returns the namespace.
pub(super) fn take_namespace(fields: &mut JsonFields) -> Result<Option<String>, ApiError> {
    take_partition(fields)?;
    Ok(fields.string("Namespace")?.filter(|name| !name.is_empty()))
}

/// Takes `Partition` from a body.
pub(super) fn take_partition(fields: &mut JsonFields) -> Result<(), ApiError> {
    match fields.string("Partition")?.filter(|name| !name.is_empty()) {
        Some(name) if !name.eq_ignore_ascii_case(DEFAULT_PARTITION) => {
            Err(ApiError::UnknownPartitionInBody(name.chars().take(MAX_ECHOED).collect()))
        }
        _ => Ok(()),
    }
}
