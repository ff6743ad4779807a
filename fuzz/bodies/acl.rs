//! The ACL server: rules, bodies of requests, snapshots, selectors, and key sets of issuers.

use std::sync::Arc;

use keyward::acl::api::json::{DecodeError, JsonFields};
use keyward::acl::model::authorize::{Access, DefaultPolicy, Grants, PolicyId, PolicyInScope, Resource};
use keyward::acl::model::rules::Rules;
use keyward::acl::model::snapshot::{SnapshotError, SnapshotPiece, SnapshotReader, SnapshotWriter};
use keyward::acl::service::issuer_keys;
use keyward::jwt::UnverifiedClaims;

/// Reads bytes as a policy's rules and asks them for decisions.
pub(crate) fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let rules = match Rules::parse(text) {
        Ok(rules) => Arc::new(rules),
        Err(error) => {
            let words = error.to_string();
            assert!(words.starts_with("Failed to parse ACL rules: ") || words.starts_with("Invalid "), "{words}");
            assert!(!words.contains(char::is_control), "not one line: {words:?}");
            return;
        }
    };
    let held = |own: &str, times: usize| Grants {
        own_namespace: own.to_owned(),
        direct: vec![PolicyInScope::new(own, PolicyId::Synthetic("fuzzed".into()), Arc::clone(&rules)); times],
        defaults: Vec::new(),
        default_policy: DefaultPolicy::Deny,
    };
    // A name out of the text, so that it is one that rules may be about.
    let name = text.split('"').find(|piece| (1..20).contains(&piece.len())).unwrap_or_default();
    let (once, twice, elsewhere) = (held("default", 1), held("default", 2), held("team", 1));
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
            let may = |grants: &Grants, access| grants.decide(resource, access, namespace).is_allowed();
            let [read, list, write] = [Access::Read, Access::List, Access::Write].map(|access| may(&once, access));
            assert!(read >= list && list >= write, "{resource:?} in {namespace}: who may write may not read");
            assert_eq!([read, write], [Access::Read, Access::Write].map(|access| may(&twice, access)));
            assert!(namespace == "team" || !may(&elsewhere, Access::Read), "{resource:?} in {namespace} from afar");
        }
    }
}

/// Parses bytes as the body of a request, and reads every field that a request may have.
pub(crate) fn json(bytes: &[u8]) {
    let outcome = JsonFields::parse(bytes, "Token").and_then(taken);
    let list = JsonFields::parse_list(bytes, "Token").and_then(|all| all.into_iter().try_for_each(taken));
    assert!(outcome.is_err() || list.is_err() || bytes.trim_ascii() == b"null", "an object and a list at once");
    for error in [outcome, list].into_iter().filter_map(Result::err) {
        let words = error.to_string();
        assert!(words.starts_with("Token decoding failed: "), "{words}");
        assert!(!words.contains(char::is_control) && words.len() < 4096, "not one short line: {words:?}");
    }
}

fn taken(mut fields: JsonFields) -> Result<(), DecodeError> {
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

/// Reads bytes as a snapshot, whole and in parts, and writes what was read.
pub(crate) fn snapshot(bytes: &[u8]) {
    let whole = pieces(bytes, bytes.len().max(1));
    // A piece may end in one part and the next begin in another.
    let part = super::part_length(bytes);
    assert_eq!(whole, pieces(bytes, part), "in parts of {part} bytes it is another");
    match whole {
        Ok(read) => {
            let written = written(&read);
            assert_eq!(pieces(&written, 7).as_ref(), Ok(&read), "what was written is not what was read");
        }
        Err(error) => {
            let words = error.to_string();
            assert!(!words.contains(char::is_control) && words.len() < 256, "not one short line: {words:?}");
        }
    }
}

fn pieces(bytes: &[u8], part: usize) -> Result<Vec<SnapshotPiece>, SnapshotError> {
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
    assert!(keys.is_sorted_by(|one, next| one < next), "a key is there twice, or out of its place");
    Ok(pieces)
}

fn written(pieces: &[SnapshotPiece]) -> Vec<u8> {
    let (mut bytes, mut writer) = (Vec::new(), None);
    for piece in pieces {
        match piece {
            SnapshotPiece::Header(header) => writer = SnapshotWriter::begin(header, &mut bytes).ok(),
            SnapshotPiece::Record(key, value) => {
                let taken = writer.as_mut().map(|writer| writer.record(key, value, &mut bytes));
                assert_eq!(taken, Some(Ok(())), "a record that was read is not written");
            }
            SnapshotPiece::End(records) => {
                let ended = writer.take().map(|writer| writer.end(&mut bytes));
                assert_eq!(ended, Some(*records));
            }
        }
    }
    bytes
}

/// Reads bytes as the selector of a binding rule, and evaluates it.
pub(crate) fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let values = [("name", "web-1"), ("team", "shop"), ("empty", "")];
    let lists: [(&str, &[&str]); 2] = [("groups", &["ops", "dev"]), ("none", &[])];
    let select = |text: &str| keyward::acl::model::fuzz::select(text, &values, &lists);
    match select(text) {
        Ok(matches) => {
            assert_eq!(select(text), Ok(matches), "the second evaluation is another");
            // The added parentheses may make it too deep or too long.
            if let Ok(negated) = select(&format!("not ({text})")) {
                assert_eq!(negated, !matches, "a selector and its negation both match, or neither");
            }
            if let Ok(both) = select(&format!("({text}) and ({text})")) {
                assert_eq!(both, matches, "a selector and itself is another");
            }
        }
        Err(words) => super::assert_one_line(&words),
    }
}

/// Reads bytes as a token, and as the key set of an issuer.
pub(crate) fn jwt(bytes: &[u8]) {
    let keys = issuer_keys::fuzz::count_jwks(bytes);
    let document = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let listed = document.as_ref().and_then(|document| document.get("keys")?.as_array());
    assert!(keys.is_none() || listed.is_some_and(|listed| keys <= Some(listed.len())), "keys that are not listed");
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
