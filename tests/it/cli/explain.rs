//! Error codes: `keyward explain`, and the places where commands print them.

use serde_json::Value;

use crate::harness::binary::run;

#[test]
fn explain_prints_cause_and_remedy_of_a_code() {
    for code in ["KW-1003", "kw-1003", "1003"] {
        let (exit, output, error) = run(&["explain", code], &[]);
        assert_eq!((exit, error.as_str()), (0, ""), "{code}");
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines[0], "KW-1003: the configuration has an unknown key");
        assert!(lines[1].starts_with("cause:  ") && lines[2].starts_with("remedy: "), "{output}");
    }
    let (exit, _, error) = run(&["explain", "KW-9999"], &[]);
    assert!(exit == 1 && error.contains("no error has the code \"KW-9999\""), "{error}");
}

#[test]
fn explain_lists_all_codes() {
    let (exit, output, _) = run(&["explain"], &[]);
    assert!(exit == 0 && output.contains("KW-1203  TLS with the server failed"), "{output}");
    let (_, json, _) = run(&["explain", "-o", "json"], &[]);
    let all: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all.as_array().unwrap().len(), output.lines().count() - 1, "{output}");
}

#[test]
fn check_gives_each_error_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyward.toml");
    let text = "[server.main]\nkind = \"vault\"\nadress = \"https://vault.example\"\naddress = 5\n\
                [session.web.cloud]\nrole = \"\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let (exit, output, _) = run(&["check", &file], &[]);
    assert_eq!(exit, 3);
    let expected = [
        ("server.main.adress", "[KW-1003]"),
        ("server.main.address", "[KW-1005]"),
        ("session.web.cloud.role", "[KW-1006]"),
        ("session.web.cloud.resource", "[KW-1007]"),
    ];
    for (key, code) in expected {
        let line = output.lines().find(|line| line.contains(key)).unwrap_or_default();
        assert!(line.ends_with(&format!("{code} (error)")), "{key}: {output}");
    }
    let (_, json, _) = run(&["check", &file, "-o", "json"], &[]);
    let report: Value = serde_json::from_str(&json).unwrap();
    let codes = report["errors"].as_array().unwrap().iter().map(|error| error["code"].as_str().unwrap());
    assert!(codes.clone().any(|code| code == "KW-1005") && codes.count() >= expected.len(), "{json}");
}

#[test]
fn run_gives_a_broken_file_and_a_missing_one_their_codes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyward.toml");
    let run = || run(&["run", "-c", &file.display().to_string()], &[]);
    let (exit, _, error) = run();
    assert!(exit == 78 && error.trim_end().ends_with("[KW-1001]"), "{error}");
    std::fs::write(&file, "[server").unwrap();
    let (exit, _, error) = run();
    assert!(exit == 78 && error.contains("[KW-1002]"), "{error}");
}
