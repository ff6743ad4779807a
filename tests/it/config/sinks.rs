//! Sinks and listeners that have something else than the session's token as it is.

use std::path::Path;

use keyward_agent::sinks::SinkEncryption;
use keyward_config::{Environment, Purpose, load_text};

use super::{BASE, check, clean};
use crate::harness::posix_acl::set_acl;

fn encrypt(public_key_file: &str, derive_key: bool, aad: &str) -> SinkEncryption {
    SinkEncryption { public_key_file: public_key_file.into(), derive_key, aad: aad.to_owned() }
}

#[test]
fn an_encrypted_sink_is_read_with_its_defaults_and_described() {
    let text = format!(
        "{BASE}[sink.a]\npath = \"/tmp/a\"\nmode = \"0644\"\n[sink.a.encrypt]\npublic_key_file = \"/run/a/key.json\"\n\
         [sink.b]\npath = \"/tmp/b\"\nformat = \"json\"\nwrap_ttl = \"5m\"\n\
         [sink.b.encrypt]\npublic_key_file = \"/run/b/key.json\"\nderive_key = false\naad = \"${{env:AAD}}\"\n"
    );
    let variables = [("AAD".to_owned(), "canary".to_owned())].into();
    let environment = Environment { variables, ..Environment::current() };
    let outcome = load_text(Path::new("a.toml"), &text, &environment, Purpose::Check);
    assert!(outcome.errors.is_empty() && outcome.warnings.is_empty(), "{:?} {:?}", outcome.errors, outcome.warnings);
    let words = outcome.description().unwrap().to_string();
    let sinks = outcome.config.unwrap().sinks;
    assert_eq!(sinks[0].options.encrypt, Some(encrypt("/run/a/key.json", true, "")));
    assert_eq!(sinks[1].options.encrypt, Some(encrypt("/run/b/key.json", false, "canary")));
    assert!(words.contains("  encrypts it for the reader with the public key in /run/a/key.json\n"), "{words}");
    assert!(words.contains("/run/b/key.json, without key derivation\n"), "{words}");
    assert!(!words.contains("canary"), "{words}");
}

#[test]
fn a_folder_in_place_of_a_sink_file_is_reported_by_check_and_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub").display().to_string();
    std::fs::create_dir(&path).unwrap();
    let text = format!("{BASE}[sink.a]\npath = \"{path}\"\n");
    let diagnostics_for = |purpose| load_text(Path::new("a.toml"), &text, &Environment::current(), purpose);
    for reported in [diagnostics_for(Purpose::Check).notes, diagnostics_for(Purpose::Run).warnings] {
        let expected = format!("sink.a.path: {path} is a folder; name a file in it [KW-1011]");
        assert!(reported.iter().any(|diagnostic| diagnostic.to_string().ends_with(&expected)), "{reported:?}");
    }
}

#[test]
fn errors_of_wrapped_derived_and_encrypted_sinks_have_positions() {
    let check = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(&format!("{text}{BASE}"));
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    check(
        "[sink.a]\npath = \"/tmp/a\"\nformat = \"env\"\n[sink.a.encrypt]\nderive = true\n",
        &[
            "a.toml:3:1: sink.a.format: conflicts with encrypt: an environment file cannot hold an encrypted token; \
             keep one of the two",
            "a.toml:4:9: sink.a.encrypt.public_key_file: missing; the file in which the reader leaves its public key, such as \
             \"/run/web/key.json\"",
            "a.toml:5:1: sink.a.encrypt.derive: an unknown key; known keys: public_key_file, derive_key, aad",
        ],
    );
    check(
        "[sink.a]\npath = \"/tmp/a\"\nformat = \"json\"\nwrap_ttl = \"5m\"\non_missing = \"leave\"\n",
        &[
            "a.toml:5:1: sink.a.on_missing: not allowed for a sink whose content differs at each write; leave it out: the file is not watched",
        ],
    );
    check(
        "[sink.a]\npath = \"/tmp/a\"\nformat = \"json\"\nwrap_ttl = \"5m\"\n[sink.a.derived_token]\nttl = \"1h\"\n",
        &["a.toml:5:9: sink.a.derived_token: conflicts with wrap_ttl: a file holds one token; keep one of the two"],
    );
    check(
        "[sink.a]\npath = \"/tmp/a\"\n[sink.a.encrypt]\npublic_key_file = \"key.json\"\naad = \"\"\n",
        &[
            "a.toml:4:19: sink.a.encrypt.public_key_file: \"key.json\" is not an absolute path; start it with /",
            "a.toml:5:7: sink.a.encrypt.aad: an empty string; set a value, or leave the key out",
        ],
    );
    // Other readers of the file cannot decrypt it.
    let text = format!("{BASE}[sink.a]\npath = \"/tmp/a\"\nmode = \"0644\"\n");
    assert_eq!(super::check(&text).1.warnings.len(), 1);
    clean(&format!("{text}[sink.a.encrypt]\npublic_key_file = \"/run/a/key.json\"\n"));
}

