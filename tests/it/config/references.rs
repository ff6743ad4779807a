//! `${env:NAME}` and `${file:PATH}`: the keys that allow them; no message shows their values.

use super::{BASE, Folder, environment};
use keyward_config::{Purpose, load};

const CANARY: &str = "canary-7f3a91";

#[test]
fn references_are_replaced_by_variables_and_files() {
    let folder = Folder::with(&[("namespace", "team-a\n")]);
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"https://${{env:HOST}}:${{env:PORT}}\"\n\
         [session.main]\nnamespace = \"${{file:{}}}/web\"\n[session.main.cloud]\nrole = \"${{env:ROLE}}\"\nresource = \"r\"\n",
        folder.path("namespace").display(),
    );
    let path = folder.put("a.toml", &text);
    let environment = environment(&[("HOST", "secrets.example.com"), ("PORT", "8200"), ("ROLE", "web")]);
    let outcome = load(&[path], &environment, Purpose::Run);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    // The description quotes the reference and not its value.
    let words = outcome.description().unwrap().to_string();
    assert!(words.contains("at https://${env:HOST}:${env:PORT}, as role ${env:ROLE}"), "{words}");
    assert!(!words.contains("secrets.example.com") && !words.contains("team-a"), "{words}");
    let session = outcome.config.unwrap().sessions.remove(0);
    assert_eq!(session.login.role, "web");
    assert_eq!(session.login.namespace.as_deref(), Some("team-a/web"));
    assert!(format!("{:?}", session.upstream.client.address).contains("secrets.example.com"));
}

