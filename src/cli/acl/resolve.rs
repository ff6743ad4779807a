//! Resolves an argument (an id, a prefix of one, or a name) to an id.

use keyward_acl::client::{AclClientError, AclLink, AclRecord, QueryOptions};
use keyward_acl::model::id::Id;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::Exit;

/// Kind of record that an argument names by its id or a prefix of it, and if it has names, by its name.
pub(super) trait IdRecord: AclRecord<Id = Id> {
    /// Keys of a record in errors.
    const KEYS: &'static str;
    /// True if records have names.
    const HAS_NAMES: bool = false;

    /// Returns the id; `None` for a record that is not stored.
    fn id(&self) -> Option<Id>;
}

/// Resolves an argument to the id of a record.
pub(super) async fn id<R: IdRecord>(service: &AclConnection, text: &str) -> Result<Id, CommandFailure> {
    if let Some(id) = parse_id(text) {
        return Ok(id);
    }
    if R::HAS_NAMES {
        match service.client.read_by_name::<R>(text, &QueryOptions::default()).await {
            Ok(record) => return record.value.id().ok_or_else(|| none(R::KIND, text, "id")),
            Err(AclClientError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    by_prefix::<R>(service, text, R::KEYS).await
}

/// Resolves an optional argument, as [`id`] does.
pub(super) async fn optional_id<R: IdRecord>(
    service: &AclConnection,
    text: Option<&str>,
) -> Result<Option<Id>, CommandFailure> {
    match text {
        Some(text) => id::<R>(service, text).await.map(Some),
        None => Ok(None),
    }
}

/// Makes links to records from ids, prefixes of ids, and names; the server looks up names.
pub(super) async fn links<R: IdRecord>(
    service: &AclConnection,
    ids: &[String],
    names: &[String],
) -> Result<Vec<AclLink>, CommandFailure> {
    let mut links = Vec::new();
    for text in ids {
        let id = match parse_id(text) {
            Some(id) => id,
            None => by_prefix::<R>(service, text, "id").await?,
        };
        links.push(AclLink::by_id(id));
    }
    links.extend(names.iter().map(AclLink::by_name));
    Ok(links)
}

/// Finds the record whose id begins with a text; `keys` are those of an error.
async fn by_prefix<R: IdRecord>(service: &AclConnection, text: &str, keys: &str) -> Result<Id, CommandFailure> {
    let start = id_prefix(text).ok_or_else(|| none(R::KIND, text, keys))?;
    let all = service.client.list::<R>(&R::Filter::default(), &QueryOptions::default()).await?.value;
    single_id(R::KIND, R::PLURAL, &start, all.iter().filter_map(R::id))
}

pub(super) fn parse_id(text: &str) -> Option<Id> {
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
