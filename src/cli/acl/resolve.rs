//! Resolves an argument (an id, a prefix of one, or a name) to an id.

use keyward_acl::client::{AclClientError, AclLink, QueryOptions, TokenListFilter};
use keyward_acl::model::id::Id;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::Exit;

/// Resolves an accessor, or a prefix of one, to a token.
pub(super) async fn token(service: &AclConnection, text: &str) -> Result<Id, CommandFailure> {
    if let Some(id) = parse_id(text) {
        return Ok(id);
    }
    let start = id_prefix(text).ok_or_else(|| none("token", text, "accessor"))?;
    let all = service.client.list_tokens(&TokenListFilter::default(), &QueryOptions::default()).await?.value;
    single_id("token", "tokens", &start, all.iter().map(|token| token.accessor_id))
}

/// Resolves a name, an id or a prefix of one to a role.
pub(super) async fn role(service: &AclConnection, text: &str) -> Result<Id, CommandFailure> {
    if let Some(id) = parse_id(text) {
        return Ok(id);
    }
    match service.client.read_role_by_name(text, &QueryOptions::default()).await {
        Ok(role) => return Ok(role.value.id),
        Err(AclClientError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let start = id_prefix(text).ok_or_else(|| none("role", text, "name or id"))?;
    let all = service.client.list_roles(None, &QueryOptions::default()).await?.value;
    single_id("role", "roles", &start, all.iter().map(|role| role.id))
}

/// Resolves a name, an id or a prefix of one to a policy.
pub(super) async fn policy(service: &AclConnection, text: &str) -> Result<Id, CommandFailure> {
    if let Some(id) = parse_id(text) {
        return Ok(id);
    }
    match service.client.read_policy_by_name(text, &QueryOptions::default()).await {
        Ok(policy) => {
            return parse_id(&policy.value.id).ok_or_else(|| none("policy", text, "id"));
        }
        Err(AclClientError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let start = id_prefix(text).ok_or_else(|| none("policy", text, "name or id"))?;
    policy_by_id_prefix(service, &start).await
}

/// Resolves an id, or a prefix of one, to a binding rule.
pub(super) async fn binding_rule(service: &AclConnection, text: &str) -> Result<Id, CommandFailure> {
    if let Some(id) = parse_id(text) {
        return Ok(id);
    }
    let start = id_prefix(text).ok_or_else(|| none("binding rule", text, "id"))?;
    let all = service.client.list_binding_rules(None, &QueryOptions::default()).await?.value;
    single_id("binding rule", "binding rules", &start, all.iter().map(|rule| rule.id))
}

/// Makes links to policies from ids, prefixes of ids, and names; the server looks up names.
pub(super) async fn policy_links(
    service: &AclConnection,
    ids: &[String],
    names: &[String],
) -> Result<Vec<AclLink>, CommandFailure> {
    let mut links = Vec::new();
    for text in ids {
        let id = match (parse_id(text), id_prefix(text)) {
            (Some(id), _) => id,
            (None, Some(start)) => policy_by_id_prefix(service, &start).await?,
            (None, None) => return Err(none("policy", text, "id")),
        };
        links.push(AclLink::by_id(id));
    }
    links.extend(names.iter().map(AclLink::by_name));
    Ok(links)
}

/// Links to roles, as [`policy_links`].
pub(super) async fn role_links(
    service: &AclConnection,
    ids: &[String],
    names: &[String],
) -> Result<Vec<AclLink>, CommandFailure> {
    let mut links = Vec::new();
    for text in ids {
        let id = match (parse_id(text), id_prefix(text)) {
            (Some(id), _) => id,
            (None, Some(start)) => {
                let all = service.client.list_roles(None, &QueryOptions::default()).await?.value;
                single_id("role", "roles", &start, all.iter().map(|role| role.id))?
            }
            (None, None) => return Err(none("role", text, "id")),
        };
        links.push(AclLink::by_id(id));
    }
    links.extend(names.iter().map(AclLink::by_name));
    Ok(links)
}

async fn policy_by_id_prefix(service: &AclConnection, start: &str) -> Result<Id, CommandFailure> {
    let all = service.client.list_policies(&QueryOptions::default()).await?.value;
    single_id("policy", "policies", start, all.iter().filter_map(|policy| parse_id(&policy.id)))
}

fn parse_id(text: &str) -> Option<Id> {
    text.parse().ok()
}

/// The text as the beginning of an id, if it can be one.
fn id_prefix(text: &str) -> Option<String> {
    let fits =
        (MIN_PREFIX_LENGTH..36).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    fits.then(|| text.to_ascii_lowercase())
}

/// Minimum length of an id prefix: shorter ones are likely typing errors.
const MIN_PREFIX_LENGTH: usize = 4;

fn single_id(kind: &str, plural: &str, start: &str, ids: impl Iterator<Item = Id>) -> Result<Id, CommandFailure> {
    let matches: Vec<Id> = ids.filter(|id| id.to_string().starts_with(start)).collect();
    match matches.as_slice() {
        [id] => Ok(*id),
        [] => Err(none(kind, start, "id")),
        many => {
            let count = many.len();
            let first = many[0];
            let text =
                format!("{count} {plural} have ids that begin with {start:?}, such as {first}: write a longer prefix");
            Err(CommandFailure::new(Exit::Failed, text))
        }
    }
}

fn none(kind: &str, text: &str, key: &str) -> CommandFailure {
    CommandFailure::new(
        Exit::Missing,
        format!("no {kind} has the {key} {text:?}; {MIN_PREFIX_LENGTH} characters or more of an id are enough"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_a_unique_prefix() {
        let ids = ["6a1253d2-1785-24fd-91c2-f8e78c745511", "6a125fff-1785-24fd-91c2-f8e78c745511"];
        let check = |text: &str, expected: Result<&str, &str>| {
            let ids = ids.iter().map(|id| id.parse::<Id>().unwrap());
            let found = id_prefix(text)
                .ok_or_else(|| none("token", text, "accessor"))
                .and_then(|start| single_id("token", "tokens", &start, ids));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                (Err(found), Err(expected)) => assert!(found.text.contains(expected), "{text}: {found:?}"),
                (found, expected) => panic!("{text}: {found:?} instead of {expected:?}"),
            }
        };
        check("6a1253", Ok(ids[0]));
        check("6A125F", Ok(ids[1]));
        check("6a1253d2-17", Ok(ids[0]));
        check("6a125", Err("2 tokens have ids that begin with"));
        check("6a1", Err("no token has the accessor \"6a1\""));
        check("ffff", Err("no token has the id \"ffff\""));
        check("web", Err("no token has the accessor \"web\""));
        check("", Err("no token"));
    }
}
