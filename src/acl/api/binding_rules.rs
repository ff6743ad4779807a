//! JSON of binding rules.

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::json::JsonFields;
use super::records::{ApiRecord, ViewForm};
use super::request::DEFAULT_PARTITION;
use super::views::LinkView;
use crate::model::binding_rule::{BindingRuleRecord, NewBindingRule};
use crate::model::id::Id;
use crate::service::typed_store::Stored;

/// JSON view of a binding rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindingRuleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    description: &'a str,
    auth_method: &'a str,
    selector: &'a str,
    bind_type: &'static str,
    bind_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bind_vars: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

impl ApiRecord for BindingRuleRecord {
    const TITLE: &'static str = "Binding Rule";
    const BODY: &'static str = "BindingRule";
    const FILTER: Option<&'static str> = Some("authmethod");
    type View<'a> = BindingRuleView<'a>;

    fn view(rule: &Stored<Self>, _form: ViewForm, _policies: Vec<LinkView>) -> BindingRuleView<'_> {
        let record = &rule.value;
        BindingRuleView {
            id: record.id,
            description: &record.description,
            auth_method: &record.auth_method,
            selector: &record.selector,
            bind_type: record.bind.kind.as_str(),
            bind_name: &record.bind.name,
            bind_vars: record.bind.vars.as_ref(),
            namespace: record.namespace.as_str(),
            partition: DEFAULT_PARTITION,
            create_index: rule.created.0,
            modify_index: rule.modified.0,
        }
    }

    fn parse_draft(fields: &mut JsonFields) -> Result<(Option<String>, NewBindingRule), ApiError> {
        let bind_vars = fields.map("BindVars")?;
        let id = fields.string("ID")?;
        let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
        let draft = NewBindingRule {
            description: text("Description")?,
            auth_method: text("AuthMethod")?,
            selector: text("Selector")?,
            bind_type: text("BindType")?,
            bind_name: text("BindName")?,
            bind_vars,
        };
        Ok((id, draft))
    }
}