#[test]
fn a_listener_with_a_derived_token_is_described_and_its_errors_have_positions() {
    let text = format!(
        "{BASE}[listener.a]\naddress = \"unix:///tmp/a.sock\"\n[listener.a.derived_token]\npolicies = [\"web\"]\nttl = \"1h\"\n"
    );
    let words = check(&text).1.description().unwrap().to_string();
    let clause = "uses a child of a session's token with the policies web, for 1h\n";
    assert!(words.contains(clause), "{words}");
    let check = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(&format!("{text}{BASE}"));
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    check(
        "[listener.a]\naddress = \"unix:///tmp/a.sock\"\n[listener.a.derived_token]\nnum_uses = 5\n",
        &[
            "a.toml:3:13: listener.a.derived_token.ttl: missing; how long the token lives, such as \"1h\"; another is made before it ends",
            "a.toml:4:1: listener.a.derived_token.num_uses: an unknown key; known keys: policies, ttl",
        ],
    );
    check(
        "[listener.a]\nkind = \"health\"\naddress = \"unix:///tmp/a.sock\"\n[listener.a.derived_token]\nttl = \"1h\"\n",
        &[
            "a.toml:4:13: listener.a.derived_token: not allowed on a health listener, which reports all sessions and serves no token; \
           leave it out",
        ],
    );
    check(
        "[server.acl]\nkind = \"consul\"\naddress = \"https://acl.example.com\"\n[session.mesh]\nserver = \"acl\"\n\
         auth_method = \"pods\"\n[session.mesh.kubernetes]\n\
         [listener.a]\naddress = \"unix:///tmp/a.sock\"\nsessions = [\"mesh\"]\n[listener.a.derived_token]\nttl = \"1h\"\n",
        &[
            "a.toml:11:13: listener.a.derived_token: conflicts with a server of the kind consul: it has no derived tokens; keep one of \
           the two",
        ],
    );
}

#[test]
fn a_credential_is_described_and_its_errors_have_positions() {
    let text = format!("{BASE}[credential.a]\nhosts = [\"Registry.example.com\"]\npath = \"secret/data/a\"\n");
    let words = check(&text).1.description().unwrap().to_string();
    let clause = "credential a\n  gives Docker and git, for registry.example.com, the field username and the field password of \
                  secret/data/a, read by session main\n";
    assert!(words.contains(clause), "{words}");
    let (folder, outcome) = check(&format!(
        "[credential.a]\nhosts = [\"a\", \"https://b\"]\npath = \"v1/x\"\nusername = \"u\"\nusername_field = \"f\"\n\
         [credential.b]\nhosts = [\"A\"]\npath = \"x\"\n[credential.c]\n{BASE}"
    ));
    assert_eq!(
        folder.short(&outcome.errors),
        [
            "a.toml:2:15: credential.a.hosts: \"https://b\" is not a host; write its name, and :PORT behind it where it has one, \
             with no scheme and no path",
            "a.toml:3:8: credential.a.path: \"v1/x\" does not begin with a mount; leave /v1/ off",
            "a.toml:5:1: credential.a.username_field: conflicts with username: the name is fixed, or in the secret; keep one of \
             the two",
            "a.toml:7:10: credential.b.hosts: also a host of credential a, at a.toml:2:10; a host has one credential",
            "a.toml:9:13: credential.c.hosts: missing; the hosts that it is for, such as [\"registry.example.com\"]",
            "a.toml:9:13: credential.c.path: missing; the secret, such as \"secret/data/registry\", without /v1/",
        ]
    );
}

#[test]
fn a_sink_folder_writable_by_others_is_a_note_in_check_and_an_error_in_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (file, inner) = (folder.path().join("a.toml"), folder.path().join("out"));
    std::fs::create_dir(&inner).unwrap();
    let load = |mode: u32, user: u32, more: &str, purpose| {
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
        let text = format!("{BASE}[sink.a]\npath = \"{}/token\"\n{more}", inner.display());
        let outcome = load_text(&file, &text, &Environment { user, ..Environment::current() }, purpose);
        let matching = |diagnostics: &[keyward_config::Diagnostic]| {
            let texts = diagnostics.iter().map(ToString::to_string);
            texts.filter(|text| text.contains("sink.a.path") && text.contains("its folder")).collect::<Vec<_>>()
        };
        (matching(&outcome.errors), matching(&outcome.notes))
    };
    let user = Environment::current().user;
    for mode in [0o700, 0o711, 0o755, 0o750] {
        assert_eq!(load(mode, user, "", Purpose::Run), (vec![], vec![]), "{mode:o}");
    }
    for mode in [0o777, 0o1777, 0o770, 0o2775] {
        let (mistakes, notes) = load(mode, user, "", Purpose::Run);
        assert!(mistakes.len() == 1 && notes.is_empty(), "{mode:o} {mistakes:?} {notes:?}");
        // A folder for everybody's files, such as /tmp, stays one.
        let advice = if mode == 0o1777 { "use a folder that root or the agent's user owns" } else { "chmod" };
        assert!(mistakes[0].contains("can be written by") && mistakes[0].contains(advice), "{mistakes:?}");
        let (mistakes, notes) = load(mode, user, "", Purpose::Check);
        assert!(mistakes.is_empty() && notes.len() == 1, "{mode:o} {mistakes:?} {notes:?}");
        assert_eq!(load(mode, user, "shared_folder = true\n", Purpose::Run), (vec![], vec![]), "{mode:o}");
    }
    if user == 0 {
        std::os::unix::fs::chown(&inner, Some(12345), None).unwrap();
        let (mistakes, _) = load(0o755, user, "", Purpose::Run);
        assert!(mistakes.len() == 1 && mistakes[0].contains("user 12345, who owns it"), "{mistakes:?}");
        assert!(!mistakes[0].contains("chown"), "{mistakes:?}");
    }
}

