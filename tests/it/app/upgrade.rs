//! From version 0.1.0 to this one: its configuration is refused by name, its data is served and written, and a snapshot leads back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::cipher::{AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use serde_json::{Value, json};

use super::disk_formats;
use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::world::run_in_network_namespace;

const LIMIT: Duration = Duration::from_mins(1);

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures"))
}

/// Copies the files of a fixture, with modes that git does not keep.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// Follows the advice of `keyward check` about old names, and nothing else; returns the number of errors.
fn follow_the_errors(config: &str) -> usize {
    let (_, output, _) = run(&["check", "--format", "json", "--config", config], &[]);
    let report: Value = serde_json::from_str(&output).unwrap();
    let text = std::fs::read_to_string(config).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let errors = report["errors"].as_array().unwrap();
    for error in errors {
        assert_eq!(error["found"], "an old name", "{error}");
        let line = &mut lines[usize::try_from(error["line"].as_u64().unwrap()).unwrap() - 1];
        let old = error["key"].as_str().unwrap().rsplit('.').next().unwrap();
        let new = error["advice"].as_str().unwrap().strip_prefix("write ").unwrap().trim_matches(['[', ']']);
        assert_eq!(line.matches(old).count(), 1, "{line}");
        *line = line.replace(old, new);
    }
    std::fs::write(config, lines.join("\n")).unwrap();
    errors.len()
}

#[test]
fn the_last_releases_configuration_is_corrected_by_the_errors_and_its_data_is_served_and_written() {
    run_in_network_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for part in ["agent", "acl"] {
            copy(&fixtures().join("on_disk").join(part), &folder.path().join(part));
        }
        let config = path("keyward.toml");
        let text = std::fs::read_to_string(fixtures().join("release-0.1.0.toml")).unwrap();
        std::fs::write(&config, text.replace("FOLDER", &folder.path().display().to_string())).unwrap();

        // The new program does not start with the old file, and leaves the data alone.
        let before = std::fs::read(path("agent/state/web.state")).unwrap();
        let (code, output, error) = run(&["run", "--config", &config], &[]);
        assert!(code == 78 && error.contains("an old name"), "{code}: {output}{error}");
        assert_eq!(std::fs::read(path("agent/state/web.state")).unwrap(), before);
        // A key in a renamed table is reported after its table.
        let old_names: usize = (0..2).map(|_| follow_the_errors(&config)).sum();
        assert!(old_names >= 9, "{old_names} old names: each renamed key is in the file");
        let (code, output, error) = run(&["check", "--config", &config], &[]);
        assert!(code == 0 && !output.contains("an old name"), "{output}{error}");

        let expected: Value =
            serde_json::from_slice(&std::fs::read(fixtures().join("on_disk/agent/expected.json")).unwrap()).unwrap();
        let (socket, root) = (format!("unix://{}", path("acl.sock")), path("acl/root.token"));
        let acl = |arguments: &[&str]| {
            let all = [&["acl"], arguments, &["--address", &socket, "--token-file", &root]].concat();
            let (code, output, error) = run(&all, &[]);
            assert_eq!(code, 0, "{arguments:?}: {error}");
            output
        };
        // Twice, so that this version also reads its own files.
        for start in ["first", "second"] {
            let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
            let token = eventually(LIMIT, || match ask(Path::new(&path("api.sock")), "GET", "/agent/v1/token") {
                Ok((200, body)) => Ok(serde_json::from_str::<Value>(&body).unwrap()["token"].clone()),
                other => Err(format!("{other:?}: {}", agent.output())),
            });
            assert_eq!(token, expected["token"], "{start} start");
            eventually(LIMIT, || match std::fs::read_to_string(path("token")) {
                Ok(text) if token == text.as_str() => Ok(()),
                other => Err(format!("{other:?}: {}", agent.output())),
            });
            assert!(acl(&["token", "list"]).contains("policy web-read"));
            let name = format!("from-the-{start}-start");
            std::fs::write(path("rules"), "service_prefix \"web\" { policy = \"write\" }").unwrap();
            acl(&["policy", "create", &name, "--rules", &path("rules")]);
            assert!(acl(&["policy", "list"]).contains("from-the-first-start"));
            let (status, output) = agent.stop();
            assert_eq!(status.code(), Some(0), "{output}");
            assert!(!output.contains("state.refused"), "{output}");
        }
    });
}

