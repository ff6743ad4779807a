//! The ACL server: rules, bodies of requests, snapshots, selectors, and key sets of issuers.

use std::sync::Arc;

use keyward_acl::api::json::{DecodeError, JsonFields};
use keyward_acl::model::authorize::{Access, DefaultPolicy, Grants, PolicyId, PolicyInScope, Resource};
use keyward_acl::model::rules::Rules;
use keyward_acl::model::snapshot::{SnapshotError, SnapshotPiece, SnapshotReader, SnapshotWriter};
use keyward_acl::service::issuer_keys;
use keyward_credentials::jwt::UnverifiedClaims;

/// Parses bytes as a policy's rules, and compares the decisions on every kind of resource.
pub(crate) fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let rules = match Rules::parse(text) {
        Ok(rules) => Arc::new(rules),
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("Failed to parse ACL rules: ") || message.starts_with("Invalid "), "{message}");
            assert!(!message.contains(char::is_control), "not one line: {message:?}");
            return;
        }
    };
    let build_grants = |namespace: &str, copies: usize| Grants {
        own_namespace: namespace.to_owned(),
        direct: vec![PolicyInScope::new(namespace, PolicyId::Synthetic("fuzzed".into()), Arc::clone(&rules)); copies],
        defaults: Vec::new(),
        default_policy: DefaultPolicy::Deny,
    };
    // A quoted name of the text, since rules may name it.
    let name = text.split('"').find(|part| (1..20).contains(&part.len())).unwrap_or_default();
    let (once, twice, other_namespace) =
        (build_grants("default", 1), build_grants("default", 2), build_grants("team", 1));
    let resources = [
        Resource::Acl,
        Resource::Operator,
        Resource::Namespace,
        Resource::Key(name),
        Resource::Service(name),
        Resource::Intention(name),
        Resource::Node(""),
    ];
    for resource in &resources {
        for namespace in ["default", "team", &name.to_ascii_lowercase()] {
            let is_allowed = |grants: &Grants, access| grants.decide(resource, access, namespace).is_allowed();
            let [read, list, write] =
                [Access::Read, Access::List, Access::Write].map(|access| is_allowed(&once, access));
            assert!(read >= list && list >= write, "{resource:?} in {namespace}: write is allowed without read");
            assert_eq!([read, write], [Access::Read, Access::Write].map(|access| is_allowed(&twice, access)));
            assert!(
                namespace == "team" || !is_allowed(&other_namespace, Access::Read),
                "{resource:?} in {namespace} is readable from team"
            );
        }
    }
}

/// Parses bytes as the body of a request, and reads every field that a request may have.
pub(crate) fn json(bytes: &[u8]) {
    let outcome = JsonFields::parse(bytes, "Token").and_then(read_token);
    let list = JsonFields::parse_list(bytes, "Token").and_then(|all| all.into_iter().try_for_each(read_token));
    assert!(outcome.is_err() || list.is_err() || bytes.trim_ascii() == b"null", "bytes are both an object and a list");
    for error in [outcome, list].into_iter().filter_map(Result::err) {
        let message = error.to_string();
        assert!(message.starts_with("Token decoding failed: "), "{message}");
        assert!(!message.contains(char::is_control) && message.len() < 4096, "not one short line: {message:?}");
    }
}

/// Reads each field that a token may have.
fn read_token(mut fields: JsonFields) -> Result<(), DecodeError> {
    let link = |fields: &mut JsonFields| Ok((fields.string("ID")?, fields.string("Name")?));
    let _ = (fields.string("AccessorID")?, fields.string("Description")?, fields.bool("Local")?);
    let _ = (fields.objects("Policies", link)?, fields.objects("Roles", link)?);
    let _ = fields
        .objects("ServiceIdentities", |fields| Ok((fields.string("ServiceName")?, fields.strings("Datacenters")?)))?;
    let _ = fields.objects("TemplatedPolicies", |fields| fields.map("TemplateVariables"))?;
    if let Some(mut acls) = fields.object("ACLs")? {
        acls.objects("PolicyDefaults", link)?;
        acls.finish()?;
    }
    let _ = (fields.string_map("Meta")?, fields.take("ExpirationTTL"));
    fields.ignore(&["CreateIndex", "ModifyIndex", "Hash"]);
    fields.finish()
}

