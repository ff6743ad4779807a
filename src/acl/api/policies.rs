//! JSON of policies.

use std::borrow::Cow;

use serde::Serialize;

use super::error::ApiError;
use super::json::JsonFields;
use super::records::{ApiRecord, ViewForm};
use super::request::DEFAULT_PARTITION;
use super::views::LinkView;
use crate::model::names::NamespaceName;
use crate::model::policy::{NewPolicy, PolicyRecord};
use crate::model::templated::SyntheticPolicy;
use crate::service::typed_store::Stored;

/// JSON view of a policy. In lists `Rules` is absent and `Datacenters` is `null` for all, as in Consul.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PolicyView<'a> {
    #[serde(rename = "ID")]
    id: String,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a str>,
    #[serde(skip_serializing_if = "Datacenters::is_omitted")]
    datacenters: Datacenters<'a>,
    hash: Cow<'a, str>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Datacenters<'a> {
    Some(&'a [String]),
    Null(()),
    Omitted,
}

impl Datacenters<'_> {
    fn is_omitted(&self) -> bool {
        matches!(self, Self::Omitted)
    }
}

/// Builds the view of a policy generated for a token in `namespace`; it has no record.
pub(super) fn synthetic_view<'a>(policy: &'a SyntheticPolicy, namespace: &'a NamespaceName) -> PolicyView<'a> {
    PolicyView {
        id: policy.id.clone(),
        name: &policy.name,
        description: &policy.description,
        rules: Some(&policy.rules),
        datacenters: match policy.datacenters.as_slice() {
            [] => Datacenters::Omitted,
            some => Datacenters::Some(some),
        },
        hash: (&policy.hash).into(),
        namespace: namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: 0,
        modify_index: 0,
    }
}

impl ApiRecord for PolicyRecord {
    const TITLE: &'static str = "Policy";
    const BODY: &'static str = "Policy";
    type View<'a> = PolicyView<'a>;

    fn view(policy: &Stored<Self>, form: ViewForm, _policies: Vec<LinkView>) -> PolicyView<'_> {
        let record = &policy.value;
        let in_list = form == ViewForm::Listed;
        PolicyView {
            id: record.id.to_string(),
            name: &record.name,
            description: &record.description,
            rules: (!in_list).then_some(&record.rules),
            datacenters: match (record.datacenters.is_empty(), in_list) {
                (false, _) => Datacenters::Some(&record.datacenters),
                (true, true) => Datacenters::Null(()),
                (true, false) => Datacenters::Omitted,
            },
            hash: record.content_hash().into(),
            namespace: record.namespace.as_str(),
            partition: DEFAULT_PARTITION,
            create_index: policy.created.0,
            modify_index: policy.modified.0,
        }
    }

    fn parse_draft(fields: &mut JsonFields) -> Result<(Option<String>, NewPolicy), ApiError> {
        let id = fields.string("ID")?;
        let draft = NewPolicy {
            name: fields.string("Name")?.unwrap_or_default(),
            description: fields.string("Description")?.unwrap_or_default(),
            rules: fields.string("Rules")?.unwrap_or_default(),
            datacenters: fields.strings("Datacenters")?,
        };
        Ok((id, draft))
    }
}
