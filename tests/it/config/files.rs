//! Several files merged into one configuration, and the permissions of the files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use proptest::prelude::*;

use super::{BASE, Folder, check, chmod, clean, environment};
use keyward_config::{LoadOutcome, Purpose, load};

fn run(paths: &[PathBuf]) -> LoadOutcome {
    load(paths, &environment(&[]), Purpose::Run)
}

#[test]
fn all_errors_of_all_files_are_reported_at_once_in_the_order_of_the_files() {
    let folder = Folder::with(&[
        ("b.toml", "[log]\nlevel = 1\n[sink.x]\nmode = \"9\"\n"),
        ("a.toml", "[sink.y]\npath = \"y\"\ncolour = 1\n[server.b\n"),
    ]);
    let outcome = run(&[folder.path("b.toml"), folder.path("a.toml"), folder.path("c.toml")]);
    let expected = [
        "b.toml:2:9: log.level: expected a string, found an integer; put it in quotes",
        "b.toml:4:8: sink.x.mode: \"9\" is not a mode; write three or four octal digits, such as \"0640\"",
        "a.toml:2:8: sink.y.path: \"y\" is not an absolute path; start it with /",
        "a.toml:3:1: sink.y.colour: an unknown key; \
         known keys: path, identity, resource, session, shared_folder, format, wrap_ttl, derived_token, encrypt, on_missing, mode, owner, group, on_expiry, required",
        "a.toml:4:10: unclosed table, expected `]`",
        "c.toml: cannot be read: No such file or directory (os error 2)",
    ];
    assert_eq!(folder.short(&outcome.errors), expected);
}

#[test]
fn a_folder_is_read_in_name_order_without_hidden_and_other_files() {
    let folder = Folder::with(&[
        ("conf/20.toml", "[log]\nlevel = \"debug\"\n[log.x]\n"),
        ("conf/10.toml", &format!("{BASE}[log]\nlevel = \"info\"\n")),
        ("conf/.30.toml", "[[["),
        ("conf/40.toml~", "[[["),
        ("conf/50.toml/sub.toml", "[[["),
    ]);
    let outcome = run(&[folder.path("conf")]);
    let expected = [
        "conf/20.toml:2:1: log.level: set here and at conf/10.toml:10:1; keep one of the two",
        "conf/20.toml:3:6: log.x: an unknown key; known keys: level, format",
    ];
    let short: Vec<_> = folder.short(&outcome.errors);
    assert_eq!(short, expected.map(|line| line.replace("at conf/", &format!("at {}", "conf/"))));
}

#[test]
fn a_drop_in_adds_to_tables_and_a_key_in_two_files_is_an_error_that_names_both_lines() {
    let main = format!("{BASE}[agent]\ndrop_in = \"conf.d\"\n");
    let folder = Folder::with(&[
        ("keyward.toml", &main),
        ("conf.d/10-sink.toml", "[sink.a]\nsession = \"main\"\npath = \"/a\"\n"),
        (
            "conf.d/20-check.toml",
            "[session.main]\ncheck_interval = \"off\"\n[session.b.cloud]\nrole = \"b\"\nresource = \"r\"\n",
        ),
    ]);
    let outcome = run(&[folder.path("keyward.toml")]);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let config = outcome.config.unwrap();
    let names: Vec<_> = config.sessions.iter().map(|session| session.name.as_str()).collect();
    assert_eq!(names, ["b", "main"]);
    assert_eq!(config.sessions[1].lifecycle.check_interval, None);
    assert_eq!(config.sinks.len(), 1);

    folder.put(
        "conf.d/30-more.toml",
        "[sink.a]\npath = \"/tmp/b\"\n[session.main.cloud]\nrole = \"c\"\n[agent]\ndrop_in = \"x\"\n",
    );
    let outcome = run(&[folder.path("keyward.toml")]);
    let expected = [
        "conf.d/30-more.toml:2:1: sink.a.path: set here and at conf.d/10-sink.toml:3:1; keep one of the two",
        "conf.d/30-more.toml:4:1: session.main.cloud.role: set here and at keyward.toml:7:1; keep one of the two",
        "conf.d/30-more.toml:6:1: agent.drop_in: not allowed in a drop-in file; write it in the main file only",
    ];
    assert_eq!(folder.short(&outcome.errors), expected);

    folder.put("keyward.toml", &main.replace("conf.d", "none.d"));
    let outcome = run(&[folder.path("keyward.toml")]);
    let expected = [
        "keyward.toml:10:11: agent.drop_in: the folder none.d cannot be read: No such file or directory (os error 2); \
         create it before the agent starts",
    ];
    assert_eq!(folder.short(&outcome.errors), expected);
}

#[test]
fn a_file_given_twice_is_read_once() {
    let folder = Folder::with(&[("a.toml", BASE)]);
    let outcome = run(&[folder.path("a.toml"), folder.path(""), folder.path("./a.toml")]);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
}