/// Reads bytes as a snapshot, as a whole and in parts, and writes the pieces again.
pub(crate) fn snapshot(bytes: &[u8]) {
    let whole = read_pieces(bytes, bytes.len().max(1));
    // A piece of the snapshot may cross the boundary of two parts.
    let part = super::part_length(bytes);
    assert_eq!(whole, read_pieces(bytes, part), "in parts of {part} bytes the snapshot differs");
    match whole {
        Ok(read) => {
            let written = write_pieces(&read);
            assert_eq!(read_pieces(&written, 7).as_ref(), Ok(&read), "the written snapshot differs");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control) && message.len() < 256, "not one short line: {message:?}");
        }
    }
}

fn read_pieces(bytes: &[u8], part: usize) -> Result<Vec<SnapshotPiece>, SnapshotError> {
    let (mut reader, mut pieces) = (SnapshotReader::default(), Vec::new());
    for part in bytes.chunks(part) {
        reader.feed(part);
        while let Some(piece) = reader.piece()? {
            pieces.push(piece);
        }
    }
    let records = reader.finish()?;
    assert_eq!(records + 2, pieces.len() as u64, "a header, the records, and the end");
    let keys = pieces.iter().filter_map(|piece| match piece {
        SnapshotPiece::Record(key, _) => Some(key.as_str()),
        SnapshotPiece::Header(_) | SnapshotPiece::End(_) => None,
    });
    assert!(keys.is_sorted_by(|one, next| one < next), "a key is repeated or out of order");
    Ok(pieces)
}

fn write_pieces(pieces: &[SnapshotPiece]) -> Vec<u8> {
    let (mut bytes, mut writer) = (Vec::new(), None);
    for piece in pieces {
        match piece {
            SnapshotPiece::Header(header) => writer = SnapshotWriter::begin(header, &mut bytes).ok(),
            SnapshotPiece::Record(key, value) => {
                let result = writer.as_mut().map(|writer| writer.record(key, value, &mut bytes));
                assert_eq!(result, Some(Ok(())), "a record that was read is not written");
            }
            SnapshotPiece::End(records) => {
                let count = writer.take().map(|writer| writer.end(&mut bytes));
                assert_eq!(count, Some(*records));
            }
        }
    }
    bytes
}

/// Reads bytes as the selector of a binding rule, and evaluates it.
pub(crate) fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let values = [("name", Some("web-1")), ("team", Some("shop")), ("empty", Some(""))];
    let lists: [(&str, Option<&[&str]>); 2] = [("groups", Some(&["ops", "dev"])), ("none", Some(&[]))];
    let select = |text: &str| keyward_acl::model::fuzz::select(text, &values, &lists);
    match select(text) {
        Ok(matches) => {
            assert_eq!(select(text), Ok(matches), "two evaluations differ");
            // The added parentheses may make the selector too deep or too long.
            if let Ok(negated) = select(&format!("not ({text})")) {
                assert_eq!(negated, !matches, "a selector and its negation agree");
            }
            if let Ok(both) = select(&format!("({text}) and ({text})")) {
                assert_eq!(both, matches, "`X and X` differs from `X`");
            }
        }
        Err(message) => super::assert_one_line(&message),
    }
}

/// Reads bytes as a token, and as the key set of an issuer.
pub(crate) fn jwt(bytes: &[u8]) {
    let keys = issuer_keys::fuzz::count_jwks(bytes);
    let document = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let listed = document.as_ref().and_then(|document| document.get("keys")?.as_array());
    assert!(
        keys.is_none() || listed.is_some_and(|listed| keys <= Some(listed.len())),
        "more keys than the document lists"
    );
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match UnverifiedClaims::decode(text) {
        Ok(claims) => {
            let parts: Vec<_> = text.split('.').collect();
            let [header, body, _] = parts[..] else { panic!("{} parts", parts.len()) };
            // The claims do not depend on the header or the signature.
            assert_eq!(UnverifiedClaims::decode(&format!(".{body}.")).as_ref(), Ok(&claims));
            assert!(UnverifiedClaims::decode(&format!("{header}.{body}")).is_err());
        }
        Err(error) => super::assert_one_line(&error.to_string()),
    }
}
