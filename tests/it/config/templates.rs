//! `[template.NAME]`, `[env_template.NAME]` and `[process]`.

use std::time::Duration;

use keyward_agent::process::{OnChange, RestartMode};
use keyward_config::{Purpose, Serves, load};
use rustix::process::Signal;

use super::{BASE, Folder, environment};

/// Parses a text together with a valid file; returns its diagnostics, errors before warnings.
fn diagnostics_of(text: &str) -> Vec<String> {
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
    assert_eq!(outcome.config.is_none(), !outcome.errors.is_empty());
    let mut diagnostics = folder.short(&outcome.errors);
    diagnostics.extend(folder.short(&outcome.warnings));
    diagnostics
}

#[test]
fn templates_and_a_process_are_read_with_their_defaults_and_described() {
    let text = "[template.conf]\ncontents = '''\n{{ \"x\" }}\n'''\ndestination = \"/tmp/conf\"\ncommand = [\"reload it\"]\nshell = true\n\
                [env_template.URL]\ncontents = 'y'\npass_env = [\"APP_*\"]\n\
                [process]\ncommand = [\"/usr/bin/app\", \"--serve\", \"\"]\non_change = \"signal\"\nchange_signal = \"SIGUSR1\"\n";
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let variables = environment(&[("APP_MODE", "blue"), ("OTHER", "x"), ("AZURE_X", "x"), ("PATH", "/bin")]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &variables, Purpose::Check);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    assert_eq!(folder.short(&outcome.warnings), [""; 0], "the session is of use");
    let config = outcome.config.as_ref().unwrap();
    let conf = &config.templates[0].options;
    let file = conf.file.as_ref().unwrap();
    assert_eq!((file.mode, file.create_folders, conf.required), (0o640, false, true));
    assert_eq!((conf.debounce, conf.interval), (Duration::from_secs(1), Duration::from_mins(5)));
    assert_eq!(file.command_debounce, Duration::from_secs(1));
    let command = file.command.as_ref().unwrap();
    assert_eq!((command.command.join(" ").as_str(), command.timeout.as_secs()), ("/bin/sh -c reload it", 30));
    let url = &config.env_templates[0].options;
    assert_eq!(url.text.variables.names().collect::<Vec<_>>(), ["APP_MODE", "PATH"]);
    let child = config.process.as_ref().unwrap();
    assert_eq!(child.command, ["/usr/bin/app", "--serve", ""]);
    assert_eq!((child.on_change, child.restart), (OnChange::Signal(Signal::USR1), RestartMode::Never));
    assert_eq!((child.stop_signal, child.stop_timeout.as_secs()), (Signal::TERM, 30));
    assert_eq!(child.variables.names().collect::<Vec<_>>(), ["PATH"]);
    let words = outcome.description().unwrap().to_string();
    for clause in [
        "template conf\n  renders its contents to /tmp/conf, mode 0640, with secrets read by session main\n  after a change runs \
         /bin/sh -c reload it, for 30s at most\n",
        "env_template URL\n  renders its contents, with secrets read by session main, for the variable URL",
        "process\n  runs /usr/bin/app --serve \"\" once all templates are rendered and all certificates are written\n  sends it SIGUSR1 when a variable has changed\n",
    ] {
        assert!(words.contains(clause), "{words}");
    }
}