#[test]
fn a_missing_file_argument_is_an_error() {
    let expected = "(no file): no configuration file is given; name a file or a folder [KW-1001]";
    assert_eq!(run(&[]).errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
}

#[test]
fn a_file_that_is_not_text_is_an_error() {
    let folder = Folder::with(&[("empty/x", ""), ("large.toml", &"#".repeat(1024 * 1024 + 1))]);
    std::fs::write(folder.path("bytes.toml"), [0xff]).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("fifo.toml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let paths = ["empty", "large.toml", "bytes.toml", "fifo.toml"].map(|name| folder.path(name));
    let expected = [
        "empty: the folder has no *.toml file; name a file, or create one there",
        "large.toml: is larger than 1048576 bytes",
        "bytes.toml: is not UTF-8 text",
        "fifo.toml: is not a regular file",
    ];
    assert_eq!(folder.short(&run(&paths).errors), expected);
}

/// Diagnostics about write permissions, for `run`; `check` must report the same as notes.
fn doubts(folder: &Folder, name: &str, user: Option<u32>) -> Vec<String> {
    let mut environment = environment(&[]);
    environment.user = user.unwrap_or(environment.user);
    let run = load(&[folder.path(name)], &environment, Purpose::Run);
    let check = load(&[folder.path(name)], &environment, Purpose::Check);
    assert_eq!(check.errors, []);
    let notes: Vec<_> = check.notes.into_iter().filter(|note| note.key.is_empty()).collect();
    assert_eq!(notes, run.errors);
    assert_eq!(run.config.is_some(), run.errors.is_empty());
    folder.short(&run.errors)
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let folder = Folder::with(&[("a.toml", BASE)]);
    let path = folder.path("a.toml");
    assert_eq!(doubts(&folder, "a.toml", None), [""; 0]);
    let check = |mode: u32, expected: &str| {
        chmod(&path, mode);
        let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&path).unwrap());
        let group = nix::unistd::Group::from_gid(group.into()).unwrap().map_or(group.to_string(), |group| group.name);
        assert_eq!(doubts(&folder, "a.toml", None), [expected.replace("GROUP", &group)]);
    };
    check(
        0o646,
        "a.toml: the file can be written by everybody and not only by root and the agent's user (mode 0646); \
         chmod o-w a.toml",
    );
    check(
        0o664,
        "a.toml: the file can be written by group GROUP and not only by root and the agent's user (mode 0664); \
         chmod g-w a.toml",
    );
}

#[test]
fn a_folder_that_others_can_write_is_refused_and_folders_above_it_are_not_checked() {
    let folder = Folder::with(&[("open/conf/a.toml", BASE)]);
    chmod(&folder.path("open"), 0o777);
    assert_eq!(doubts(&folder, "open/conf/a.toml", None), [""; 0]);
    chmod(&folder.path("open/conf"), 0o777);
    let expected = "open/conf/a.toml: its folder can be written by everybody and not only by root and the agent's user \
                  (mode 0777); chmod o-w open/conf";
    assert_eq!(doubts(&folder, "open/conf/a.toml", None), [expected]);
    // The folder that a symlink leads to counts as well.
    symlink(folder.path("open/conf/a.toml"), folder.path("link.toml")).unwrap();
    chmod(&folder.path(""), 0o700);
    assert_eq!(doubts(&folder, "link.toml", None).len(), 1);
}

#[test]
fn a_file_that_is_owned_by_neither_root_nor_the_agents_user_is_refused() {
    let folder = Folder::with(&[("a.toml", BASE)]);
    let path = folder.path("a.toml");
    let mut owner = environment(&[]).user;
    if owner == 0 {
        owner = 4711;
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        std::os::unix::fs::chown(folder.path(""), Some(owner), None).unwrap();
    }
    assert_eq!(doubts(&folder, "a.toml", Some(owner)), [""; 0]);
    let found = doubts(&folder, "a.toml", Some(owner + 1));
    assert_eq!(found.len(), 2, "{found:?}");
    let expected = format!(
        "a.toml: the file can be written by user {owner}, who owns it, and not only by root and the agent's user \
         (mode 0644); chown root a.toml"
    );
    assert_eq!(found[0], expected);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644);
}

#[test]
fn two_configurations_are_equal_when_nothing_differs() {
    let folder = Folder::with(&[("key", &"k".repeat(40))]);
    let text = format!("{BASE}[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = {:?}\n", folder.path("key"));
    let first = clean(&text);
    assert_eq!(first, clean(&text));
    assert_ne!(first, clean(&text.replace("8300", "8301")));
    folder.put("key", &"l".repeat(40));
    assert_ne!(first, clean(&text));
}