/// Header and records of a snapshot, by the format that src/acl/model/snapshot.rs documents.
fn records(bytes: &[u8]) -> (BTreeSet<String>, BTreeMap<String, Vec<u8>>) {
    let rest = bytes.strip_prefix(b"keyward access snapshot 1\n").expect("the format of version 0.1.0");
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
    let header: Value = serde_json::from_slice(&rest[..end]).unwrap();
    let (mut rest, mut records) = (&rest[end + 1..], BTreeMap::new());
    loop {
        let length = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (key, value) = (length(0), length(4));
        if key == 0 {
            return (keys(&header), records);
        }
        let (record, after) = rest[8..].split_at(key + value);
        records.insert(String::from_utf8(record[..key].to_vec()).unwrap(), record[key..].to_vec());
        rest = after;
    }
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// The store's own file does not lead back: version 0.1.0 cannot read records that have a checksum.
#[test]
fn a_snapshot_of_this_version_has_nothing_that_version_0_1_0_does_not_read() {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixtures().join("on_disk/acl"), &folder.path().join("acl"));
    let path = |name: &str| folder.path().join("acl").join(name).display().to_string();
    let (service, address) = crate::acl::server_process::serve(&folder.path().join("acl"), "127.0.0.1:0", &[]);
    let root = path("root.token");
    let acl = |arguments: &[&str]| {
        let all = [&["acl"], arguments, &["--address", &address, "--token-file", &root]].concat();
        let (code, output, error) = run(&all, &[]);
        assert_eq!(code, 0, "{arguments:?}: {output}{error}");
    };
    acl(&["backup", "--out", &path("unchanged")]);
    std::fs::write(path("rules"), "service_prefix \"web\" { policy = \"write\" }").unwrap();
    acl(&["policy", "create", "new", "--rules", &path("rules")]);
    acl(&["role", "create", "new", "--policy-name", "new"]);
    acl(&["token", "create", "--description", "new", "--policy-name", "new", "--out", &path("new.token")]);
    acl(&["namespace", "create", "new"]);
    acl(&["backup", "--out", &path("changed")]);
    assert_eq!(service.stop().0.code(), Some(0));

    let of = |name: &str| records(&std::fs::read(path(name)).unwrap());
    let (header, old) = of("snapshot");
    let (unchanged_header, unchanged) = of("unchanged");
    assert_eq!(unchanged_header, header);
    assert_eq!(unchanged, old, "what was not changed is the same, byte for byte");
    let (_, changed) = of("changed");
    // Records are JSON but for those of indexes, whose kinds the old snapshot has.
    let kind = |key: &str| key.split('/').next().unwrap().to_owned();
    let fields =
        |value: &[u8]| serde_json::from_slice::<Value>(value).ok().filter(Value::is_object).map(|object| keys(&object));
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in &old {
        known.entry(kind(key)).or_default().extend(fields(value).unwrap_or_default());
    }
    let added: Vec<_> = changed.iter().filter(|(key, _)| !old.contains_key(*key)).collect();
    assert!(added.len() > 6, "{} records were added", added.len());
    for (key, value) in added {
        let known =
            known.get(&kind(key)).unwrap_or_else(|| panic!("{key} is of a kind that version 0.1.0 does not have"));
        let more: Vec<_> = fields(value).unwrap_or_default().difference(known).cloned().collect();
        assert!(more.is_empty(), "{key} has the fields {more:?}, which version 0.1.0 does not have");
    }
}

/// A server of Vault's API at the address that the agent's files are bound to. Each lease and token is good for an hour more.
fn serve_vault() {
    let listener = TcpListener::bind("127.0.0.1:1").unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.extend_from_slice(&byte);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest.lines().next().unwrap());
            stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
            let data = json!({"username": "new", "password": "new", "ttl": 0, "renewable": false, "policies": ["a"]});
            let lease = json!({"lease_id": "database/creds/x/1", "lease_duration": 3600, "renewable": true});
            let mut body = lease;
            body["data"] = data;
            let (length, body) = (body.to_string().len(), body);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
}

