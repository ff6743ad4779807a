//! Prints a token.

use std::time::SystemTime;

use keyward_acl::client::{Token, TokenExpansion};
use keyward_acl::model::timestamp::Timestamp;
use serde_json::Value;

use super::connection::AclConnection;
use super::output::{self, Fields};
use super::secret_output::SecretDisplay;

/// Prints a token; `SecretDisplay` decides about its secret. `date` is the server's clock, if known.
pub(super) fn token(service: &AclConnection, token: &Token, secret: &SecretDisplay, date: Option<SystemTime>) {
    service.show(&as_json(token, secret), || fields(token, secret, now(date)).print());
}

/// Prints a token and all that its rights come from.
pub(super) fn print_with_expansion(
    service: &AclConnection,
    (token, expansion): &(Token, TokenExpansion),
    secret: &SecretDisplay,
    date: Option<SystemTime>,
) {
    let mut json = as_json(token, secret);
    if let (Value::Object(json), Ok(Value::Object(more))) = (&mut json, serde_json::to_value(expansion)) {
        json.extend(more);
    }
    service.show(&json, || {
        let mut fields = fields(token, secret, now(date));
        let roles = expansion.expanded_roles.iter().map(|role| format!("{} ({})", role.name, role.id));
        fields
            .list_field("All roles", roles)
            .list_field("Default policies", expansion.namespace_default_policy_ids.clone())
            .list_field("Default roles", expansion.namespace_default_role_ids.clone())
            .add("Where no rule is", &expansion.agent_acl_default_policy)
            .print();
        output::policies(&expansion.expanded_policies);
    });
}

/// Remaining lifetimes are computed with the server's clock, or with ours if the response has no date.
pub(super) fn now(date: Option<SystemTime>) -> Timestamp {
    Timestamp::from_system_time(date.unwrap_or_else(SystemTime::now))
}

fn fields(token: &Token, secret: &SecretDisplay, now: Timestamp) -> Fields {
    let mut fields = Fields::default();
    fields
        .add("AccessorID", token.accessor_id)
        .add("SecretID", secret.text())
        .optional("Namespace", token.namespace.as_ref())
        .add("Description", &token.description)
        .add("Local", token.local)
        .optional("Auth method", token.auth_method.as_ref())
        .optional("Created", token.create_time)
        .add("Ends", output::end(token.expiration_time, now))
        .list_field("Roles", token.roles.iter().map(output::link))
        .links(&token.links);
    fields
}

/// A token as JSON, with its secret where that is to be printed.
pub(super) fn as_json(token: &Token, secret: &SecretDisplay) -> Value {
    let mut json = serde_json::to_value(token).unwrap_or_default();
    if let (Some(plain), Value::Object(fields)) = (secret.plain(), &mut json) {
        fields.insert("SecretID".to_owned(), plain.into());
    }
    json
}
