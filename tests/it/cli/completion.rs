//! Shell completion: the scripts, and the names that they ask for.

use std::process::Command;

use crate::harness::binary::run;

const CONFIG: &str = "[server.main]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\n\
                      [session.web.cloud]\nrole = \"web\"\nresource = \"x\"\n[session.db.cloud]\nrole = \"db\"\nresource = \"x\"\n\
                      [listener.local]\naddress = \"unix:///run/keyward/api.sock\"\n";

fn write_config(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("keyward.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Names for the word at the end of a command line.
fn complete(line: &str, config: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (code, output, error) = run(&[&["__complete"], &words[..]].concat(), &[("KEYWARD_CONFIG", config)]);
    assert_eq!((code, error.as_str()), (0, ""), "{line}");
    output.lines().map(str::to_owned).collect()
}

#[test]
fn sessions_sections_and_codes_are_completed_from_the_configuration_that_the_words_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(&folder, CONFIG);
    for line in ["token --session ", "token -s w", "retry ", "login --session ", "template try a.tmpl --session "] {
        assert_eq!(complete(line, &config), ["db", "web"], "{line}");
    }
    assert_eq!(complete(&format!("token -c {config} -s "), "/nowhere"), ["db", "web"]);
    assert!(complete("token --session ", "/nowhere").is_empty(), "an error prints nothing");
    let sections = complete("config show ", &config);
    for section in ["listener.local", "session.web", "session.web.cloud", "server.main", "agent"] {
        assert!(sections.iter().any(|name| name == section), "{section}: {sections:?}");
    }
    let codes = complete("explain ", &config);
    assert!(codes.len() > 80 && codes.contains(&"KW-1101".to_owned()), "{codes:?}");
    assert!(complete("status ", &config).is_empty());
    // One with an error is completed too: its owner is about to look at it.
    let broken = write_config(&folder, &format!("{CONFIG}unknown = 1\n"));
    assert_eq!(complete("token --session ", &broken), ["db", "web"]);
}

/// Runs a script in bash that completes a line, as readline does.
fn complete_in_bash(script: &str, words: &[&str], config: &str) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_keyward"));
    let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let last = words.len() - 1;
    let text = format!(
        "{script}\nCOMP_WORDS=({list})\nCOMP_CWORD={last}\n_keyward_names keyward \"${{COMP_WORDS[{last}]}}\" \
         \"${{COMP_WORDS[{}]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        last - 1
    );
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("complete.bash");
    std::fs::write(&file, text).unwrap();
    let output = Command::new("bash")
        .arg(&file)
        .env_clear()
        .envs([("PATH", path.as_str()), ("KEYWARD_CONFIG", config)])
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_names_with_the_printed_script_and_all_else_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(&folder, CONFIG);
    let (_, script, _) = run(&["completions", "bash"], &[]);
    let check = |words: &[&str], expected: &str| {
        assert_eq!(complete_in_bash(&script, words, &config), expected, "{words:?}");
    };
    check(&["keyward", "token", "--session", ""], "db\nweb\n");
    check(&["keyward", "token", "--session", "w"], "web\n");
    check(&["keyward", "retry", "d"], "db\n");
    check(
        &["keyward", "explain", "KW-110"],
        &(1101..1110).fold(String::new(), |text, number| text + &format!("KW-{number}\n")),
    );
    check(&["keyward", "stat"], "status\n");
    check(&["keyward", "status", "--wat"], "--watch\n");
}

#[cfg(feature = "dev")]
#[test]
fn faults_are_completed_by_the_script_itself() {
    let (_, script, _) = run(&["completions", "bash"], &[]);
    assert_eq!(complete_in_bash(&script, &["keyward", "dev", "break", "cl"], "/nowhere"), "cloud\nclock\n");
}

#[test]
fn the_scripts_of_zsh_and_fish_ask_for_names() {
    for (shell, parts) in [
        ("zsh", ["_keyward_words() {", "keyward __complete", "_keyward_words \"$@\""]),
        ("fish", ["function __keyward_names", "keyward __complete", "-l session -x -a \"(__keyward_names)\""]),
    ] {
        let (code, script, _) = run(&["completions", shell], &[]);
        assert_eq!(code, 0);
        for part in parts {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
}
