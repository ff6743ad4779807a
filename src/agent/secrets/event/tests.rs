use proptest::prelude::*;
use serde_json::json;

use super::*;

fn event(kind: &str, namespace: &str, metadata: &Value) -> Vec<u8> {
    let message = json!({
        "id": "a3be9fb1-b514-519f-5b25-b6f144a8c1ce",
        "source": "vault://vault-0",
        "specversion": "1.0",
        "type": kind,
        "data": {
            "event": { "id": "a3be9fb1-b514-519f-5b25-b6f144a8c1ce", "metadata": metadata },
            "event_type": kind,
            "namespace": namespace,
            "plugin_info": { "mount_class": "secret", "mount_accessor": "kv_5d", "mount_path": "secret/", "plugin": "kv" },
        },
        "datacontenttype": "application/json",
        "time": "2026-09-12T15:19:49.394915-07:00",
    });
    message.to_string().into_bytes()
}

fn parse(kind: &str, metadata: &Value) -> Option<SecretEvent> {
    SecretEvent::parse(&event(kind, "", metadata)).unwrap()
}

fn concerns(event: &SecretEvent, path: &str, namespace: Option<&str>) -> bool {
    event.concerns(&SecretRequest::read(path), namespace)
}

#[test]
fn each_kind_of_change_names_the_secret_whatever_path_the_event_has() {
    for (kind, path) in [
        ("kv-v2/data-write", "secret/data/web/db"),
        ("kv-v2/data-patch", "secret/data/web/db"),
        ("kv-v2/data-delete", "secret/data/web/db"),
        ("kv-v2/delete", "secret/delete/web/db"),
        ("kv-v2/undelete", "secret/undelete/web/db"),
        ("kv-v2/destroy", "secret/destroy/web/db"),
        ("kv-v2/metadata-write", "secret/metadata/web/db"),
        ("kv-v2/metadata-patch", "secret/metadata/web/db"),
        ("kv-v2/metadata-delete", "secret/metadata/web/db"),
        // As Vault 1.13 has it.
        ("kv-v2/data-write", "data/web/db"),
    ] {
        let event = parse(kind, &json!({ "path": path, "modified": "true", "current_version": "7" })).unwrap();
        assert_eq!((event.describe().as_str(), event.version), ("secret/web/db", Some(7)), "{kind}");
        for path in ["secret/data/web/db", "secret/web/db", "/secret//data/web/db/", "secret/metadata/web/db"] {
            assert!(concerns(&event, path, None), "{kind} {path}");
        }
        for path in [
            "secret/data/web",
            "secret/data/web/db/more",
            "secret/data/web/db?version=1",
            "secret/delete/web/db",
            "other/data/web/db",
            "secret/data/data/web/db",
            "secret",
            "",
        ] {
            assert!(!concerns(&event, path, None), "{kind} {path}");
        }
        let list = SecretRequest { path: "secret/metadata/web/db".to_owned(), op: SecretOp::List };
        assert!(!event.concerns(&list, None));
    }
    let event = parse("kv-v1/write", &json!({ "path": "secret/data/app", "modified": "true" })).unwrap();
    assert!(concerns(&event, "secret/data/app", None) && !concerns(&event, "secret/app", None));
}

#[test]
fn the_path_of_the_data_comes_before_that_of_the_call() {
    let metadata = json!({ "path": "secret/undelete/app", "data_path": "secret/data/app", "modified": "true" });
    assert!(concerns(&parse("kv-v2/undelete", &metadata).unwrap(), "secret/app", None));
}

#[test]
fn events_that_change_no_secret_are_told_from_those_that_are_none() {
    let written = json!({ "path": "secret/data/app", "modified": "true" });
    assert_eq!(parse("kv-v2/data-read", &json!({ "path": "secret/data/app", "modified": "false" })), None);
    assert_eq!(parse("kv-v2/metadata-read", &json!({ "path": "secret/metadata/app" })), None);
    assert_eq!(parse("kv-v2/config-write", &json!({ "path": "secret/config", "modified": "true" })), None);
    assert_eq!(parse("database/rotate", &written), None);
    assert!(parse("kv-v2/data-write", &json!({ "path": "secret/data/app" })).is_some());
    let defect = |bytes: &[u8]| SecretEvent::parse(bytes).unwrap_err();
    assert_eq!(defect(b""), InvalidEvent::Form);
    assert_eq!(defect(b"{}"), InvalidEvent::Form);
    assert_eq!(defect(b"{\"data\":{\"event\":{},\"event_type\":7}}"), InvalidEvent::Form);
    assert_eq!(defect(&event("kv-v2/data-write", "", &json!({ "modified": "true" }))), InvalidEvent::Path);
    let text = String::from_utf8(event("kv-v2/data-write", "", &written)).unwrap();
    assert_eq!(defect(text.replace("\"secret/\"", "\"\"").as_bytes()), InvalidEvent::Path);
    // Of two paths, a parser would choose one.
    assert_eq!(defect(text.replace("\"path\"", "\"path\":\"other/data/app\",\"path\"").as_bytes()), InvalidEvent::Form);
}

#[test]
fn namespaces_are_compared_from_the_sessions_own() {
    let metadata = json!({ "path": "secret/data/app", "modified": "true" });
    let of = |namespace: &str| SecretEvent::parse(&event("kv-v2/data-write", namespace, &metadata)).unwrap().unwrap();
    let check = |event: &str, session: Option<&str>, path: &str, expected: bool| {
        assert_eq!(concerns(&of(event), path, session), expected, "{event} {session:?} {path}");
    };
    check("", None, "secret/data/app", true);
    check("team/", Some("team"), "secret/data/app", true);
    check("team/", Some("/team/"), "secret/data/app", true);
    check("team/", None, "secret/data/app", false);
    check("team/", None, "team/secret/data/app", true);
    check("team/web/", Some("team"), "web/secret/app", true);
    check("team/web/", Some("team"), "secret/data/app", false);
    check("teams/", Some("team"), "secret/data/app", false);
    check("other/", Some("team"), "secret/data/app", false);
    check("", Some("team"), "secret/data/app", true);
}

proptest! {
    #[test]
    fn any_bytes_are_an_event_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = SecretEvent::parse(&bytes);
    }

    #[test]
    fn an_event_concerns_the_path_that_it_was_written_for_and_no_sibling(
        mount in "[a-z]{1,6}(/[a-z]{1,6})?", secret in "[a-z]{1,6}(/[a-z]{1,6}){0,2}", is_relative: bool, slash: bool,
    ) {
        let path = if is_relative { format!("data/{secret}") } else { format!("{mount}/data/{secret}") };
        let text = event("kv-v2/data-write", "", &json!({ "path": path, "modified": "true" }));
        let mount_path = format!("\"{mount}{}\"", if slash { "/" } else { "" });
        let text = String::from_utf8(text).unwrap().replace("\"secret/\"", &mount_path);
        // A mount whose name begins with `data` may have a secret of which the relative path looks like the whole one.
        prop_assume!(!path.starts_with(&format!("{mount}/")) || !is_relative);
        let event = SecretEvent::parse(text.as_bytes()).unwrap().unwrap();
        let expected = format!("{mount}/data/{secret}");
        let short = format!("{mount}/{secret}");
        let sibling = format!("{mount}/data/{secret}x");
        prop_assert!(concerns(&event, &expected, None));
        prop_assert!(concerns(&event, &short, None));
        prop_assert!(!concerns(&event, &sibling, None));
    }
}