/// Pieces of configurations, so that random ones are almost valid.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "[",
        "]",
        "[[",
        "]]",
        ".",
        "=",
        "\n",
        "\"",
        "'''",
        "{",
        "}",
        ",",
        "#",
        "-",
        "1",
        "0o640",
        "true",
        "2020-01-01",
        "é",
        "\u{0}",
        "${env:A}",
        "${file:/etc/hostname}",
        "${",
        "server",
        "session",
        "sink",
        "listener",
        "log",
        "agent",
        "acl",
        "main",
        "cloud",
        "role",
        "resource",
        "scope",
        "address",
        "\"https://a\"",
        "\"unix:///a\"",
        "\"tcp://127.0.0.1:1\"",
        "path",
        "\"/tmp/a\"",
        "mode",
        "\"0640\"",
        "level",
        "\"info,a=debug\"",
        "check_interval",
        "\"5m\"",
        "drop_in",
        "sessions",
        "kind",
    ];
    prop_oneof![
        4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        2 => (proptest::sample::select(words.to_vec()), proptest::sample::select(words.to_vec()))
            .prop_map(|(key, value)| format!("\n{key} = {value}\n")),
        2 => (proptest::sample::select(words.to_vec()), proptest::sample::select(words.to_vec()))
            .prop_map(|(table, name)| format!("\n[{table}.{name}]\n")),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
        let (_, outcome) = check(&pieces.concat());
        prop_assert_eq!(outcome.config.is_some(), outcome.errors.is_empty());
        for diagnostic in outcome.errors.iter().chain(&outcome.warnings).chain(&outcome.notes) {
            let control = diagnostic.to_string().contains(char::is_control);
            prop_assert!(!control, "{diagnostic:?}");
        }
    }

    #[test]
    fn a_valid_file_with_an_inserted_piece_never_panics(piece in piece(), at in 0..BASE.len()) {
        let (_, outcome) = check(&format!("{}{piece}{}", &BASE[..at], &BASE[at..]));
        prop_assert_eq!(outcome.config.is_some(), outcome.errors.is_empty());
    }
}

/// The warnings about a file with a secret in it, by mode.
fn warned(text: &str, path: &std::path::Path, mode: u32) -> Vec<String> {
    chmod(path, mode);
    let folder = Folder::with(&[("a.toml", text)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[]), Purpose::Check);
    folder.short(&outcome.warnings)
}

#[test]
fn files_of_secrets_that_others_may_read_are_warnings() {
    let folder =
        Folder::with(&[("secret", "0123456789abcdef0123456789abcdef"), ("acl/acl.redb", ""), ("acl/seal.key", "")]);
    let at = |name: &str| folder.path(name).display().to_string();
    let session = "[server.main]\nkind = \"vault\"\naddress = \"https://secrets.example.com\"\n[session.main]\n";
    let texts = [
        format!("{BASE}[listener.a]\naddress = \"tcp://127.0.0.1:8200\"\nkey_file = \"{}\"\n", at("secret")),
        format!("{session}[session.main.token_file]\nfile = \"{}\"\n", at("secret")),
        format!(
            "{session}[session.main.approle]\nrole_id_file = \"/nowhere\"\nsecret_id_file = \"{}\"\n",
            at("secret")
        ),
        #[cfg(feature = "gateway")]
        format!(
            "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\nlocal_token_file = \"/t\"\n\
             token_file = \"{}\"\n",
            at("secret")
        ),
        #[cfg(feature = "gateway")]
        format!(
            "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\nlocal_token_file = \"/t\"\n\
             [gateway.mint]\nkind = \"organization\"\norganization = \"o\"\nparent_token_file = \"{}\"\n",
            at("secret")
        ),
    ];
    for text in texts {
        let open = warned(&text, &folder.path("secret"), 0o644);
        assert!(
            open.iter().any(|warning| warning.contains("other users can access this file (mode 0644)")),
            "{text} {open:?}"
        );
        let closed = warned(&text, &folder.path("secret"), 0o600);
        assert!(!closed.iter().any(|warning| warning.contains("other users")), "{text} {closed:?}");
    }
    #[cfg(feature = "acl")]
    for name in ["acl.redb", "seal.key"] {
        let text = format!("[acl]\nlisten = \"unix:///tmp/a.sock\"\ndata_dir = \"{}\"\n", at("acl"));
        chmod(&folder.path("acl/acl.redb"), 0o600);
        chmod(&folder.path("acl/seal.key"), 0o600);
        let open = warned(&text, &folder.path("acl").join(name), 0o640);
        assert!(
            open.iter().any(|warning| warning.contains(&format!("other users can access {name} in this folder"))),
            "{open:?}"
        );
        let closed = warned(&text, &folder.path("acl").join(name), 0o600);
        assert!(!closed.iter().any(|warning| warning.contains("other users")), "{closed:?}");
    }
}

#[test]
fn an_api_proxy_without_key_and_request_header_is_a_warning() {
    let check = |more: &str, expected: bool| {
        let text = format!("{BASE}[listener.a]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8200\"\n{more}");
        let (folder, outcome) = check(&text);
        assert_eq!(folder.short(&outcome.errors), [""; 0], "{text}");
        let warned = folder.short(&outcome.warnings);
        assert_eq!(
            warned.iter().any(|text| text.contains("web pages could send requests too")),
            expected,
            "{warned:?}"
        );
    };
    check("any_local_user = true\nrequire_request_header = false\n", true);
    check("any_local_user = true\n", false);
    check("key_file = \"/nowhere\"\nrequire_request_header = false\n", false);
}
