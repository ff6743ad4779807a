//! Short flags, arguments without a flag, and help in a terminal's width.

use std::path::Path;

use crate::harness::binary::run;

fn configuration(folder: &Path) -> String {
    let file = folder.join("keyward.toml");
    let text = "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
                [session.web.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n";
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn check_takes_files_as_arguments_or_by_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path());
    let by_flag = run(&["check", "--config", &file, "--format", "json"], &[]);
    assert_eq!(by_flag.0, 0, "{by_flag:?}");
    assert_eq!(run(&["check", &file, "-o", "json"], &[]), by_flag);
    assert_eq!(run(&["check", "-c", &file, "-o", "json"], &[]), by_flag);
    let (code, _, error) = run(&["check", &file, "--config", &file], &[]);
    assert!(code == 1 && error.contains("cannot be used with"), "{error}");
    let (code, output, _) = run(&["check", &format!("{file}.none")], &[]);
    assert!(code == 3 && output.contains("keyward.toml.none"), "{output}");
}

#[test]
fn a_variable_names_the_configuration_and_a_file_on_the_command_line_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path());
    let none = folder.path().join("none.toml").display().to_string();
    let by_flag = run(&["check", "-c", &file], &[]);
    assert_eq!(run(&["check"], &[("KEYWARD_CONFIG", &file)]), by_flag);
    assert_eq!(run(&["check", &file], &[("KEYWARD_CONFIG", &none)]), by_flag);
    assert_eq!(run(&["check", "-c", &file], &[("KEYWARD_CONFIG", &none)]), by_flag);
    let (code, output, _) = run(&["check"], &[("KEYWARD_CONFIG", "")]);
    assert!(code == 3 && output.contains("/etc/keyward/keyward.toml"), "{output}");
}

#[test]
fn a_session_has_a_short_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path());
    let (code, _, error) = run(&["login", "-c", &file, "-s", "none"], &[]);
    assert!(code == 1 && error.contains("there is no such session (there are: web)"), "{error}");
}

#[test]
fn the_path_of_a_socket_needs_no_scheme() {
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path());
    let socket = folder.path().join("none.sock").display().to_string();
    let (code, _, error) = run(&["healthcheck", "-c", &file, "--address", &socket], &[]);
    assert!(code == 7 && error.contains(&socket), "{error}");
    #[cfg(feature = "acl")]
    {
        let (code, _, error) = run(&["acl", "whoami", "--address", &socket], &[]);
        assert!(code == 7 && error.contains(&socket), "{error}");
    }
}

#[cfg(feature = "acl")]
#[test]
fn an_unknown_mode_of_the_sandbox_is_refused_with_those_that_there_are() {
    let (code, _, error) = run(&["acl", "serve", "--dir", "none", "--sandbox", "on"], &[]);
    assert!(code == 1 && error.contains("expected enforce, best_effort, off"), "{code} {error}");
}

#[test]
fn help_is_no_wider_than_its_terminal() {
    for command in [&["--help"][..], &["run", "--help"], &["check", "--help"], &["exec", "--help"]] {
        let (code, help, _) = run(command, &[("COLUMNS", "80")]);
        assert_eq!(code, 0);
        let wide: Vec<_> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{command:?}: {wide:#?}");
    }
}

#[cfg(all(feature = "acl", feature = "gateway"))]
#[test]
fn help_lists_commands_by_group_and_exit_codes_a_line_each() {
    let (_, help, _) = run(&["--help"], &[]);
    let headings: Vec<_> = help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    let expected =
        ["Run:", "Ask the agent:", "Set up:", "ACL:", "Terraform:", "Kubernetes:", "Global options:", "Exit codes:"];
    assert_eq!(headings, expected);
    assert!(help.contains("\n  7   no agent or server answers\n  8   "), "{help}");
    let (_, help, _) = run(&["token", "--help"], &[]);
    let (own, global) = help.split_once("\nGlobal options:\n").unwrap();
    assert!(own.contains("--session") && !own.contains("--log-level") && global.contains("--log-level"), "{help}");
}

#[test]
fn a_flag_with_one_dash_as_other_programs_have_it_is_refused_with_the_right_one() {
    for (args, written) in [
        (&["run", "-config=/etc/vault/agent.hcl"][..], "-config is no flag: write --config, with two dashes"),
        (&["run", "-config", "agent.hcl"], "write --config,"),
        (&["check", "-format=json"], "write --format,"),
    ] {
        let (code, output, error) = run(args, &[]);
        assert_eq!((code, output.as_str()), (1, ""), "{args:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(written), "{args:?}: {error}");
    }
    // A short flag with its value, and the words of another program.
    let folder = tempfile::tempdir().unwrap();
    let file = configuration(folder.path());
    assert_eq!(run(&["check", &format!("-c{file}"), "-ojson"], &[]).0, 0);
    let (_, _, error) = run(&["exec", "-c", &file, "--", "true", "-config"], &[]);
    assert!(!error.contains("is no flag"), "{error}");
}

#[cfg(feature = "acl")]
#[test]
fn flags_of_consuls_and_vaults_programs_lead_to_keywards() {
    for (args, written) in [
        (
            &["acl", "policy", "create", "-name", "web", "-rules", "@web.hcl"][..],
            "-name is no flag: write the name alone",
        ),
        (&["acl", "policy", "create", "--name=web"], "--name is no flag: write the name alone"),
        (&["acl", "policy", "update", "web", "-name", "app"], "-name is no flag: write --name, with two dashes"),
        (
            &["acl", "token", "read", "-accessor-id", "x"],
            "-accessor-id is no flag: keyward's long flags have two dashes",
        ),
        (&["acl", "token", "create", "-policy-name=web"], "-policy-name is no flag: write --policy-name,"),
        (&["acl", "token", "create", "-policy", "web"], "-policy is no flag: write --policy-name"),
        (&["acl", "token", "create", "--policy", "web"], "--policy is no flag: write --policy-name"),
        (&["acl", "token", "create", "--role=web"], "--role is no flag: write --role-name"),
    ] {
        let (code, output, error) = run(args, &[]);
        assert_eq!((code, output.as_str()), (1, ""), "{args:?}: {error}");
        assert!(error.contains(written), "{args:?}: {error}");
    }
}

#[test]
fn a_command_of_another_program_leads_to_keywards() {
    for (name, written) in [("start", "keyward run"), ("agent", "keyward run"), ("validate", "keyward check")] {
        let (code, _, error) = run(&[name], &[]);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains(&format!("error: {name} is no command: write {written}")), "{error}");
    }
    let (_, _, error) = run(&["acl", "start"], &[]);
    assert!(!error.contains("keyward run"), "{error}");
}
