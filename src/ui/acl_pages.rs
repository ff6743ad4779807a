//! Pages of the ACL server: reads what they show by its API, with the browser's token.

use std::borrow::Cow;
use std::time::SystemTime;

use http::StatusCode;
use keyward_http::in_process::InProcessService;
use keyward_machine::secret_string::SecretString;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::page_request::PageRequest;
use super::pages::acl::{self, AclKind};
use super::request::{self, SourceError};
use super::response::{PageResponse, html};

/// Pages of the ACL server, with the rights of the browser's token.
pub(super) struct AclPages<'a> {
    pub(super) service: &'a InProcessService,
    pub(super) token: &'a SecretString,
    pub(super) request: &'a PageRequest,
    pub(super) now: SystemTime,
}

impl AclPages<'_> {
    pub(super) async fn respond(&self, rest: &str) -> Result<PageResponse, SourceError> {
        let mut segments = rest.split('/');
        let kind = segments.next().and_then(AclKind::parse).ok_or_else(SourceError::not_found)?;
        match (segments.next().map(decode), segments.next(), segments.next()) {
            (None, None, None) => self.list(kind).await,
            (Some(id), None, None) => self.record(kind, &id?).await,
            (Some(id), Some("explain"), None) if kind == AclKind::Token => self.explain(&id?).await,
            _ => Err(SourceError::not_found()),
        }
    }

    fn namespace(&self) -> &str {
        self.request.query.get("ns")
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, SourceError> {
        request::get(self.service, path, Some(self.token)).await
    }

    async fn list(&self, kind: AclKind) -> Result<PageResponse, SourceError> {
        let records: Vec<Value> = self.read(&kind.api_list(self.namespace())).await?;
        let search = self.request.query.get("q");
        let page = acl::list_page(self.request.frame, kind, &records, self.namespace(), search, self.now);
        Ok(html(StatusCode::OK, page))
    }

    async fn record(&self, kind: AclKind, id: &str) -> Result<PageResponse, SourceError> {
        let record: Map<String, Value> = self.read(&kind.api_read(id, self.namespace())).await?;
        let record = Value::Object(record);
        let mut dependents = Vec::new();
        for list in kind.dependents(id, &record, self.namespace()) {
            let mut records: Vec<Value> = self.read(&list.api_path).await?;
            if let Some((field, text)) = &list.matching {
                records.retain(|record| record[*field].as_str() == Some(text));
            }
            dependents.push((list.kind, records));
        }
        let Value::Object(record) = record else { return Err(SourceError::not_found()) };
        let page = acl::record_page(self.request.frame, kind, &record, &dependents, self.namespace(), self.now);
        Ok(html(StatusCode::OK, page))
    }

    async fn explain(&self, accessor: &str) -> Result<PageResponse, SourceError> {
        let field = |name: &str| self.request.query.get(name);
        let path = acl::explain_path(accessor, self.namespace());
        let body = acl::request_body(field);
        let responses: Vec<acl::Explained> = request::post(self.service, &path, Some(self.token), &body).await?;
        let accesses = body.as_array().map(Vec::as_slice).unwrap_or_default();
        let access = |request: &Value| request["Access"].as_str().unwrap_or_default().to_owned();
        let explained: Vec<(String, acl::Explained)> = accesses.iter().map(access).zip(responses).collect();
        let page = acl::explain_page(self.request.frame, accessor, self.namespace(), field, &explained);
        Ok(html(StatusCode::OK, page))
    }
}

fn decode(segment: &str) -> Result<String, SourceError> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| SourceError::not_found())
}
