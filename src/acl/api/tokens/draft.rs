//! Token bodies of requests.

use crate::api::error::ApiError;
use crate::api::json::JsonFields;
use crate::api::request::take_namespace;
use crate::api::views::{READ_ONLY, parse_duration, parse_link_list, parse_links};
use crate::model::secret::PlainSecret;
use crate::model::timestamp::Timestamp;
use crate::service::tokens::TokenDraft;

/// Parses a body into the draft and the namespace. All fields of a token read are known, so that clients may send one back.
pub(super) fn parse_draft(mut fields: JsonFields) -> Result<(TokenDraft, Option<String>), ApiError> {
    let namespace = take_namespace(&mut fields)?;
    let draft = TokenDraft {
        accessor: fields.string("AccessorID")?.filter(|id| !id.is_empty()),
        secret: fields.string("SecretID")?.as_deref().map(PlainSecret::from_presented),
        description: fields.string("Description")?.unwrap_or_default(),
        links: parse_links(&mut fields)?,
        roles: parse_link_list(&mut fields, "Roles")?,
        local: fields.bool("Local")?.unwrap_or_default(),
        auth_method: fields.string("AuthMethod")?,
        expiration_time: parse_time(&mut fields, "ExpirationTime")?,
        expiration_ttl: parse_duration(&mut fields, "ExpirationTTL")?,
    };
    fields.ignore(READ_ONLY);
    fields.ignore(&["CreateTime", "AuthMethodNamespace"]);
    fields.ignore(EXPANDED_FIELDS);
    fields.finish()?;
    Ok((draft, namespace))
}

/// Read-only fields of an expanded read.
const EXPANDED_FIELDS: &[&str] = &[
    "ExpandedPolicies",
    "ExpandedRoles",
    "NamespaceDefaultPolicyIDs",
    "NamespaceDefaultRoleIDs",
    "AgentACLDefaultPolicy",
    "AgentACLDownPolicy",
    "ResolvedByAgent",
];

/// Zero value of Go's `time.Time`, which Go clients send for an absent time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

fn parse_time(fields: &mut JsonFields, name: &str) -> Result<Option<Timestamp>, ApiError> {
    match fields.string(name)?.as_deref() {
        None | Some("" | ZERO_TIME) => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|reason| ApiError::from(fields.invalid_value(name, &reason))),
    }
}