#[test]
fn errors_of_templates_and_of_a_process_have_positions() {
    let check = |text: &str, expected: &[&str]| assert_eq!(diagnostics_of(text), expected, "{text}");
    check(
        "[template.a]\n",
        &[
            "a.toml:1:11: template.a.destination: missing; the file to write, such as \"/etc/app/app.conf\"",
            "a.toml:1:11: template.a.source: missing; name the template's file, or write it as contents",
        ],
    );
    check(
        "[template.a]\ncontents = '''\nok\n{{ secrt }}{{ key \"x\" }}'''\ndestination = \"/tmp/a\"\n",
        &[
            "a.toml:2:12: template.a.contents: line 2, column 4: unknown function secrt; did you mean secret?; \
             see docs/templates.md",
            "a.toml:2:12: template.a.contents: line 2, column 15: key is not available: it reads Consul, and templates here read \
             Vault or OpenBao; see docs/templates.md",
        ],
    );
    check(
        "[template.a]\ncontents = \"x\"\ndestination = \"/tmp/a\"\n[sink.s]\npath = \"/tmp/a\"\n\
         [template.b]\ncontents = \"x\"\ndestination = \"/tmp/b\"\nmode = \"0644\"\ncommand = [\"systemctl reload\"]\n",
        &[
            "a.toml:3:1: template.a.destination: also the file of sink s; give each one its own file",
            "a.toml:10:1: template.b.command: \"systemctl reload\" is not the name of a program; write the program and each \
             argument as a string of its own, or shell = true",
            "a.toml:9:1: template.b.mode: 0644 lets every user of this machine access the rendered file; end it with 0, and set group",
        ],
    );
    check(
        "[template.a]\nsource = \"/tmp/a\"\ndestination = \"/tmp/a\"\nshell = true\n\
         [template.b]\ncontents = \"x\"\ndestination = \"/tmp/b\"\ncommand_timeout = \"5s\"\n",
        &[
            "a.toml:3:1: template.a.destination: also the template's source; write another destination: this one would be lost \
             at the first rendering",
            "a.toml:4:1: template.a.shell: has no effect without command; set command, or leave it out",
            "a.toml:8:1: template.b.command_timeout: has no effect without command; set command, or leave it out",
        ],
    );
    check(
        "[env_template.AZURE_X]\ncontents = \"x\"\n[env_template.a-b]\ncontents = \"x\"\npass_env = [\"LISTEN_FDS\", \"a b\"]\n",
        &[
            "a.toml:1:15: env_template.AZURE_X: AZURE_X is never passed to a program; choose another name",
            "a.toml:3:15: env_template.a-b: \"a-b\" is not a variable name; write letters, digits and _, no digit first",
            "a.toml:5:1: env_template.a-b.pass_env: LISTEN_FDS is never passed to a program; write the name of a variable; it may \
             end in *",
            "a.toml:5:1: env_template.a-b.pass_env: \"a b\" is not a variable name; write the name of a variable; it may end in *",
        ],
    );
    check(
        "[template.a]\ncontents = '{{ secret \"auth/token/create\" \"ttl=1h\" }}{{ writeToFile \"/srv/x\" \"\" \"\" \"0600\" \"x\" }}'\n\
         destination = \"/tmp/a\"\nwrite_folders = [\"/tmp\"]\nencoding = \"hex\"\n\
         [env_template.B]\ncontents = '{{ writeToFile \"/tmp/x\" \"\" \"\" \"0600\" \"x\" }}'\nwrite_folders = [\"/tmp\"]\n\
         [templates]\nrewrite_interval = \"1s\"\n",
        &[
            "a.toml:2:12: template.a.contents: line 1, column 4: secret \"auth/token/create\": this path makes a token, which no template can renew or \
             revoke; use [sink.NAME.derived_token] for tokens; see docs/templates.md",
            "a.toml:2:12: template.a.contents: line 1, column 45: writeToFile \"/srv/x\": the path is below none of the template's \
             write_folders, or not absolute, or has .. in it; see docs/templates.md",
            "a.toml:5:12: template.a.encoding: \"hex\" is not a known value; write \"text\" or \"base64\"",
            "a.toml:7:12: env_template.B.contents: line 1, column 4: writeToFile \"/tmp/x\": it writes below the template's write_folders, of \
             which there are none here; only [template.NAME] has them; see docs/templates.md",
            "a.toml:8:1: env_template.B.write_folders: an unknown key; did you mean read_folders?",
            "a.toml:10:20: templates.rewrite_interval: \"1s\" is out of range; write one from 1m to 90d",
        ],
    );
    let both = "[template.a]\ncontents = \"x\"\ndestination = \"/tmp/a\"\n\
                [template.b]\ncontents = \"x\"\ndestination = \"/tmp/b\"\n";
    check(
        &format!("[agent]\nstate_dir = \"/tmp\"\n[templates]\npersist = true\n{both}"),
        &[
            "a.toml:4:1: templates.persist: needs a seal_key_file in session main, whose key seals the file; set one (openssl rand -hex 32), or leave persist out",
        ],
    );
    check(
        &format!("[templates]\nstale_if_error = \"1h\"\n{both}"),
        &[
            "a.toml:2:1: templates.stale_if_error: has no effect without persist = true; set persist = true, or leave it out",
        ],
    );
    check(
        "[process]\ncommand = [\"\"]\n",
        &["a.toml:2:12: process.command: an empty string; set a value, or leave the key out"],
    );
    check(
        "[process]\nchange_signal = \"SIGHUPS\"\nrestart = \"allways\"\nsink = 1\n",
        &[
            "a.toml:1:2: process.command: missing; write the program and each of its arguments, such as [\"/usr/bin/app\", \
             \"--serve\"]",
            "a.toml:2:1: process.change_signal: only allowed with on_change = \"signal\"; set on_change = \"signal\", or leave it out",
            "a.toml:2:17: process.change_signal: \"SIGHUPS\" is not a supported signal; write SIGTERM, SIGHUP, SIGINT, \
             SIGQUIT, SIGUSR1, SIGUSR2 or SIGKILL",
            "a.toml:3:11: process.restart: \"allways\" is not a known value; write \"never\", \"on_failure\" or \"always\"",
            "a.toml:4:1: process.sink: an unknown key; known keys: identity, command, on_change, change_signal, \
             max_restarts_per, pass_env, restart, stop_signal, stop_timeout, debounce",
        ],
    );
}