#[test]
fn the_folder_of_a_listeners_socket_is_checked_as_a_sinks() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (file, inner) = (folder.path().join("a.toml"), folder.path().join("out"));
    std::fs::create_dir(&inner).unwrap();
    let environment = Environment::current();
    let found = |mode: u32, section: &str, purpose| {
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
        let text = format!("{BASE}{}", section.replace("SOCKET", &format!("unix://{}/a.sock", inner.display())));
        let outcome = load_text(&file, &text, &environment, purpose);
        let of_folder = |all: &[keyward_config::Diagnostic]| {
            let all = all.iter().filter(|one| one.message.contains("its folder can be written by everybody"));
            all.map(|one| format!("{} {}", one.key, one.advice)).collect::<Vec<_>>()
        };
        (of_folder(&outcome.errors), of_folder(&outcome.notes).len())
    };
    let listener = "[listener.a]\naddress = \"SOCKET\"\n";
    for mode in [0o777, 0o1777] {
        let (errors, notes) = found(mode, listener, Purpose::Run);
        assert!(errors.len() == 1 && notes == 0, "{errors:?}");
        assert!(
            errors[0].starts_with("listener.a.address ") && errors[0].contains("shared_folder = true"),
            "{errors:?}"
        );
        assert_eq!(found(mode, listener, Purpose::Check), (vec![], 1));
        assert_eq!(found(mode, &format!("{listener}shared_folder = true\n"), Purpose::Run), (vec![], 0));
    }
    assert_eq!(found(0o755, listener, Purpose::Run), (vec![], 0));
    let (errors, _) =
        found(0o755, "[listener.a]\naddress = \"tcp://127.0.0.1:1\"\nshared_folder = true\n", Purpose::Run);
    assert!(errors.is_empty(), "it is another error");
}

#[test]
fn a_folder_with_an_access_control_list_is_checked_by_the_entries_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let environment = Environment::current();
    let user = environment.user;
    if !set_acl(&out, &[(user, 7)], 5) {
        return;
    }
    let out_text = out.display().to_string();
    let text = format!(
        "{BASE}[sink.a]\npath = \"{out_text}/token\"\n[audit.a]\npath = \"{out_text}/audit.jsonl\"\nkey_file = \"/k\"\n"
    );
    let check = |users: &[(u32, u16)], owning_group: u16, expected: Option<(&str, &str)>| {
        set_acl(&out, users, owning_group);
        let outcome = load_text(Path::new("a.toml"), &text, &environment, Purpose::CheckHost);
        let errors = outcome.errors.iter().filter(|error| error.message.contains("its folder"));
        let mut found: Vec<_> =
            errors.map(|error| (error.key.as_str(), error.message.as_str(), error.advice.as_str())).collect();
        found.sort_unstable();
        let Some((who, command)) = expected else {
            assert!(found.is_empty(), "{users:?} {owning_group}: {found:?}");
            return;
        };
        let message = format!(
            "its folder can be written by {who}, by its access control list, and not only by root and the agent's user \
             (mode 0775)"
        );
        let command = format!("{command} {out_text}");
        let for_sink =
            format!("{command}, or set shared_folder = true if everyone who can write there may replace the file");
        let message = message.as_str();
        assert_eq!(found, [("audit.a.path", message, command.as_str()), ("sink.a.path", message, for_sink.as_str())]);
    };
    check(&[(user, 7)], 5, None);
    check(&[(user, 7), (0, 7), (4711, 5)], 5, None);
    check(&[(user, 7), (4711, 7)], 5, Some(("user 4711", "setfacl -x u:4711")));
    check(&[(4711, 3), (4712, 2)], 4, Some(("user 4711 and user 4712", "setfacl -x u:4711,u:4712")));
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&out).unwrap());
    let group = nix::unistd::Group::from_gid(group.into()).unwrap().map_or(group.to_string(), |group| group.name);
    let both = format!("user 4711 and group {group}");
    check(&[(user, 7)], 7, Some((both.trim_start_matches("user 4711 and "), "setfacl -m g::r-x")));
    check(&[(4711, 7)], 2, Some((both.as_str(), "setfacl -m g::--- -x u:4711")));
}