/// Decrypts a saved file without its names, to which the header binds it: AES-256-GCM encrypts with a counter that begins at 2.
fn decrypt(salt: &str, key: &str, file: &[u8]) -> (String, Value) {
    struct Length;
    impl KeyType for Length {
        fn len(&self) -> usize {
            32
        }
    }
    let end = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let (header, sealed) = file.split_at(end);
    let derived = Salt::new(HKDF_SHA256, salt.as_bytes()).extract(key.as_bytes());
    let mut key = [0; 32];
    derived.expand(&[b"seal 1"], Length).unwrap().fill(&mut key).unwrap();
    let mut counter = [0; 16];
    counter[..12].copy_from_slice(&sealed[..12]);
    counter[15] = 2;
    let key = DecryptingKey::ctr(UnboundCipherKey::new(&AES_256, &key).unwrap()).unwrap();
    let mut plain = sealed[12..sealed.len() - 16].to_vec();
    key.decrypt(&mut plain, DecryptionContext::Iv128(counter.into())).unwrap();
    (String::from_utf8(header.to_vec()).unwrap(), serde_json::from_slice(&plain).unwrap())
}

/// Names of the fields, with those that they are in, but for what secrets and responses hold.
fn field_names(value: &Value, place: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let place = format!("{place}.{name}");
                found.insert(place.clone());
                if !["body", "data"].contains(&name.as_str()) {
                    field_names(value, &place, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| field_names(value, place, found)),
        _ => {}
    }
}

#[test]
fn saved_answers_and_secrets_of_this_version_have_the_form_of_version_0_1_0_and_a_sessions_state_has_not() {
    run_in_network_namespace(|| {
        let folder = disk_formats::copy("agent");
        let config = folder.path().join("keyward.toml").display().to_string();
        std::fs::write(&config, disk_formats::agent_configuration(folder.path())).unwrap();
        let library = disk_formats::shifted_clock(folder.path());
        let variables = [("LD_PRELOAD", library.as_str()), ("WALL_CLOCK_START", disk_formats::WALL_CLOCK)];
        let read = |name: &str| std::fs::read(folder.path().join("state").join(name)).unwrap();
        let names = ["vault.answers", "web.secrets", "web.state"];
        let before = names.map(read);
        serve_vault();
        let agent = Binary::start(&["run", "--config", &config], &variables, folder.path());
        eventually(LIMIT, || match ask(&folder.path().join("vault.sock"), "GET", "/v1/database/creds/new") {
            Ok((200, body)) if body.contains("new") => Ok(()),
            other => Err(format!("{other:?}: {}", agent.output())),
        });
        // Saved leases are renewed at once, so that the file of the secrets changes too.
        eventually(LIMIT, || {
            let same: Vec<_> = names.into_iter().zip(&before).filter(|(name, before)| read(name) == **before).collect();
            if same.is_empty() { Ok(()) } else { Err(format!("{} files are the same: {}", same.len(), agent.output())) }
        });
        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(!output.contains("state.refused"), "{output}");

        let key = std::fs::read_to_string(folder.path().join("seal.key")).unwrap();
        let salts = ["keyward kept answers", "keyward kept secrets"];
        for ((name, old), salt) in names.into_iter().zip(&before).zip(salts) {
            let [old, new] = [old.clone(), read(name)].map(|file| decrypt(salt, key.trim_end(), &file));
            assert_eq!(new.0, old.0, "{name} is bound to other names");
            let [old, new] = [old.1, new.1].map(|content| {
                let mut found = BTreeSet::new();
                field_names(&content, "", &mut found);
                found
            });
            assert!(old.len() > 8, "{name}: {old:?}");
            assert_eq!(new, old, "{name} has other fields");
        }
        // Version 0.1.0 knows only these fields, and refuses a file with others: the session logs in.
        let state: Value = serde_json::from_slice(&read("web.state")).unwrap();
        let known = ["version", "session", "pace", "token"].map(str::to_owned).into();
        assert!(keys(&state).is_superset(&known), "{state}");
        assert!(
            keys(&state).len() > known.len(),
            "version 0.1.0 reads the state of a session: say so in docs/operations.md"
        );
    });
}