#[test]
fn the_limit_of_restarts_is_a_number_in_a_time() {
    let with = |more: &str| format!("[process]\ncommand = [\"/bin/true\"]\n{more}\n");
    for (value, clause) in [("3/1h", "changed, 3 times in 1h at most"), (" 1 / 90m", "changed, once in 1h 30m at most")]
    {
        let folder =
            Folder::with(&[("a.toml", &with(&format!("max_restarts_per = \"{value}\""))), ("base.toml", BASE)]);
        let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
        let words = outcome.description().unwrap().to_string();
        assert!(words.contains(clause), "{words}");
    }
    let form = "write how many in which time, such as \"3/1h\"";
    for (value, expected) in [
        ("3", format!("\"3\" is not a number in a time; {form}")),
        ("0/1h", format!("\"0/1h\" does not begin with a number from 1 to 1000; {form}")),
        ("x/1h", format!("\"x/1h\" does not begin with a number from 1 to 1000; {form}")),
        ("3/1", "\"3/1\" has a time that has no unit; write one such as 500ms, 30s, 5m or 1h".to_owned()),
        ("3/8d", "\"3/8d\" has a time that is out of range; write one from 1s to 7d".to_owned()),
    ] {
        let found = diagnostics_of(&with(&format!("max_restarts_per = \"{value}\"")));
        assert!(found.contains(&format!("a.toml:3:20: process.max_restarts_per: {expected}")), "{found:?}");
    }
    let found = diagnostics_of(&with("on_change = \"ignore\"\nmax_restarts_per = \"3/1h\""));
    let expected = "a.toml:4:1: process.max_restarts_per: only allowed with on_change = \"restart\"; set on_change = \"restart\", or \
                    leave it out";
    assert!(found.contains(&expected.to_owned()), "{found:?}");
}

#[test]
fn files_of_templates_and_of_a_process_missing_on_this_machine_are_notes() {
    let text = "[template.a]\ncontents = \"x\"\ndestination = \"/tmp\"\ncommand = [\"/no/such/program\"]\n\
                [template.b]\ncontents = \"x\"\ndestination = \"/tmp/b\"\ncommand = \"touch /tmp/c\"\nshell = true\n\
                [process]\ncommand = [\"/no/such/app\"]\n";
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let files = [folder.path("a.toml"), folder.path("base.toml")];
    let outcome = load(&files, &environment(&[]), Purpose::Check);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let notes = folder.short(&outcome.notes);
    for expected in [
        "a.toml:3:15: template.a.destination: /tmp is a folder; name a file in it",
        "a.toml:4:1: template.a.command: the program /no/such/program does not exist; install it, or name another",
        "a.toml:11:1: process.command: the program /no/such/app does not exist; install it, or name another",
    ] {
        assert!(notes.iter().any(|note| note == expected), "{notes:?}");
    }
    let config = outcome.config.unwrap();
    let command = config.templates[1].options.file.as_ref().unwrap().command.as_ref().unwrap();
    assert_eq!(command.command, ["/bin/sh", "-c", "touch /tmp/c"]);
}