/// Parses a text together with a valid file and compares its diagnostics, for both purposes.
fn check(text: &str, purpose: Purpose, mistakes: &[&str], notes: &[&str]) {
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let environment = environment(&[("EMPTY", ""), ("CANARY", CANARY)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment, purpose);
    assert_eq!(folder.short(&outcome.errors), mistakes, "{text}");
    let noted: Vec<_> = folder.short(&outcome.notes).into_iter().filter(|note| !note.contains("state_dir")).collect();
    assert_eq!(noted, notes, "{text}");
    assert_eq!(outcome.config.is_some(), mistakes.is_empty());
}

#[test]
fn something_missing_on_this_machine_is_a_note_in_check_and_an_error_in_run() {
    let lacks: [(&str, &str); 11] = [
        (
            "[session.main]\nnamespace = \"${env:NOT_SET}\"\n",
            "a.toml:2:13: session.main.namespace: \"${env:NOT_SET}\": the variable is not set; set it in the agent's environment",
        ),
        (
            "[session.main]\nnamespace = \"${env:EMPTY}\"\n",
            "a.toml:2:13: session.main.namespace: \"${env:EMPTY}\": the variable is empty; set it in the agent's environment",
        ),
        (
            "[session.main]\nnamespace = \"${file:/nowhere/namespace}\"\n",
            concat!(
                "a.toml:2:13: session.main.namespace: \"${file:/nowhere/namespace}\": ",
                "No such file or directory (os error 2); the file must hold one line"
            ),
        ),
        (
            "[session.main]\nnamespace = \"${file:/etc}\"\n",
            concat!(
                "a.toml:2:13: session.main.namespace: \"${file:/etc}\": it is not a regular file; ",
                "the file must hold one line"
            ),
        ),
        (
            "[server.b]\nkind = \"vault\"\naddress = \"${env:NOT_SET}\"\n",
            "a.toml:3:11: server.b.address: \"${env:NOT_SET}\": the variable is not set; set it in the agent's environment",
        ),
        (
            "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nca_file = \"/nowhere/ca.pem\"\n",
            concat!(
                "a.toml:4:11: server.b.ca_file: the file /nowhere/ca.pem does not exist; ",
                "create it before the agent starts"
            ),
        ),
        (
            "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nca_dir = \"/etc/passwd\"\n",
            "a.toml:4:10: server.b.ca_dir: /etc/passwd is not a folder; create it before the agent starts",
        ),
        (
            "[sink.a]\npath = \"/nowhere/token\"\n",
            "a.toml:2:8: sink.a.path: the folder /nowhere does not exist; create it before the agent starts",
        ),
        (
            "[sink.a]\nshared_folder = true\npath = \"/tmp/token\"\nowner = \"no-such-user\"\n",
            concat!(
                "a.toml:4:9: sink.a.owner: this machine has no user \"no-such-user\"; ",
                "create the user, or write its id"
            ),
        ),
        (
            "[listener.a]\naddress = \"unix:///tmp/api.sock\"\nshared_folder = true\ngroup = \"no-such-group\"\n",
            concat!(
                "a.toml:4:9: listener.a.group: this machine has no group \"no-such-group\"; ",
                "create the group, or write its id"
            ),
        ),
        (
            "[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = \"/nowhere/key\"\n",
            concat!(
                "a.toml:3:12: listener.a.key_file: cannot read the secret in /nowhere/key: ",
                "No such file or directory (os error 2); create one with: openssl rand -hex 32"
            ),
        ),
    ];
    for (text, message) in lacks {
        check(text, Purpose::Check, &[], &[message]);
        check(text, Purpose::Run, &[message], &[]);
    }
}

#[test]
fn a_key_that_is_easily_guessed_is_refused() {
    let folder = Folder::with(&[("key", "short")]);
    let text = format!("[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = {:?}\n", folder.path("key"));
    let expected = concat!(
        "a.toml:3:12: listener.a.key_file: the secret in this file is shorter than 16 characters; ",
        "create one with: openssl rand -hex 32"
    );
    check(&text, Purpose::Run, &[expected], &[]);
}

#[test]
fn a_key_that_others_can_read_is_a_warning() {
    let folder = Folder::with(&[("key", &"k".repeat(40))]);
    let text = format!("{BASE}[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = {:?}\n", folder.path("key"));
    let group_may_read = environment(&[]).user == 0;
    for (mode, sound) in [(0o600, true), (0o640, group_may_read), (0o660, false), (0o604, false)] {
        super::chmod(&folder.path("key"), mode);
        let warnings: Vec<_> =
            super::check(&text).1.warnings.into_iter().map(|warning| (warning.key, warning.message)).collect();
        let found = format!("other users can access this file (mode {mode:04o})");
        let expected = (!sound).then(|| ("listener.a.key_file".to_owned(), found));
        assert_eq!(warnings, Vec::from_iter(expected), "{mode:o}");
    }
}

#[test]
fn keys_with_placeholders_are_listed() {
    let (_, outcome) = super::check(&format!(
        "{BASE}[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = \"/nowhere/key\"\n\
         [sink.a]\npath = \"${{env:NOWHERE}}\"\nowner = \"no-such-user\"\n",
    ));
    assert!(outcome.config.is_some());
    assert_eq!(Vec::from_iter(&outcome.placeholders), ["listener.a.key_file", "sink.a.owner", "sink.a.path"]);
    let (_, outcome) = super::check(BASE);
    assert!(outcome.placeholders.is_empty());
}

#[test]
fn a_reference_in_another_key_is_an_error_that_lists_the_permitted_keys() {
    let expected = format!(
        "a.toml:2:9: log.level: this key does not accept references; write $${{ for a literal ${{, or use a key that accepts references: {}",
        keyward_config::references::REFERENCE_KEYS.join(", "),
    );
    check("[log]\nlevel = \"${env:CANARY}\"\n", Purpose::Check, &[&expected], &[]);
}

#[test]
fn a_malformed_reference_is_an_error() {
    for (written, found) in [
        ("${CANARY}", "\"${CANARY}\" is not a reference"),
        ("${env:}", "\"${env:}\" is not a reference"),
        ("${env:A-B}", "\"${env:A-B}\" is not a reference"),
        ("${file:relative}", "\"${file:relative}\" is not a reference"),
        ("${credential:}", "\"${credential:}\" is not a reference"),
        ("${credential:../shadow}", "\"${credential:../shadow}\" is not a reference"),
        ("${credential:..}", "\"${credential:..}\" is not a reference"),
        ("a${env:CANARY", "\"${env:CANARY\" is not closed"),
        ("$${a}${b}", "\"${b}\" is not a reference"),
    ] {
        let text = format!("[session.main]\nnamespace = \"{written}\"\n");
        let expected = format!(
            "a.toml:2:13: session.main.namespace: {found}; write ${{env:NAME}}, ${{file:/PATH}} or ${{credential:NAME}}, or $${{ for \
             a literal ${{"
        );
        check(&text, Purpose::Check, &[&expected], &[]);
    }
}

#[test]
fn an_escaped_reference_is_literal_text_in_every_key() {
    let folder = Folder::with(&[]);
    let text = format!(
        "{}[session.main]\nnamespace = \"$${{env:CANARY}}/$${{\"\nserver = \"main\"\n[session.main.cloud]\nrole = \"$${{x}}${{env:ROLE}}$${{y}}\"\n\
         resource = \"r\"\n[process]\ncommand = [\"/bin/sh\", \"-c\", \"echo $${{HOME}}\"]\n[agent]\ndrop_in = \"$${{d}}\"\n",
        BASE.split_once("[session.main]").unwrap().0,
    );
    let outcome = load(&[folder.put("a.toml", &text)], &environment(&[("ROLE", "web")]), Purpose::Check);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    // A value without a reference is shown as it is.
    assert!(outcome.references.keys().eq(["session.main.cloud.role"]));
    assert!(outcome.files.contains(&folder.path("${d}")), "{:?}", outcome.files);
    let mut config = outcome.config.unwrap();
    let session = config.sessions.remove(0);
    assert_eq!(session.login.namespace.as_deref(), Some("${env:CANARY}/${"));
    assert_eq!(session.login.role, "${x}web${y}");
    assert_eq!(config.process.unwrap().command[2], "echo ${HOME}");
}

#[test]
fn a_credential_of_systemd_is_the_path_of_its_file_and_a_missing_one_says_what_the_unit_lacks() {
    let folder = Folder::with(&[("credentials/seal.key", "0123456789-0123456789-0123456789-0123456789")]);
    let credentials = folder.path("credentials").display().to_string();
    let text = |name: &str| {
        format!(
            "{BASE}[session.b]\nserver = \"main\"\nseal_key_file = \"${{credential:{name}}}\"\n\
                 [session.b.cloud]\nrole = \"b\"\nresource = \"r\"\n[agent]\nstate_dir = \"{}\"\n",
            folder.path("").display()
        )
    };
    let read = |name: &str, variables: &[(&str, &str)], purpose| {
        load(&[folder.put("a.toml", &text(name))], &environment(variables), purpose)
    };
    let outcome = read("seal.key", &[("CREDENTIALS_DIRECTORY", &credentials)], Purpose::Run);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let session = outcome.config.unwrap().sessions.remove(0);
    assert!(session.lifecycle.state.unwrap().seal_key.is_some());
    let lacks = |outcome: Vec<keyward_config::Diagnostic>| {
        folder.short(&outcome).into_iter().filter(|text| text.contains("credential")).collect::<Vec<_>>()
    };
    let advice = "write LoadCredential=other:/PATH, or LoadCredentialEncrypted= for an encrypted file, in [Service] of the agent's unit \
                  (systemctl edit keyward.service)";
    for (variables, found) in [
        (&[][..], "systemd passes no credential: CREDENTIALS_DIRECTORY is not set".to_owned()),
        (
            &[("CREDENTIALS_DIRECTORY", "relative")],
            "systemd passes no credential: CREDENTIALS_DIRECTORY is not set".to_owned(),
        ),
        (&[("CREDENTIALS_DIRECTORY", &*credentials)], "systemd passes no credential of this name".to_owned()),
    ] {
        let errors = lacks(read("other", variables, Purpose::Run).errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(&found) && errors[0].ends_with(advice), "{errors:?}");
        // systemd passes credentials to the main process alone, and a unit may check its files in another one before a reload.
        for purpose in [Purpose::Check, Purpose::CheckHost] {
            let outcome = read("other", variables, purpose);
            assert_eq!((outcome.errors.len(), lacks(outcome.notes).len()), (0, 1), "{purpose:?}");
        }
    }
}

#[test]
fn no_message_shows_the_value_of_a_reference() {
    let folder = Folder::with(&[("secret", CANARY)]);
    let file = format!("${{file:{}}}", folder.path("secret").display());
    let places = [
        "[server.b]\nkind = \"vault\"\naddress = \"@\"\n",
        "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nproxy = \"@\"\n",
        "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nca_dir = \"/@\"\n",
        "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nserver_name = \"@/\"\n",
        "[session.main]\nmount = \"//@//@\"\n",
        "[session.main]\nnamespace = \" @\"\n",
        "[session.main]\nseal_key_file = \"@\"\n",
        "[sink.a]\npath = \"@\"\n",
        "[sink.a]\npath = \"/nowhere/@/token\"\n",
        "[listener.a]\naddress = \"@\"\n",
        "[listener.a]\naddress = \"tcp://127.0.0.1:1\"\nkey_file = \"/@\"\n",
        "[agent]\nstate_dir = \"/@\"\n",
    ];
    for place in places {
        for reference in ["${env:CANARY}", &file] {
            let text = place.replace('@', reference);
            let folder = Folder::with(&[("a.toml", &text), ("base.toml", BASE)]);
            let paths = [folder.path("a.toml"), folder.path("base.toml")];
            let outcome = load(&paths, &environment(&[("CANARY", CANARY)]), Purpose::Run);
            assert!(!outcome.errors.is_empty(), "{text}");
            let text = format!("{} {outcome:?}", serde_json::to_string(&outcome.report()).unwrap());
            assert!(!text.contains(CANARY), "{text}");
        }
    }
}

#[test]
fn no_secret_is_printed_while_reading_a_configuration() {
    let folder = Folder::with(&[("key", &CANARY.repeat(3))]);
    let text = format!(
        "{BASE}[server.p]\nkind = \"vault\"\naddress = \"https://p\"\nproxy = \"http://me:${{env:CANARY}}@proxy:8080\"\n\
         [session.p]\nserver = \"p\"\nseal_key_file = {key:?}\n[session.p.cloud]\nrole = \"p\"\nresource = \"r\"\n\
         [listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = {key:?}\n[agent]\nstate_dir = {:?}\n",
        folder.path(""),
        key = folder.path("key"),
    );
    let path = folder.put("a.toml", &text);
    let environment = environment(&[("CANARY", CANARY), ("AZURE_CLIENT_SECRET", CANARY)]);
    let outcome = load(&[path], &environment, Purpose::Run);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let text = format!("{} {environment:?} {outcome:?}", serde_json::to_string(&outcome.report()).unwrap());
    assert!(!text.contains(CANARY), "{text}");
    let words = outcome.description().unwrap().to_string();
    assert!(words.contains("through the proxy http://me:${env:CANARY}@proxy:8080"), "{words}");
}

#[test]
fn the_expanded_size_of_references_is_limited_per_value_and_in_total() {
    let large = "x".repeat(60 * 1024);
    let folder = Folder::with(&[("large", &large), ("half", &large[..40 * 1024])]);
    let refer = |name: &str| format!("${{file:{}}}", folder.path(name).display());
    let read = |text: &str| {
        let path = folder.put("a.toml", text);
        let outcome = load(&[path], &environment(&[]), Purpose::Run);
        assert!(outcome.errors.iter().all(|mistake| !mistake.to_string().contains("xxxxxxxx")), "it is not shown");
        folder.short(&outcome.errors).into_iter().filter(|text| text.contains("expands")).collect::<Vec<_>>()
    };
    let one = |value: &str| format!("{BASE}namespace = \"a\"\n[agent]\nstate_dir = \"/{value}\"\n");
    assert_eq!(read(&one(&refer("large"))), [""; 0]);
    for value in [format!("{}{}", refer("half"), refer("half")), format!("{}{}", refer("large"), "y".repeat(5000))] {
        let errors = read(&one(&value));
        assert!(
            errors.len() == 1 && errors[0].contains("expands to more than 64 KiB in one value; refer to"),
            "{errors:?}"
        );
    }
    let sinks = (0..80).map(|number| format!("[sink.s{number}]\npath = \"/{}\"\n", refer("large")));
    let errors = read(&format!("{BASE}{}", sinks.collect::<String>()));
    assert_eq!(errors.len(), 12, "68 of 60 KiB fit");
    assert!(errors[0].contains("expands to more than 4 MiB in all values"), "{}", errors[0]);
}
