//! What a body says of a token.

use crate::acl::api::error::ApiError;
use crate::acl::api::json::Fields;
use crate::acl::api::request::stated;
use crate::acl::api::views::{READ_ONLY, duration, link_drafts, links_draft};
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::service::tokens::TokenDraft;

/// Takes a draft, and the namespace that the body names. All fields that a read of a token gives are known.
pub(super) fn draft(mut fields: Fields) -> Result<(TokenDraft, Option<String>), ApiError> {
    let namespace = stated(&mut fields)?;
    let draft = TokenDraft {
        accessor: fields.text("AccessorID")?.filter(|id| !id.is_empty()),
        secret: fields.text("SecretID")?.as_deref().map(PlainSecret::presented),
        description: fields.text("Description")?.unwrap_or_default(),
        links: links_draft(&mut fields)?,
        roles: link_drafts(&mut fields, "Roles")?,
        local: fields.flag("Local")?.unwrap_or_default(),
        auth_method: fields.text("AuthMethod")?,
        expiration_time: time(&mut fields, "ExpirationTime")?,
        expiration_ttl: duration(&mut fields, "ExpirationTTL")?,
    };
    fields.pass_over(READ_ONLY);
    fields.pass_over(&["CreateTime", "AuthMethodNamespace"]);
    fields.pass_over(EXPANDED);
    fields.finish()?;
    Ok((draft, namespace))
}

/// What an expanded read gives besides.
const EXPANDED: &[&str] = &[
    "ExpandedPolicies",
    "ExpandedRoles",
    "NamespaceDefaultPolicyIDs",
    "NamespaceDefaultRoleIDs",
    "AgentACLDefaultPolicy",
    "AgentACLDownPolicy",
    "ResolvedByAgent",
];

/// How Go's clients write a time that is not set.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

fn time(fields: &mut Fields, name: &str) -> Result<Option<Timestamp>, ApiError> {
    match fields.text(name)?.as_deref() {
        None | Some("" | ZERO_TIME) => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|reason| ApiError::from(fields.refusal(name, &reason))),
    }
}
