//! `toYAML` and `toTOML`: third-party parsers read the output back.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use keyward_agent::templates::{Dependency, Rendered, Resolved, Template, TemplateSource};
use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json};

use crate::acl::third_party_clients::clients;

/// Compares each text with the value that it was written of.
const READER: &str = r#"
import json, sys, tomllib, yaml
for number, (form, value, text) in enumerate(json.load(sys.stdin)):
    read = yaml.safe_load(text) if form == "toYAML" else tomllib.loads(text)
    assert read == value and type(read) is type(value), (form, value, text, read)
print(number + 1)
"#;

fn written(function: &str, value: &Value) -> String {
    let text = TemplateSource {
        name: "test".to_owned(),
        file: None,
        text: format!("{{{{ file \"/f/v\" | parseJSON | {function} }}}}"),
        left: "{{".to_owned(),
        right: "}}".to_owned(),
        variables: EnvVars::default(),
        write_folders: Vec::new(),
        allows_missing_keys: false,
        folders: vec!["/f".into()],
    };
    let file = Resolved::Text(Arc::new(SecretString::from(value.to_string())));
    let known = Arc::new(BTreeMap::from([(Dependency::File("/f/v".into()), file)]));
    match Template::compile(text).unwrap().render(known, SystemTime::UNIX_EPOCH) {
        Rendered::Complete { text, .. } => text,
        other => panic!("{function} {value}: {other:?}"),
    }
}

#[test]
fn yaml_and_toml_output_is_read_back_by_other_parsers() {
    let words = [
        "",
        " ",
        "a",
        "a b",
        " a",
        "a ",
        "No",
        "on",
        "Y",
        "NULL",
        "~",
        "0",
        "007",
        "0o17",
        "1_000",
        "1e3",
        "+1",
        "-1",
        ".5",
        "1:20",
        "2026-01-01",
        "nan",
        ".NaN",
        ".inf",
        "-",
        "--- a",
        "...",
        "- a",
        "? a",
        "a: b",
        "a:",
        ":a",
        "#",
        "a #b",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a`",
        "'a'",
        "\"a\"",
        "[a]",
        "{a}",
        "a,b",
        // Without `<<` and `=`: Go's library writes them plain, and so does keyward; parsers of YAML 1.1 refuse them.
        "a\nb",
        "\n",
        "a\n\n",
        "\ta\r",
        "\\",
        "\u{0}\u{7f}",
        "é",
        "\u{85}\u{a0}\u{2028}\u{feff}x",
        "\u{1f600}",
        "hvs.CAESI-_x",
        "https://a.example/?b=c&d",
        "path/to/it",
    ];
    let mut cases = Vec::new();
    for word in words {
        // As in consul-template, line breaks at the end of the whole result are dropped.
        if !word.ends_with('\n') {
            cases.push(("toYAML", json!(word)));
        }
        let mut value = json!({ "value": word, "list": [word, [word], { "in": word }], "deep": { "deeper": { "a": word, "b": [] } }, "zz": 1 });
        value[word] = json!(1);
        cases.push(("toYAML", value.clone()));
        cases.push(("toTOML", value));
    }
    for value in
        [json!([[], {}, [[1], [2, [3]]], [{ "a": [{ "b": 1, "c": {} }] }]]), json!(null), json!(true), json!(-7)]
    {
        cases.push(("toYAML", value));
    }
    // Numbers are written as in Go, for which JSON has no integers: 1e21 as `1e+21`, a text for PyYAML, and 1.0 as `1`.
    for number in [json!(0.1), json!(1.5e21), json!(-2.5e-9), json!(1.25), json!(123_456_789.125)] {
        cases.push(("toYAML", number.clone()));
        cases.push(("toTOML", json!({ "a": number, "b": [{ "c": number }, { "d": [] }] })));
    }
    let all: Vec<_> = cases.iter().map(|(form, value)| json!([form, value, written(form, value)])).collect();
    let mut reader = Command::new(clients().join("bin/python"))
        .args(["-c", READER])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    reader.stdin.take().unwrap().write_all(json!(all).to_string().as_bytes()).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), cases.len().to_string());
}