#[test]
fn persisted_secrets_are_in_the_state_folder_sealed_with_the_key_of_their_session() {
    let text = "[agent]\nstate_dir = \"STATE\"\n[session.main]\nseal_key_file = \"STATE/seal.key\"\n[templates]\npersist = true\n\
                stale_if_error = \"2h\"\n[template.a]\ncontents = \"x\"\ndestination = \"/tmp/a\"\n\
                [listener.vault]\nkind = \"api_proxy\"\naddress = \"unix:///run/a\"\n[listener.vault.cache]\npersist = true\n";
    let state = tempfile::tempdir().unwrap();
    let place = state.path().display().to_string();
    std::fs::write(state.path().join("seal.key"), "0123456789".repeat(4)).unwrap();
    let base = BASE.replace("[session.main]\n", "").replace("server = \"main\"\n", "");
    let folder = Folder::with(&[("a.toml", &text.replace("STATE", &place)), ("base.toml", &base)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Run);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let config = outcome.config.as_ref().unwrap();
    let offline = config.templates[0].secrets.offline.as_ref().unwrap();
    assert_eq!(
        (&offline.persist.file, offline.max_stale_age),
        (&state.path().join("main.secrets"), Duration::from_hours(2))
    );
    let Serves::ApiProxy(options) = &config.listeners[0].serves else { panic!("{:?}", config.listeners) };
    let persist = options.cache.as_ref().unwrap().persist.as_ref().unwrap();
    assert_eq!(persist.file, state.path().join("vault.cache"));
    let words = outcome.description().unwrap().to_string();
    for clause in [
        format!("  persists them across restarts, encrypted, in {place}/vault.cache\n"),
        format!(
            "  keeps those secrets across restarts, encrypted, in {place}/main.secrets, and uses them for 2h while the server does not respond\n"
        ),
    ] {
        assert!(words.contains(&clause), "{words}");
    }
}

#[test]
fn a_template_that_reads_secrets_needs_a_session_of_a_server_with_secrets() {
    let session = |kind: &str, keys: &str| {
        format!(
            "[server.acl]\nkind = \"{kind}\"\naddress = \"https://acl.example.com\"\n\
             [session.mesh]\nserver = \"acl\"\n{keys}[session.mesh.kubernetes]\n"
        )
    };
    let template = |contents: &str| {
        format!("[template.a]\nsession = \"mesh\"\ncontents = '{contents}'\ndestination = \"/tmp/a\"\n")
    };
    for (kind, keys, role) in [("consul", "auth_method = \"pods\"\n", ""), ("keyward", "", "role = \"a\"\n")] {
        let session = session(kind, keys) + role;
        for contents in [
            "{{ secret \"secret/data/a\" }}",
            "{{ range secrets \"a/\" }}{{ . }}{{ end }}",
            "{{ with pkiCert \"pki/issue/a\" }}{{ .Key }}{{ end }}",
        ] {
            let expected = format!(
                "a.toml:3:12: template.a.contents: reads secrets, but the server of session mesh, of kind \"{kind}\", stores none; \
                 name a session of a Vault or OpenBao server (kind = \"vault\" or \"openbao\")"
            );
            let diagnostics = diagnostics_of(&(template(contents) + &session));
            assert_eq!(diagnostics[0], expected, "{diagnostics:?}");
        }
        // A template without secrets may use any session.
        let diagnostics = diagnostics_of(&(template("{{ env \"HOME\" }}") + &session));
        assert!(!diagnostics.iter().any(|line| line.contains("template.a")), "{diagnostics:?}");
    }
}
