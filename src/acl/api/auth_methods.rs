//! JSON of auth methods.

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::json::JsonFields;
use super::records::{ApiRecord, ViewForm};
use super::request::{ApiRequest, DEFAULT_PARTITION, NamespaceScope};
use super::request_context::RequestContext;
use super::response::WriteResult;
use super::state::ApiState;
use super::views::{LinkView, parse_duration};
use crate::model::auth_method::{AuthMethodRecord, Locality, MethodType, NamespaceRule};
use crate::model::go_duration::GoDuration;
use crate::model::names::NamespaceName;
use crate::service::auth_methods::AuthMethodDraft;
use crate::service::caller::{Caller, Privilege};
use crate::service::records::RecordKind;
use crate::service::typed_store::Stored;

/// JSON view of a stored auth method.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StoredMethodView<'a> {
    name: &'a str,
    #[serde(rename = "Type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    display_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "MaxTokenTTL", skip_serializing_if = "Option::is_none")]
    max_token_ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_locality: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespace_rules: Vec<NamespaceRuleView<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    token_name_format: &'a str,
    /// Absent in lists, as in Consul.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// JSON view of an auth method of the configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ConfiguredMethodView<'a> {
    name: &'a str,
    #[serde(rename = "Type")]
    kind: &'static str,
    description: String,
    configured: bool,
    roles: Vec<&'a str>,
    namespace: NamespaceName,
}

/// JSON view of an auth method.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum MethodView<'a> {
    Stored(StoredMethodView<'a>),
    Configured(ConfiguredMethodView<'a>),
}

/// JSON view of a namespace rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NamespaceRuleView<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    selector: &'a str,
    bind_namespace: &'a str,
}

impl ApiRecord for AuthMethodRecord {
    const TITLE: &'static str = "Auth Method";
    const BODY: &'static str = "AuthMethod";
    type View<'a> = MethodView<'a>;

    fn view(method: &Stored<Self>, form: ViewForm, _policies: Vec<LinkView>) -> MethodView<'_> {
        let record = &method.value;
        MethodView::Stored(StoredMethodView {
            name: &record.name,
            kind: record.kind.as_str(),
            display_name: &record.display_name,
            description: &record.description,
            max_token_ttl: record.max_token_ttl.map(|ttl| GoDuration::from_duration(ttl).to_string()),
            token_locality: record.locality.map(Locality::as_str),
            namespace_rules: record
                .namespace_rules
                .iter()
                .map(|rule| NamespaceRuleView { selector: &rule.selector, bind_namespace: &rule.bind_namespace })
                .collect(),
            token_name_format: &record.token_name_format,
            config: Some(&record.config).filter(|_| form == ViewForm::Single),
            namespace: record.namespace.as_str(),
            partition: DEFAULT_PARTITION,
            create_index: method.created.0,
            modify_index: method.modified.0,
        })
    }

    /// Lists the methods of the configuration too, if the query asks for them. Clients of Consul do not: they would read, change
    /// or delete them, which only the configuration can.
    fn lists_more(request: &ApiRequest, caller: &Caller, scope: &NamespaceScope) -> Result<bool, ApiError> {
        Ok(request.query.parse_flag("configured")?
            && scope.single().is_none_or(NamespaceName::is_default)
            && caller.has(Privilege::AclRead, &NamespaceName::default_namespace()))
    }

    fn list_more(state: &ApiState) -> Vec<MethodView<'_>> {
        let methods = state.methods.configured().map(|(name, roles)| {
            MethodView::Configured(ConfiguredMethodView {
                name,
                kind: MethodType::Cloud.as_str(),
                description: format!(
                    "acl.method.{name} of the configuration, with the login roles {}",
                    roles.join(", ")
                ),
                configured: true,
                roles,
                namespace: NamespaceName::default_namespace(),
            })
        });
        methods.collect()
    }

    fn parse_draft(fields: &mut JsonFields) -> Result<(Option<String>, AuthMethodDraft), ApiError> {
        let max_token_ttl = parse_duration(fields, "MaxTokenTTL")?;
        let config = fields.map("Config")?.unwrap_or_default();
        let namespace_rules = fields.objects("NamespaceRules", |rule| {
            Ok(NamespaceRule {
                selector: rule.string("Selector")?.unwrap_or_default(),
                bind_namespace: rule.string("BindNamespace")?.unwrap_or_default(),
            })
        })?;
        let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
        let draft = AuthMethodDraft {
            name: text("Name")?,
            kind: text("Type")?,
            display_name: text("DisplayName")?,
            description: text("Description")?,
            max_token_ttl,
            locality: text("TokenLocality")?,
            namespace_rules,
            token_name_format: text("TokenNameFormat")?,
            config,
        };
        Ok((Some(draft.name.clone()), draft))
    }
}

/// Deletes an auth method with its binding rules and tokens.
pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let name = request.name_from_path(AuthMethodRecord::NAME)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.auth_methods().delete(&context.caller, &context.namespace, name).await?;
    context.into_deletion(request, deleted, name)
}
